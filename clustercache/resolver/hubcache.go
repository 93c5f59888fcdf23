// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hubCache keeps a copy of the objects that a convention needs, and answers
// from it:
//
//	listWatch (one per kind) --event--> apply --dirty clusters--> compute --> answers
//	                                      ^                          |           |
//	                                      +--- watches to start -----+        Resolve
//
// One goroutine owns the copy and computes; only the answers are shared. Each
// call of run has its own hubCache.
type hubCache struct {
	h      *HubResolver
	events chan event
	wg     sync.WaitGroup
	ctx    context.Context //nolint:containedctx // of run; only its goroutine starts watches

	// Owned by the goroutine of run.
	whole      []*listWatch // of the kinds that are watched as a whole; the first is the primary kind's
	named      map[objectID]*listWatch
	objects    map[objectID]*held
	candidates map[Cluster]map[objectID]struct{} // primary objects that describe a cluster
	uses       map[Cluster][]objectID            // objects an answer was made of, existing or not
	users      map[objectID]map[Cluster]struct{} // the inverse of uses

	unknown map[objectID]found // objects of the primary kind whose clusters are unknown

	mu      sync.Mutex // protects the fields below
	synced  bool
	answers map[Cluster]answer
	doubt   *found // one of unknown
}

// held is an object of the copy.
type held struct {
	found
	from *listWatch
	gone time.Time // when it vanished; zero while it exists
}

// answer is what Resolve returns.
type answer struct {
	access Access
	err    error
	// pending means that the watches have not reported an object that matters
	// yet.
	pending bool
}

func (a answer) equal(b answer) bool {
	if a.pending != b.pending || (a.err == nil) != (b.err == nil) {
		return false
	}
	if a.err != nil {
		return a.err.Error() == b.err.Error()
	}
	return a.access.Revision() == b.access.Revision() && maps.Equal(a.access.labels, b.access.labels)
}

func newHubCache(h *HubResolver) *hubCache {
	return &hubCache{
		h:          h,
		events:     make(chan event),
		named:      map[objectID]*listWatch{},
		objects:    map[objectID]*held{},
		candidates: map[Cluster]map[objectID]struct{}{},
		uses:       map[Cluster][]objectID{},
		users:      map[objectID]map[Cluster]struct{}{},
		unknown:    map[objectID]found{},
		answers:    map[Cluster]answer{},
	}
}

// answer returns the current answer; false if only the hub can answer.
func (c *hubCache) answer(cluster Cluster) (answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	found, ok := c.answers[cluster]
	switch {
	case ok:
		return found, !found.pending
	case c.doubt != nil:
		return answer{err: c.doubt.mayStandFor(cluster)}, true
	}

	return answer{err: c.h.missing(cluster)}, true
}

func (c *hubCache) isSynced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.synced
}

func (c *hubCache) clusters() []Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.answers))
}

// run watches and computes until ctx ends.
func (c *hubCache) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer c.wg.Wait()
	defer cancel()
	c.ctx = ctx
	for _, k := range c.h.kinds() {
		c.whole = append(c.whole, c.start(k))
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()

	for {
		timer.Reset(c.untilNextExpiry())
		select {
		case <-ctx.Done():
			return
		case got := <-c.events:
			c.apply(got)
		case <-timer.C:
			c.expire()
		}
	}
}

func (c *hubCache) start(k kind) *listWatch {
	ctx, cancel := context.WithCancel(c.ctx)
	w := &listWatch{
		hub:    c.h.hub,
		kind:   k,
		logger: c.h.options.Logger,
		cancel: cancel,
		emit: func(ctx context.Context, got event) {
			select {
			case c.events <- got:
			case <-ctx.Done():
			}
		},
	}
	c.wg.Go(func() {
		defer cancel()
		w.run(ctx)
	})
	return w
}

// apply updates the copy, and then the answers that depend on the changes.
func (c *hubCache) apply(got event) {
	if got.from.dropped {
		return // stopped while it was sending
	}
	dirty := map[Cluster]struct{}{}
	listed := map[objectID]struct{}{}
	for _, object := range got.objects {
		f, ours := c.selects(got.from, object)
		if ours && got.what != eventRemove {
			listed[f.id()] = struct{}{}
			c.put(f, got.from, dirty)
		} else {
			c.lose(f.id(), got.from)
		}
	}

	if got.what == eventList {
		for id, object := range c.objects {
			if _, there := listed[id]; !there && object.from == got.from {
				c.lose(id, got.from)
			}
		}
		if w := got.from; !w.heard {
			w.heard = true
			c.markUsers(w.id, dirty)
		}
	}

	if c.h.options.Grace < 0 {
		c.expireInto(dirty)
	}
	c.compute(dirty)
}

func (c *hubCache) selects(from *listWatch, object client.Object) (found, bool) {
	if from == c.whole[0] {
		return c.h.primary(object)
	}
	return from.kind.selects(object)
}

// put adds or updates an object.
func (c *hubCache) put(f found, from *listWatch, dirty map[Cluster]struct{}) {
	id := f.id()
	old := c.objects[id]
	_, unknown := c.unknown[id]
	switch {
	case f.failed == nil:
		delete(c.unknown, id)
	case old != nil && !unknown:
		f.keep(old.found)
	case from == c.whole[0]:
		c.unknown[id] = f
	}

	if old != nil {
		c.withdraw(old.found, dirty)
	}
	c.objects[id] = &held{found: f, from: from}
	for _, cluster := range f.clusters {
		if c.candidates[cluster] == nil {
			c.candidates[cluster] = map[objectID]struct{}{}
		}
		c.candidates[cluster][id] = struct{}{}
		dirty[cluster] = struct{}{}
	}

	c.markUsers(id, dirty)
}

// lose records that an object vanished. It counts as existing until its grace
// period is over.
func (c *hubCache) lose(id objectID, from *listWatch) {
	if object := c.objects[id]; object != nil && object.from == from && object.gone.IsZero() {
		object.gone = time.Now()
	}
}

func (c *hubCache) withdraw(f found, dirty map[Cluster]struct{}) {
	for _, cluster := range f.clusters {
		delete(c.candidates[cluster], f.id())
		dirty[cluster] = struct{}{}
	}
}

func (c *hubCache) markUsers(id objectID, dirty map[Cluster]struct{}) {
	for cluster := range c.users[id] {
		dirty[cluster] = struct{}{}
	}
}

func (c *hubCache) expire() {
	dirty := map[Cluster]struct{}{}
	c.expireInto(dirty)
	c.compute(dirty)
}

// expireInto forgets objects whose grace period is over.
func (c *hubCache) expireInto(dirty map[Cluster]struct{}) {
	for id, object := range c.objects {
		if object.gone.IsZero() || time.Since(object.gone) < c.h.options.Grace {
			continue
		}
		delete(c.objects, id)
		delete(c.unknown, id)
		c.withdraw(object.found, dirty)
		c.markUsers(id, dirty)
	}
}

// untilNextExpiry returns the time until the next grace period ends, or an hour
// if there is none.
func (c *hubCache) untilNextExpiry() time.Duration {
	out := time.Hour
	for _, object := range c.objects {
		if !object.gone.IsZero() {
			out = min(out, max(0, c.h.options.Grace-time.Since(object.gone)))
		}
	}
	return out
}
