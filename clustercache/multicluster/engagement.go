// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// The wait between two attempts to engage a cluster starts at engageBackoff and
// doubles up to engageBackoffMax; half of it is random.
const (
	engageBackoff    = time.Second
	engageBackoffMax = 30 * time.Second
)

func isUnknown(err error) bool { return errors.Is(err, clustercache.ErrUnknownCluster) }

// engagements holds the clusters that are engaged with one Aware:
//
//	begin --> Engage --ok--> started --end--> over --goroutine ends--> forgotten
//	          ^    | error                     |
//	          +----+ after a wait              +-- begin waits for the old one
//
// end also stops an engagement that has not succeeded yet. Only one goroutine
// calls begin, end and wait.
type engagements[N ~string] struct {
	s       *Clusters
	ctx     context.Context //nolint:containedctx // Start's: parent of every engagement's, never one of them
	engage  func(context.Context, N, cluster.Cluster) error
	running map[client.ObjectKey]*engagement
	ending  map[client.ObjectKey]struct{} // those of running that are over, but had not ended at the last check
	names   map[N]client.ObjectKey
	tasks   sync.WaitGroup
}

// engagement is the engagement of one cluster.
type engagement struct {
	remote *remote
	tenure tenure
	cancel context.CancelFunc
	done   chan struct{} // closed when its goroutine has ended
}

func newEngagements[N ~string](
	ctx context.Context, s *Clusters, engage func(context.Context, N, cluster.Cluster) error,
) *engagements[N] {
	return &engagements[N]{
		s:       s,
		ctx:     ctx,
		engage:  engage,
		names:   map[N]client.ObjectKey{},
		running: map[client.ObjectKey]*engagement{},
		ending:  map[client.ObjectKey]struct{}{},
	}
}

// begin engages a cluster unless it already is.
func (e *engagements[N]) begin(key client.ObjectKey, name N, in tenure) {
	e.reap()
	before := e.running[key] // which its successor waits for
	if _, over := e.ending[key]; before != nil && !over {
		return
	}
	if holder, taken := e.names[name]; taken && holder != key {
		e.s.options.Logger.Error(nil, "Cluster has the name of another and is not engaged",
			"cluster", clustername.Of(key),
			"name", string(name))
		return
	}
	r, err := e.s.remote(e.s.engaged, key)
	if err != nil {
		if !isUnknown(err) {
			e.s.options.Logger.Error(err, "Cluster cannot be engaged", "cluster", clustername.Of(key))
		}
		return // if it was removed meanwhile, that is the next event
	}

	ctx, cancel := context.WithCancel(e.ctx)
	now := &engagement{
		remote: r,
		tenure: in,
		cancel: cancel,
		done:   make(chan struct{}),
	}
	delete(e.ending, key)
	e.running[key], e.names[name] = now, key
	e.tasks.Go(func() {
		defer close(now.done)
		defer cancel()
		if before != nil {
			// A call for the removed cluster may not have returned yet. If it
			// returned after the new cluster's, the Aware would keep the old,
			// ended context.
			<-before.done
		}

		e.run(ctx, key, name, r)
	})
}

// endOther ends an engagement of another ownership: requests were dropped
// between the two, and only a new engagement makes them again.
func (e *engagements[N]) endOther(key client.ObjectKey, in tenure) {
	if now := e.running[key]; now != nil && now.tenure != in {
		e.end(key)
	}
}

// end ends the engagement of a cluster that was removed or lost.
func (e *engagements[N]) end(key client.ObjectKey) {
	now := e.running[key]
	if _, over := e.ending[key]; now == nil || over {
		return
	}
	now.cancel()
	e.s.drop(e.s.engaged, now.remote)
	maps.DeleteFunc(e.names, func(_ N, holder client.ObjectKey) bool { return holder == key })
	e.ending[key] = struct{}{}
	e.reap()
}

// reap forgets the engagements that have ended. The last ones are only
// forgotten by the next call.
func (e *engagements[N]) reap() {
	for key := range e.ending {
		select {
		case <-e.running[key].done:
			delete(e.ending, key)
			delete(e.running, key)
		default:
		}
	}
}

// run calls engage until that succeeds, and then keeps the cluster started.
func (e *engagements[N]) run(ctx context.Context, key client.ObjectKey, name N, r *remote) {
	for wait := engageBackoff; ctx.Err() == nil; wait = min(2*wait, engageBackoffMax) {
		engage := func() error { return e.engage(ctx, name, r) }
		err := e.s.cc.Protect("Aware.Engage", engage, "cluster", clustername.Of(key))
		if err == nil {
			_ = r.Start(ctx) // until ctx ends, which is no error
			return
		}
		if ctx.Err() != nil {
			return
		}
		e.s.options.Logger.Error(err, "Cluster could not be engaged; trying again", "cluster", clustername.Of(key))
		timetable.Sleep(ctx, wait-rand.N(wait/2))
	}
}

// wait waits until all engagements have ended, as they do with e.ctx.
func (e *engagements[N]) wait() {
	for _, now := range e.running {
		now.cancel()
	}
	e.tasks.Wait()
}
