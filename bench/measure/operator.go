// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// Key is the name of an object in a cluster.
type Key struct{ Namespace, Name string }

// Reader is a Subject whose caches are read as controllers read them: in the
// form that it was opened for, by whoever owns the results, if it lets them.
type Reader interface {
	Listener
	// Get reads an object.
	Get(ctx context.Context, cluster int, k Kind, key Key) error
	// List reads the objects of a namespace, or all if it is empty, and
	// returns their names.
	List(ctx context.Context, cluster int, k Kind, namespace string) ([]Key, error)
}

// ErrNoReads indicates that a Subject is no Reader.
var ErrNoReads = errors.New("it is not read from")

const (
	// cold is how many objects there are for each hot one.
	cold = 10
	// waiting is how many changes may wait for the operator.
	waiting = 1 << 12
	// sampling is how often the resident memory is looked at: by the process that
	// is measured, so that looks that cost much would hide what its subject does.
	sampling = time.Second
)

// operator reconciles one change after the other: it reads the object that has
// changed, further objects of its cluster, and the Pods of a namespace. It reads
// no others than those that have changed or are hot.
type operator struct {
	Reader

	kinds   []Kind
	hot     [][][]Key // by cluster and kind
	changes chan changed
	random  *rand.Rand
	gets    atomic.Int64 // per change
	done    atomic.Int64 // changes
}

// changed is an object that has changed.
type changed struct {
	cluster, kind int
	key           Key
}

// operator measures a subject that is read from, with each number of Gets.
func (t Task) operator(ctx context.Context, open Open) (f Figures, err error) {
	r := fleetRun{Task: t, control: Control{URL: t.Control}, figures: Figures{}}
	if r.clusters, err = r.control.Clusters(ctx); err != nil {
		return nil, err
	}
	if err := r.sync(ctx, open); err != nil {
		return nil, err
	}
	reader, ok := r.subject.(Reader)
	if !ok {
		return nil, errors.Join(ErrNoReads, r.subject.Stop())
	}
	o := &operator{
		Reader:  reader,
		kinds:   t.Kinds,
		changes: make(chan changed, waiting),
		random:  rand.New(rand.NewPCG(1, 2)),
	}
	if err := o.learn(ctx, len(r.clusters)); err != nil {
		return nil, errors.Join(err, r.subject.Stop())
	}

	working, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	var failed error // once ended is closed
	go func() {
		defer close(ended)
		failed = o.work(working)
	}()
	err = r.control.Churn(ctx, t.Rates[0]/float64(len(r.clusters)))
	for _, gets := range t.Gets {
		if err == nil {
			err = r.operate(ctx, o, gets, ended)
		}
	}
	end()
	<-ended

	return r.figures, errors.Join(err, failed, r.control.Churn(ctx, 0), r.subject.Stop())
}

// learn finds out which objects there are, and listens to their changes.
func (o *operator) learn(ctx context.Context, clusters int) error {
	for cluster := range clusters {
		var hot [][]Key
		for _, k := range o.kinds {
			keys, err := o.List(ctx, cluster, k, "")
			if err != nil {
				return err
			}
			slices.SortFunc(keys, func(a, b Key) int {
				return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
			})
			var some []Key
			for i := 0; i < len(keys); i += cold {
				some = append(some, keys[i])
			}
			hot = append(hot, some)
		}
		o.hot = append(o.hot, hot)
	}

	for kind, k := range o.kinds {
		err := o.Listen(ctx, k, func(cluster int, object Object) {
			select {
			case o.changes <- changed{cluster, kind, Key{object.GetNamespace(), object.GetName()}}:
			default: // it shows in the number of reconciles
			}
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// work reconciles until the context ends.
func (o *operator) work(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-o.changes:
			if err := o.reconcile(context.WithoutCancel(ctx), c); err != nil {
				return err
			}
			o.done.Add(1)
		}
	}
}

func (o *operator) reconcile(ctx context.Context, c changed) error {
	if err := o.Get(ctx, c.cluster, o.kinds[c.kind], c.key); err != nil {
		return err
	}
	for range o.gets.Load() - 1 {
		kind := o.random.IntN(len(o.kinds))
		hot := o.hot[c.cluster][kind]
		if err := o.Get(ctx, c.cluster, o.kinds[kind], hot[o.random.IntN(len(hot))]); err != nil {
			return err
		}
	}
	pods := o.hot[c.cluster][0]
	_, err := o.List(ctx, c.cluster, o.kinds[0], pods[o.random.IntN(2)*(len(pods)-1)].Namespace)

	return err
}

// operate measures what a change costs with so many Gets, once it is usual: from
// a collection of garbage to a collection, since one that is due later is part of
// the cost. It is due every two minutes at the latest.
func (r *fleetRun) operate(ctx context.Context, o *operator, gets int, ended <-chan struct{}) error {
	o.gets.Store(int64(gets))
	wait := func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return errors.New("the operator has ended")
		case <-time.After(d):
			return nil
		}
	}
	if err := wait(r.Rest / 2); err != nil {
		return err
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cpu, done, began := CPU(), o.done.Load(), time.Now()
	resident, samples := 0.0, 0.0
	after = before
	for collected := before.NumGC; after.NumGC == collected; samples++ {
		now, _, err := RSS()
		if err = errors.Join(err, wait(sampling)); err != nil {
			return err
		}
		resident += now
		runtime.ReadMemStats(&after)
		if time.Since(began) < r.Rest {
			collected = after.NumGC
		}
	}
	cpu, done = CPU()-cpu, o.done.Load()-done
	if done == 0 {
		return errors.New("nothing was reconciled")
	}

	suffix, n := fmt.Sprintf("-%d", gets), float64(done)
	r.figures["cpu"+suffix] = cpu.Seconds() / n
	r.figures["allocations"+suffix] = float64(after.Mallocs-before.Mallocs) / n
	r.figures["allocated"+suffix] = float64(after.TotalAlloc-before.TotalAlloc) / n
	r.figures["rss"+suffix] = resident / samples
	r.figures["rate"+suffix] = n / time.Since(began).Seconds()

	return nil
}
