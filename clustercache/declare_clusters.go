// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleetcache/fleetcache/clustercache/internal/members"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// follow takes a watch in each cluster that a need's selector selects, now and
// until unfollow.
func (d *declared) follow(n need) error {
	selector, err := labels.Parse(n.clusters)
	if err != nil {
		return err
	}
	if d.fleet.ctx.Err() != nil {
		return ErrClosed
	}
	d.fleet.used()
	followed := members.New(members.Config[*cluster, *Watch]{
		Wanted: func(c *cluster) bool { return d.fleet.tenure.Serves(c.key) && c.matches(selector) },
		Acquire: func(c *cluster) (*Watch, bool) {
			want := c.wants.Acquire(selectionOf(n.WatchKey))
			if want == nil {
				return nil, false // the cluster is being forgotten; its successor is considered by itself
			}
			return newWatch(c, want), true
		},
		Entered: func(_ *cluster, w *Watch) {
			d.add(n, w)
			d.call(n)
		},
		Left: func(c *cluster, w *Watch) { d.dismiss(n, c, w) },
	})
	d.mu.Lock()
	d.mu.followed[n] = followed
	d.mu.Unlock()

	// A cluster that is added or relabeled from now on is considered by itself.
	for _, c := range d.fleet.all() {
		followed.Look(c)
	}

	return nil
}

// dismiss releases the watch of a cluster that a need's selector no longer
// selects. Only what would otherwise be in use for less than GC.Grace lingers.
func (d *declared) dismiss(n need, c *cluster, w *Watch) {
	d.remove(n, w)
	d.mu.Lock()
	used := d.mu.followed[n] != nil
	d.mu.Unlock()

	switch {
	case !used:
		w.drop()
	case c.conn.View().Phase == phase.Gone:
		w.retire()
		c.letGo()
	default:
		w.ReleaseCluster()
	}

	d.call(n)
}

func (d *declared) unfollow(n need) {
	d.mu.Lock()
	followed := d.mu.followed[n]
	delete(d.mu.followed, n)
	d.mu.Unlock()

	if followed != nil {
		followed.Close()
	}
}

// consider is called when a cluster's labels, its phase or its ownership may
// have changed. It does not block, and may be called by a hook of the
// connection.
func (d *declared) consider(c *cluster) {
	undecided := d.settlement.awaits(c)
	d.mu.Lock()
	followed := slices.Collect(maps.Values(d.mu.followed))
	d.mu.Unlock()

	followed = slices.DeleteFunc(followed, func(s *members.Set[*cluster, *Watch]) bool { return !s.Due(c) })
	if len(followed) == 0 && !undecided {
		return
	}
	d.fleet.spawn(func() { // not on the goroutine that handles the cluster's mailbox
		answered := c.answered() // before the looks, which then see the answer
		for _, s := range followed {
			s.Look(c)
		}
		if answered && d.settlement.decide(c) { // by now the cluster is watched for each selector that selects it
			d.callSelecting()
		}
	})
}

// listedClusters is called when the resolver has listed the clusters, and all
// of them were added.
func (d *declared) listedClusters() {
	if d.settlement.list() {
		d.callSelecting()
	}
}

// callSelecting calls the owners that use a selector.
func (d *declared) callSelecting() {
	for _, n := range d.selecting() {
		d.call(n)
	}
}

// selecting returns the needs with a selector.
func (d *declared) selecting() []need {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.mu.followed))
}

// isSettled reports whether it is known which clusters the needs select.
func (d *declared) isSettled(needs []need) bool {
	if !anySelector(needs) {
		return true
	}
	select {
	case <-d.settlement.done():
		return true
	default:
		return false
	}
}

// settle waits until it is known which clusters the needs select, or until ctx
// ends, or the ClusterCache does.
func (d *declared) settle(ctx context.Context, needs []need) error {
	for !d.isSettled(needs) {
		select {
		case <-d.settlement.done():
		case <-d.fleet.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// selected returns the keys of each need with a selector.
func (d *declared) selected() map[need][]status.WatchKey {
	out := map[need][]status.WatchKey{}
	for _, n := range d.selecting() {
		out[n] = d.keys(n)
	}
	return out
}

// releasedKeys returns the keys of needs that were released, sorted. selected
// are the keys that those with a selector had before. A key that another need
// has is not released.
func (d *declared) releasedKeys(needs []need, selected map[need][]status.WatchKey) []status.WatchKey {
	var keys []status.WatchKey
	for _, n := range needs {
		if n.many {
			keys = append(keys, selected[n]...)
		} else {
			keys = append(keys, n.WatchKey)
		}
	}
	keys = slices.DeleteFunc(except(keys, nil), func(key status.WatchKey) bool { return d.watch(key) != nil })
	sortKeys(keys)

	return keys
}

// settlement says whether it is settled which clusters selectors select: once
// the resolver has listed the clusters, and has answered for each of them.
type settlement struct {
	mu        sync.Mutex // protects the fields below; nothing else is locked under it
	listed    bool
	undecided map[*cluster]struct{}
	settled   chan struct{} // closed while it is
}

func newSettlement(listed bool) *settlement {
	s := &settlement{listed: listed, undecided: map[*cluster]struct{}{}, settled: make(chan struct{})}
	if listed {
		close(s.settled)
	}
	return s
}

// add is called with each new cluster, and before it is resolved.
func (s *settlement) add(c *cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.listed && len(s.undecided) == 0 {
		s.settled = make(chan struct{})
	}
	s.undecided[c] = struct{}{}
}

// awaits reports whether the resolver has yet to answer for a cluster.
func (s *settlement) awaits(c *cluster) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, undecided := s.undecided[c]
	return undecided
}

// decide records that the resolver has answered for a cluster. It reports
// whether it is settled by that.
func (s *settlement) decide(c *cluster) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	_, was := s.undecided[c]
	delete(s.undecided, c)
	return was && s.settleLocked()
}

// list records that the resolver has listed the clusters, and all of them were
// added. It reports whether it is settled by that.
func (s *settlement) list() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	first := !s.listed
	s.listed = true
	return first && s.settleLocked()
}

func (s *settlement) settleLocked() bool {
	if !s.listed || len(s.undecided) > 0 {
		return false
	}
	close(s.settled)
	return true
}

// done returns a channel that is closed while it is settled.
func (s *settlement) done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled
}
