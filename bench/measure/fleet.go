// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// every is the interval at which the state of a fleet is looked at.
const every = 20 * time.Millisecond

// fleetRun measures a subject with a fleet.
type fleetRun struct {
	Task

	control  Control
	subject  Subject
	clusters []Cluster
	figures  Figures
	// watches is the number of watches that are open once all is well.
	watches int
}

func (r *fleetRun) run(ctx context.Context, open Open) error {
	var err error
	if r.clusters, err = r.control.Clusters(ctx); err != nil {
		return err
	}
	before := Settle()
	for _, phase := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"sync", func(ctx context.Context) error { return r.sync(ctx, open) }},
		{"rest", func(ctx context.Context) error { return r.spend(ctx, "rest/cpu") }},
		{"memory", func(context.Context) error { return r.memory(before) }},
		{"churn", r.churn},
		{"heal", r.heal},
		{"stop", func(context.Context) error { return r.stop(before) }},
	} {
		if err := phase.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
	}

	return nil
}

// sync brings all clusters into the caches.
func (r *fleetRun) sync(ctx context.Context, open Open) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.Patience)
	defer cancel()
	if err := ResetPeak(); err != nil {
		return err
	}
	cpu, began := CPU(), time.Now()
	// The subject lives on after the time-out of this phase.
	s, err := open(context.WithoutCancel(ctx), r.clusters)
	if err != nil {
		return err
	}
	r.subject = s
	if err := s.Watch(ctx, r.Kinds); err != nil {
		return err
	}
	r.figures["sync/elapsed"] = time.Since(began).Seconds()
	r.figures["sync/cpu"] = (CPU() - cpu).Seconds()
	if r.figures["sync/peak"], err = peak(); err != nil {
		return err
	}
	r.watches = len(r.Kinds) * len(r.clusters)
	if err := r.until(ctx, r.alive); err != nil {
		return err
	}
	n, err := r.control.Counts(ctx)
	if err != nil {
		return err
	}
	r.figures["sync/opened"] = float64(n.Opened)
	for _, k := range r.Kinds {
		n, err := s.Count(ctx, k)
		if err != nil {
			return err
		}
		if want := r.Objects * len(r.clusters); n != want {
			return fmt.Errorf("%d objects of %s instead of %d", n, k.Kind, want)
		}
	}

	return r.verify(ctx)
}

func peak() (float64, error) {
	_, peak, err := RSS()
	return peak, err
}

// alive reports whether as many watches are open as there should be.
func (r *fleetRun) alive(ctx context.Context) (bool, error) {
	n, err := r.control.Counts(ctx)
	return n.Live >= r.watches, err
}

// until waits until the condition holds.
func (r *fleetRun) until(ctx context.Context, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	for {
		ok, err := holds(ctx)
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			n, err := r.control.Counts(context.WithoutCancel(ctx))
			return errors.Join(ctx.Err(), err, fmt.Errorf("%d watches instead of %d, or old states", n.Live, r.watches))
		case <-time.After(every):
		}
	}
}

// verify compares objects of the caches with those of the servers.
func (r *fleetRun) verify(ctx context.Context) error {
	marks, err := r.control.Marks(ctx)
	if err != nil {
		return err
	}
	if len(marks) == 0 {
		return errors.New("nothing to verify")
	}
	return r.until(ctx, r.sees(marks))
}

// sees returns a condition that holds once the caches have all the marks.
func (r *fleetRun) sees(marks []Mark) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		for len(marks) > 0 {
			// Caches that are emptied for a while have no such object.
			have, err := r.subject.ResourceVersion(ctx, marks[0])
			if err != nil || have != marks[0].ResourceVersion {
				return false, nil // until reports what is missing
			}
			marks = marks[1:]
		}
		return true, nil
	}
}

// spend measures the share of a core that the process uses.
func (r *fleetRun) spend(ctx context.Context, name string) error {
	cpu, began := CPU(), time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(r.Rest):
	}
	r.figures[name] = (CPU() - cpu).Seconds() / time.Since(began).Seconds()

	return nil
}

// memory measures what there is at rest. The resident memory comes first: that
// of a process in which no one collects garbage.
func (r *fleetRun) memory(before Footprint) error {
	now, _, err := RSS()
	if err != nil {
		return err
	}
	r.figures["rss"] = now
	n, err := r.control.Counts(context.Background())
	if err != nil {
		return err
	}
	r.figures["connections"] = float64(n.Connections)
	after := Settle()
	r.figures["heap"] = after.Heap - before.Heap
	r.figures["stack"] = after.Stack - before.Stack
	r.figures["goroutines"] = float64(after.Goroutines - before.Goroutines)

	return nil
}

// churn measures one change per second in each cluster.
func (r *fleetRun) churn(ctx context.Context) error {
	if len(r.Outages) == 0 {
		return nil
	}
	from, err := r.control.Counts(ctx)
	if err != nil {
		return err
	}
	if err := r.control.Churn(ctx, 1); err != nil {
		return err
	}
	if err := r.spend(ctx, "churn/cpu"); err != nil {
		return err
	}
	to, err := r.control.Counts(ctx)
	if err != nil {
		return err
	}
	r.figures["churn/events"] = float64(to.Objects-from.Objects) / r.Rest.Seconds()
	if err := r.control.Churn(ctx, 0); err != nil {
		return err
	}

	return r.verify(ctx)
}

// heal measures what follows a restart of all servers, outages, and the loss of
// all histories.
func (r *fleetRun) heal(ctx context.Context) error {
	if len(r.Outages) == 0 {
		return nil
	}
	if err := r.disturb(ctx, "restart", func(ctx context.Context) ([]Mark, error) {
		marks, err := r.control.Change(ctx)
		return marks, errors.Join(err, r.control.Restart(ctx))
	}); err != nil {
		return err
	}
	for _, o := range r.Outages {
		err := r.disturb(ctx, fmt.Sprintf("outage-%s", o), func(ctx context.Context) ([]Mark, error) {
			if err := r.control.Down(ctx); err != nil {
				return nil, err
			}
			time.Sleep(o)
			marks, err := r.control.Change(ctx)
			return marks, errors.Join(err, r.control.Up(ctx))
		})
		if err != nil {
			return err
		}
	}

	return r.disturb(ctx, "relist", func(ctx context.Context) ([]Mark, error) {
		if err := r.control.Down(ctx); err != nil {
			return nil, err
		}
		marks, err := r.control.Change(ctx)
		return marks, errors.Join(err, r.control.Forget(ctx), r.control.Up(ctx))
	})
}

// disturb measures how long it takes, and what it costs, until all watches are
// open again and all caches have what has changed in the meantime. do returns
// what has changed, once the servers admit connections again.
func (r *fleetRun) disturb(ctx context.Context, name string, do func(context.Context) ([]Mark, error)) error {
	if err := ResetPeak(); err != nil {
		return err
	}
	from, err := r.control.Counts(ctx)
	if err != nil {
		return err
	}
	cpu := CPU()
	marks, err := do(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	err = errors.Join(r.until(ctx, r.alive), r.until(ctx, r.sees(marks)))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}

	r.figures[name+"/elapsed"] = time.Since(began).Seconds()
	r.figures[name+"/cpu"] = (CPU() - cpu).Seconds()
	if r.figures[name+"/peak"], err = peak(); err != nil {
		return err
	}
	to, err := r.control.Counts(ctx)
	if err != nil {
		return err
	}
	informers := float64(r.watches)
	r.figures[name+"/requests"] = float64(to.Requests()-from.Requests()) / informers
	r.figures[name+"/lists"] = float64(to.Lists-from.Lists+to.Streams-from.Streams) / informers
	r.figures[name+"/history"] = float64(to.History-from.History) / informers
	r.figures[name+"/identity"] = float64(to.KubeSystem-from.KubeSystem) / informers
	r.figures[name+"/objects"] = float64(to.Objects - from.Objects)
	r.figures[name+"/bytes"] = float64(to.Sent - from.Sent)
	r.figures[name+"/handshakes"] = float64(to.Opened - from.Opened)
	r.figures[name+"/resumed"] = float64(to.Resumed - from.Resumed)

	return r.verify(ctx)
}

// stop ends the subject.
func (r *fleetRun) stop(before Footprint) error {
	began := time.Now()
	if err := r.subject.Stop(); err != nil {
		return err
	}
	r.figures["stop/elapsed"] = time.Since(began).Seconds()
	time.Sleep(quietFor)
	r.figures["stop/goroutines"] = float64(max(0, runtime.NumGoroutine()-before.Goroutines))

	return nil
}
