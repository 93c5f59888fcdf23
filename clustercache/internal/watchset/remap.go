// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/restmap"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// remapInterval is how old the results of discovery for watched kinds may get.
const remapInterval = 10 * time.Minute

// remap checks periodically, and when there is a reason, whether watched kinds
// are still served as they were. A definition that is deleted and created again
// may have another scope or plural, and another cluster may take the old one's
// place.
type remap struct {
	s   *Set
	due *timetable.Timer

	mu      sync.Mutex // protects what follows; taken before the locks of the set and the timers
	running bool
	again   bool // there was a reason while running
	last    time.Time
}

func (r *remap) init(s *Set) {
	r.s = s
	r.due = timetable.NewTimer(r.now)
}

// RemapNow lets a worker check whether the watched kinds are still served as
// they were, if the cluster is connected.
func (s *Set) RemapNow() { s.remap.now() }

// rediscover looks up the kinds that are missing: discovery may have changed.
func (s *Set) rediscover() {
	if slices.ContainsFunc(s.Readable(), func(w *Want) bool { return w.missing.Load() }) {
		s.RemapNow()
		return
	}
	s.config.Mapper.Invalidate()
	s.MapNow()
}

// awaitKindsLocked has the definitions of the kinds watched that the cluster
// does not serve.
func (s *Set) awaitKindsLocked() {
	if s.closed || s.config.Source == nil {
		return
	}
	var groups map[string]bool
	for _, w := range s.all {
		unserved := w.lease == nil && w.err != nil && !errors.Is(w.err, ErrNotWatchable) // or discovery fails
		if !unserved && !w.missing.Load() || w.GVK.Group == "" {
			continue
		}
		if groups == nil {
			groups = map[string]bool{}
		}
		groups[w.GVK.Group] = true
	}
	s.crds.Want(groups)
}

// RemapSoon is RemapNow, but not more often than every Config.RetryInterval.
func (s *Set) RemapSoon() { s.remap.soon() }

// later schedules the next check, unless an earlier one is due.
func (r *remap) later() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.IsZero() {
		r.last = time.Now()
		r.s.config.Timers.Set(r.due, r.last.Add(remapInterval-rand.N(remapInterval/5)))
	}
}

// soon schedules a check, but not more often than every Config.RetryInterval.
func (r *remap) soon() {
	r.mu.Lock()
	next := r.last.Add(r.s.config.RetryInterval)
	if wait := time.Until(next); wait > 0 && !r.running {
		r.s.config.Timers.Set(r.due, next)
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()

	r.now()
}

// now lets a worker check, if anything is watched and the cluster is connected.
func (r *remap) now() {
	if !r.s.config.Connected() {
		return // called again on connecting
	}
	r.mu.Lock()
	defer r.mu.Unlock()

	switch {
	case r.running:
		r.again = true
	case !r.s.index.any():
		r.last = time.Time{} // the next want that is bound schedules a check
	default:
		r.running = true
		r.s.config.LookUp(r.look)
	}
}

// look queries the cluster, and moves the wants whose kind is served
// differently now.
func (r *remap) look() {
	s := r.s
	ctx, cancel := context.WithTimeout(s.config.Context, s.config.RequestTimeout)
	err := s.config.Mapper.Refresh(ctx)
	cancel()
	missing := false
	for _, w := range s.Readable() {
		m, known := s.config.Mapper.Cached(w.GVK)
		if known {
			s.rebind(w, m)
		} else {
			missing = true // it may return with another scope, and no informer would fail
		}
		if old := w.mapping.Load(); !known && err != nil && old != nil && old.Presumed {
			continue // discovery has not answered yet
		}
		if was := w.missing.Swap(!known); was == known { // live reads know that, the informer may not
			if known {
				w.lease.Retry()
			}
			s.config.OnChanged(w.Selection, true)
		}
	}

	s.MapNow()
	r.mu.Lock()
	defer r.mu.Unlock()

	r.running, r.last = false, time.Now()
	wait := remapInterval - rand.N(remapInterval/5)
	if err != nil || missing || r.again {
		wait = s.config.RetryInterval
	}
	r.again = false
	s.mu.Lock()
	closed := s.closed
	s.awaitKindsLocked()
	s.mu.Unlock()

	if !closed {
		s.config.Timers.Set(r.due, r.last.Add(wait))
	}
}

// rebind moves a want's lease to the resource that now serves its kind. Watches
// and handlers stay, and receive the deletes and adds.
func (s *Set) rebind(w *Want, m restmap.Mapping) {
	old := w.mapping.Load()
	if old == nil || *old == m {
		return
	}
	lease, _, _ := s.Look(w)
	if lease == nil || !m.Can(restmap.List) {
		return
	}
	w.mapping.Store(&m)
	key := s.key(w, m)
	if key == lease.Key() {
		return
	}
	if err := lease.Retarget(s.config.Context, key); err != nil {
		return // it was released meanwhile
	}
	s.config.Logger.Info("Kind is served otherwise now",
		"cluster", s.config.Name, "kind", KindName(w.GVK), "resource", m.Resource.Resource)
	s.config.AddIndexes(lease, w.GVK)
	s.mu.Lock()
	if s.all[w.Selection] == w {
		s.index.rekeyLocked(w)
	}
	w.broadcast()
	s.config.OnChanged(w.Selection, true)
	s.mu.Unlock()
}

// key returns the key under which a want acquires its informer from the pool.
func (s *Set) key(w *Want, m restmap.Mapping) informerpool.Key {
	key := informerpool.Key{
		Cluster:       s.config.Cluster,
		Resource:      m.Resource,
		Kind:          w.GVK.Kind,
		Namespace:     w.Namespace,
		LabelSelector: w.LabelSelector,
		FieldSelector: w.FieldSelector,
	}
	if !m.Namespaced {
		key.Namespace = ""
	}
	if canonical, err := key.Canonical(); err == nil {
		return canonical
	}
	return key // Acquire returns the error
}

// ErrNotWatchable indicates that a kind can be read but not watched: its
// resource has no verb list, or, for reads in mode AutoWatch, no verb watch.
// Reads of it go to the API server. A Watch of a kind that can only be listed
// is polled.
var ErrNotWatchable = errors.New("kind cannot be watched")

// watchable returns why a want gets no informer, or nil.
func (s *Set) watchable(w *Want, m restmap.Mapping) error {
	if m.Can(restmap.List|restmap.Watch) || m.Can(restmap.List) && !s.ofReads(w) {
		return nil
	}
	return ErrNotWatchable
}

// ofReads reports whether nothing but reads in mode AutoWatch wants a want: the
// API server answers them, too.
func (s *Set) ofReads(w *Want) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.auto && w.refs == 1
}

// Polled reports whether the kind can only be listed, by discovery or by what
// the server does. A cached answer is then as old as the last poll.
func (w *Want) Polled() bool {
	m := w.mapping.Load()
	return m != nil && !m.Can(restmap.Watch) || w.lease.Polls()
}

// Relisted is called for lists that an informer has taken over. An informer
// lists again after a definition was deleted and created again, though that may
// happen so fast that none of its attempts fails. Resources that Kubernetes
// itself serves do not change that way.
func (s *Set) Relisted(key informerpool.Key) {
	if restmap.BuiltIn(key.Resource.Group) {
		return
	}
	for _, w := range s.Keyed(key) {
		if !w.Polled() && w.lease.Status().Resyncs > 0 {
			s.remap.soon()
			return
		}
	}
}
