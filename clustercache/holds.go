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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/restmap"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// watchID identifies a watch within a cluster.
type watchID struct {
	gvk            schema.GroupVersionKind
	namespace      string
	labels, fields string
}

// hold is a reference-counted request for one watchID. All its holders share
// one lease, which the hold gets once its kind is mapped to a resource:
//
//	add ──► waiting ───► bound to a lease ──► parted: no reference is left
//	         ▲   │         ▲          │
//	         └───┘         └──────────┘
//	   kind not found:   rebind: the kind is
//	   RetryInterval     served differently
type hold struct {
	id   watchID
	used instant // when a read in mode AutoWatch last used it
	// mapping is how the kind is served; set before the lease.
	mapping atomic.Pointer[restmap.Mapping]
	parted  atomic.Bool          // it answers no more reads
	debt    atomic.Pointer[debt] // objects of the kind that others showed and it may lack

	// The rest is protected by the lock of the holds.
	refs    int
	auto    bool                                      // one of the refs belongs to reads in mode AutoWatch
	lease   *informerpool.Lease                       // nil until the cluster's resource for the kind is known; never changes after that
	err     error                                     // why there is no lease
	changed chan struct{}                             // closed when lease or err change
	waiting []*Registration                           // to be added to the lease
	unsent  []*unstructured.Unstructured              // seen in live reads, for the lease
	shown   map[client.ObjectKey]*informerpool.Object // shown by other informers, for the lease
}

// holds are all holds of one cluster. One worker looks kinds up while the
// cluster is connected, and periodically repeats that for kinds that the
// cluster does not serve.
type holds struct {
	c      *cluster
	retry  *timetable.Timer
	idle   *timetable.Timer
	remap  remap
	byKind atomic.Pointer[byKind]

	mu      sync.Mutex // protects what follows; nothing else is locked under it
	all     map[watchID]*hold
	mapping bool
	again   bool // a hold was added while mapping
	closed  bool
}

func (s *holds) init(c *cluster) {
	s.c = c
	s.all = map[watchID]*hold{}
	s.byKind.Store(&byKind{})
	s.retry = timetable.NewTimer(s.mapNow)
	s.idle = timetable.NewTimer(s.releaseIdle)
	s.remap.init(s)
}

// add takes a reference on id. It returns nil if the cluster is being
// forgotten.
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
		s.rebuildLocked()
	}
	if auto {
		h.used.set(time.Now())
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

// any reports whether the cluster has a hold. Holds that only reads in mode
// AutoWatch keep do not count: they must not keep a cluster that was removed.
func (s *holds) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.anyLocked()
}

func (s *holds) anyLocked() bool {
	for _, h := range s.all {
		if !h.auto || h.refs > 1 {
			return true
		}
	}
	return false
}

// closeIfEmpty makes later calls of add fail if there are no holds but those
// that reads keep, and returns the leases of these.
func (s *holds) closeIfEmpty() (kept []*informerpool.Lease, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed || s.anyLocked() {
		return nil, s.closed
	}
	s.closed = true
	for _, h := range s.all {
		h.auto = false
		if lease, _ := s.releaseLocked(h); lease != nil { // no other hold is left that could get a debt
			kept = append(kept, lease)
		}
	}

	return kept, true
}

// close stops the timers. Leases end with the pool or with their owners.
func (s *holds) close() {
	s.mu.Lock()
	s.closed = true
	for _, h := range s.all {
		h.err = ErrClosed
		h.broadcast()
	}
	s.mu.Unlock()

	s.c.cc.timers.Set(s.retry, time.Time{})
	s.c.cc.timers.Set(s.idle, time.Time{})
	s.c.cc.timers.Set(s.remap.due, time.Time{})
}

func (h *hold) broadcast() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// look returns the state of a hold: its lease, or why it has none, and a
// channel that is closed when that changes.
func (s *holds) look(h *hold) (lease *informerpool.Lease, changed <-chan struct{}, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.lease, h.changed, h.err
}

// of returns the readable holds of a kind, widest first.
func (s *holds) of(gvk schema.GroupVersionKind) []*hold { return s.byKind.Load().readable[gvk] }

// leases returns every hold with a lease.
func (s *holds) leases() []*hold {
	var out []*hold
	for _, of := range s.byKind.Load().readable {
		out = append(out, of...)
	}
	return out
}

func (s *holds) rebuildLocked() {
	readable, waiting := map[schema.GroupVersionKind][]*hold{}, map[schema.GroupVersionKind][]*hold{}
	for _, h := range s.all {
		if h.lease != nil {
			readable[h.id.gvk] = append(readable[h.id.gvk], h)
		} else {
			waiting[h.id.gvk] = append(waiting[h.id.gvk], h)
		}
	}

	for _, of := range readable {
		slices.SortFunc(of, func(a, b *hold) int { return cmp.Compare(a.id.narrowness(), b.id.narrowness()) })
	}
	s.byKind.Store(&byKind{readable, waiting})
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

// namespaced reports whether the objects live in namespaces, as far as is
// known. The cached objects decide over what discovery returned some time ago.
func (h *hold) namespaced() bool {
	_, shown := h.scopes()
	return shown
}

// scopes reports whether the objects live in namespaces: by discovery, and by
// the cached objects. Without any, shown is mapped.
func (h *hold) scopes() (mapped, shown bool) {
	m := h.mapping.Load()
	mapped = m == nil || m.Namespaced
	if h.lease != nil {
		if namespaced, known := h.lease.Namespaced(); known {
			return mapped, namespaced
		}
	}
	return mapped, mapped
}

// namespace returns the namespace to look in where a read names one. The API
// server and controller-runtime ignore the namespace of a cluster-scoped
// object.
func (h *hold) namespace(asked string) string {
	if h.namespaced() {
		return asked
	}
	return ""
}

// unmappedLocked returns the kinds that wait to be looked up, each with its
// holds.
func (s *holds) unmappedLocked() map[schema.GroupVersionKind][]*hold {
	out := map[schema.GroupVersionKind][]*hold{}
	for _, h := range s.all {
		if h.lease == nil {
			out[h.id.gvk] = append(out[h.id.gvk], h)
		}
	}
	return out
}

// mapNow lets a worker look up the kinds that are not mapped yet, if the
// cluster is connected.
func (s *holds) mapNow() {
	if !s.c.view.Load().connected {
		return // called again on connecting
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case s.closed || len(s.unmappedLocked()) == 0:
	case s.mapping:
		s.again = true
	default:
		s.mapping = true
		s.c.cc.lookUp.submit(s.mapAll)
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
		s.c.cc.timers.Set(s.retry, time.Now().Add(wait+rand.N(wait/5+1))) // never sooner: a miss is remembered for as long as wait
	}
}

func (s *holds) fail(h *hold, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.err = err
	h.broadcast()
}

// bind sets the lease of a hold.
func (s *holds) bind(h *hold, m restmap.Mapping) {
	if err := s.watchable(h, m); err != nil {
		s.fail(h, err)
		return
	}
	key := s.key(h, m)
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
	h.mapping.Store(&m)
	h.lease, h.err = lease, nil
	waiting, unsent, shown := h.waiting, h.unsent, h.shown
	h.waiting, h.unsent, h.shown = nil, nil, nil
	s.rebuildLocked()
	h.broadcast()
	s.mu.Unlock()

	s.remap.later()
	s.c.cc.addIndexes(s.c, lease, h.id.gvk) // those added after the call above, by a goroutine that did not see the lease
	for _, r := range waiting {
		_ = r.sub.Add(lease) // it fails only if one of the two has ended meanwhile
	}
	for _, f := range s.c.cc.allFeeds() {
		f.leaseAdded(s.c, h)
	}
	for _, u := range unsent { // after the handlers are registered
		lease.Seen(u)
	}
	lease.SeenObjects(slices.Collect(maps.Values(shown))...)
}

// keep ensures that reads in mode AutoWatch have a hold on id, and records that
// it is in use.
func (s *holds) keep(id watchID) *hold {
	h := s.add(id, true)
	if h != nil {
		s.c.cc.timers.SetSooner(s.idle, time.Now().Add(s.c.cc.options.IdleTimeout)) // another one may be due earlier
	}
	return h
}

// releaseIdle releases the holds that reads have not used lately.
func (s *holds) releaseIdle() {
	now := time.Now()
	var leases []*informerpool.Lease
	var owed []*debt
	var next time.Time
	s.mu.Lock()
	for _, h := range s.all {
		if !h.auto {
			continue
		}
		end := h.used.get().Add(s.c.cc.options.IdleTimeout)
		if now.Before(end) {
			if next.IsZero() || end.Before(next) {
				next = end
			}
			continue
		}

		h.auto = false
		lease, debts := s.releaseLocked(h)
		leases, owed = append(leases, lease), append(owed, debts...)
	}

	s.mu.Unlock()

	settle(owed)
	if len(leases) > 0 {
		s.let(leases...)
	}
	s.c.cc.timers.Set(s.idle, next)
}

// count returns the number of holds, and of those whose kind was not found yet.
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

// snapshot returns all holds.
func (s *holds) snapshot() []*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.all))
}

// lastRead returns when reads in mode AutoWatch last used a hold; zero if they
// do not keep it.
func (s *holds) lastRead(h *hold) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.auto {
		return time.Time{}
	}
	return h.used.get()
}

func (s *holds) references(h *hold) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(h.refs, 0)
}
