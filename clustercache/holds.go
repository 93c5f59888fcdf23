// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/restmap"
)

// watchID is what is watched in a cluster.
type watchID struct {
	gvk            schema.GroupVersionKind
	namespace      string
	labels, fields string
}

// hold is one watchID that somebody wants, with one lease for all of them.
type hold struct {
	id   watchID
	used atomic.Int64 // when a read in mode AutoWatch last asked for it, in nanoseconds of the epoch

	// The rest is protected by the lock of the holds.
	refs    int
	auto    bool                // one of the refs is that of reads in mode AutoWatch
	lease   *informerpool.Lease // nil until the cluster told which resource the kind is; never changes after that
	err     error               // why there is no lease
	changed chan struct{}       // closed when lease or err change
	waiting []*Registration     // to be told of the lease
}

// holds are all that is wanted of one cluster. Kinds are looked up when the cluster is connected, by one worker, and those
// that the cluster does not serve are looked for again from time to time.
type holds struct {
	c        *cluster
	retry    *timer
	idle     *timer
	readable atomic.Pointer[map[schema.GroupVersionKind][]*hold] // those with a lease, widest first

	mu      sync.Mutex // protects what follows; nothing else is locked under it
	all     map[watchID]*hold
	mapping bool
	again   bool // something was added while mapping
	closed  bool
}

func (s *holds) init(c *cluster) {
	s.c = c
	s.all = map[watchID]*hold{}
	s.readable.Store(&map[schema.GroupVersionKind][]*hold{})
	s.retry = newTimer(s.mapNow)
	s.idle = newTimer(s.releaseIdle)
}

// add takes a reference on id. It returns nil if the cluster is being forgotten.
func (s *holds) add(id watchID, auto bool) *hold {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	h := s.all[id]
	if h == nil {
		h = &hold{id: id, changed: make(chan struct{})}
		s.all[id] = h
	}
	if auto {
		h.used.Store(time.Now().UnixNano())
	}
	if !auto || !h.auto {
		h.refs++
	}
	h.auto = h.auto || auto
	mapped := h.lease != nil
	s.mu.Unlock()
	if mapped {
		return h
	}
	if m, ok := s.c.mapper.Cached(id.gvk); ok {
		s.bind(h, m)
	} else {
		s.mapNow()
	}
	return h
}

// release gives one reference back.
func (s *holds) release(h *hold) {
	s.mu.Lock()
	lease := s.releaseLocked(h)
	s.mu.Unlock()
	s.let(lease)
}

// drop is release for what was kept long enough by its user: the informer does not linger, and a cluster that nobody engaged
// is given up with the last hold on it.
func (s *holds) drop(h *hold) {
	s.mu.Lock()
	lease := s.releaseLocked(h)
	s.mu.Unlock()
	if lease != nil {
		lease.ReleaseNow()
	}
	s.c.leave()
}

func (s *holds) releaseLocked(h *hold) *informerpool.Lease {
	if h.refs--; h.refs > 0 || s.all[h.id] != h {
		return nil
	}
	delete(s.all, h.id)
	s.rebuildLocked()
	return h.lease
}

func (s *holds) let(leases ...*informerpool.Lease) {
	for _, l := range leases {
		if l != nil {
			l.Release()
		}
	}
	s.c.letGo()
}

// any tells whether something is wanted.
func (s *holds) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) > 0
}

// closeIfEmpty makes add fail from now on, if nothing is wanted.
func (s *holds) closeIfEmpty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = s.closed || len(s.all) == 0
	return s.closed
}

// close ends the timers. Leases end with the pool or with their owners.
func (s *holds) close() {
	s.mu.Lock()
	s.closed = true
	for _, h := range s.all {
		h.err = ErrClosed
		h.broadcast()
	}
	s.mu.Unlock()
	s.c.cc.timers.set(s.retry, time.Time{})
	s.c.cc.timers.set(s.idle, time.Time{})
}

func (h *hold) broadcast() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// look returns what is known of a hold: its lease or why it has none, and what is closed when that changes.
func (s *holds) look(h *hold) (lease *informerpool.Lease, changed <-chan struct{}, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.lease, h.changed, h.err
}

// of returns the holds of a kind that can be read, widest first.
func (s *holds) of(gvk schema.GroupVersionKind) []*hold { return (*s.readable.Load())[gvk] }

// leases returns every hold with a lease.
func (s *holds) leases() []*hold {
	var out []*hold
	for _, of := range *s.readable.Load() {
		out = append(out, of...)
	}
	return out
}

func (s *holds) rebuildLocked() {
	readable := map[schema.GroupVersionKind][]*hold{}
	for _, h := range s.all {
		if h.lease != nil {
			readable[h.id.gvk] = append(readable[h.id.gvk], h)
		}
	}
	for _, of := range readable {
		slices.SortFunc(of, func(a, b *hold) int { return cmp.Compare(a.id.narrowness(), b.id.narrowness()) })
	}
	s.readable.Store(&readable)
}

func (id watchID) narrowness() int {
	n := 0
	for i, part := range []string{id.namespace, id.labels, id.fields} {
		if part != "" {
			n |= 1 << i
		}
	}
	return n
}

// unmapped returns the kinds that wait to be looked up, each with its holds.
func (s *holds) unmappedLocked() map[schema.GroupVersionKind][]*hold {
	out := map[schema.GroupVersionKind][]*hold{}
	for _, h := range s.all {
		if h.lease == nil {
			out[h.id.gvk] = append(out[h.id.gvk], h)
		}
	}
	return out
}

// mapNow has a worker look up what is not mapped yet, if the cluster can be asked.
func (s *holds) mapNow() {
	if !s.c.view.Load().connected {
		return // becoming connected calls again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed || len(s.unmappedLocked()) == 0:
	case s.mapping:
		s.again = true
	default:
		s.mapping = true
		s.c.cc.connect.submit(s.mapAll)
	}
}

func (s *holds) mapAll() {
	s.mu.Lock()
	todo := s.unmappedLocked()
	s.again = false
	s.mu.Unlock()
	for gvk, waiting := range todo {
		ctx, cancel := context.WithTimeout(s.c.cc.ctx, s.c.cc.options.RequestTimeout)
		m, err := s.c.mapper.ResourceFor(ctx, gvk)
		cancel()
		for _, h := range waiting {
			if err == nil {
				s.bind(h, m)
			} else {
				s.fail(h, err)
			}
		}
	}
	s.mu.Lock()
	s.mapping = false
	again, missing := s.again, len(s.unmappedLocked()) > 0 && !s.closed
	s.mu.Unlock()
	switch {
	case again:
		s.mapNow()
	case missing && s.c.view.Load().connected:
		wait := s.c.cc.options.RetryInterval
		s.c.cc.timers.set(s.retry, time.Now().Add(wait+rand.N(wait/5+1))) // never sooner: a miss is remembered that long
	}
}

func (s *holds) fail(h *hold, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.err = err
	h.broadcast()
}

// bind gives a hold its lease.
func (s *holds) bind(h *hold, m restmap.Mapping) {
	key := informerpool.Key{
		Cluster: s.c.key, Resource: m.Resource, Namespace: h.id.namespace, LabelSelector: h.id.labels, FieldSelector: h.id.fields,
	}
	if !m.Namespaced {
		key.Namespace = ""
	}
	lease, err := s.c.cc.pool.Acquire(s.c.cc.ctx, key)
	if err != nil {
		s.fail(h, err)
		return
	}
	s.c.cc.addIndexes(s.c, lease, h.id.gvk)
	s.mu.Lock()
	if h.lease != nil || s.all[h.id] != h || s.closed {
		s.mu.Unlock()
		lease.Release() // bound twice, or released meanwhile
		return
	}
	h.lease, h.err = lease, nil
	waiting := h.waiting
	h.waiting = nil
	s.rebuildLocked()
	h.broadcast()
	s.mu.Unlock()
	s.c.cc.addIndexes(s.c, lease, h.id.gvk) // those added after the call above looked, by one who did not see the lease
	for _, r := range waiting {
		_ = r.sub.Add(lease) // it fails if one of the two was ended meanwhile
	}
	for _, f := range s.c.cc.allFeeds() {
		f.leaseAdded(s.c, h)
	}
}

// keep makes sure that reads in mode AutoWatch have a hold on id, and notes that it is in use.
func (s *holds) keep(id watchID) *hold {
	h := s.add(id, true)
	if h != nil {
		s.c.cc.timers.set(s.idle, time.Now().Add(s.c.cc.options.IdleTimeout))
	}
	return h
}

// releaseIdle gives up what reads have not asked for lately.
func (s *holds) releaseIdle() {
	now := time.Now()
	var leases []*informerpool.Lease
	var next time.Time
	s.mu.Lock()
	for _, h := range s.all {
		if !h.auto {
			continue
		}
		end := time.Unix(0, h.used.Load()).Add(s.c.cc.options.IdleTimeout)
		if now.Before(end) {
			if next.IsZero() || end.Before(next) {
				next = end
			}
			continue
		}
		h.auto = false
		leases = append(leases, s.releaseLocked(h))
	}
	s.mu.Unlock()
	if len(leases) > 0 {
		s.let(leases...)
	}
	s.c.cc.timers.set(s.idle, next)
}

// count returns how many things are wanted, and of how many the kind was not found yet.
func (s *holds) count() (wanted, unmapped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.all {
		if h.lease == nil {
			unmapped++
		}
	}
	return len(s.all), unmapped
}

// snapshot returns everything that is wanted.
func (s *holds) snapshot() []*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.all))
}

// lastRead is when reads in mode AutoWatch last asked for a hold; zero if they do not keep it.
func (s *holds) lastRead(h *hold) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.auto {
		return time.Time{}
	}
	return time.Unix(0, h.used.Load())
}

func (s *holds) references(h *hold) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(h.refs, 0)
}
