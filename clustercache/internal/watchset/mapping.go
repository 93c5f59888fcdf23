// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/restmap"
)

// unmappedLocked returns the kinds that wait to be looked up, each with its
// wants.
func (s *Set) unmappedLocked() map[schema.GroupVersionKind][]*Want {
	out := map[schema.GroupVersionKind][]*Want{}
	for gvk, k := range *s.index.kinds.Load() {
		if waiting := k.unmapped(); len(waiting) > 0 {
			out[gvk] = waiting
		}
	}
	return out
}

// MapNow lets a worker look up the kinds that are not mapped yet, if the
// cluster is connected.
func (s *Set) MapNow() {
	if !s.config.Connected() {
		return // called again on connecting
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case s.closed || !s.index.waits():
	case s.mapping:
		s.again = true
	default:
		s.mapping = true
		s.config.LookUp(s.mapAll)
	}
}

func (s *Set) mapAll() {
	s.mu.Lock()
	todo := s.unmappedLocked()
	s.again = false
	s.mu.Unlock()

	for gvk, waiting := range todo {
		ctx, cancel := context.WithTimeout(s.config.Context, s.config.RequestTimeout)
		m, err := s.config.Mapper.ResourceFor(ctx, gvk)
		cancel()
		changed, known := false, s.failedWith(waiting, err)
		for _, w := range waiting {
			if err == nil {
				s.bind(w, m)
			} else {
				changed = s.fail(w, err) || changed
			}
		}
		if changed && !known {
			s.config.Logger.Info("Kind is not watched yet",
				"cluster", s.config.Name, "kind", KindName(gvk), "error", err.Error())
		}
	}

	s.mu.Lock()
	s.mapping = false
	again, missing := s.again, s.index.waits() && !s.closed
	s.awaitKindsLocked()
	s.mu.Unlock()

	switch {
	case again:
		s.MapNow()
	case missing && s.config.Connected():
		wait := s.config.RetryInterval // a miss is remembered for as long: never sooner
		s.config.Timers.Set(s.retry, time.Now().Add(wait+rand.N(wait/5+1)))
	}
}

// failedWith reports whether one of the wants of a kind has the error already,
// which was logged then.
func (s *Set) failedWith(wants []*Want, err error) bool {
	if err == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(wants, func(w *Want) bool {
		return s.all[w.Selection] == w && w.err != nil && w.err.Error() == err.Error()
	})
}

// fail records why a want gets no lease. It reports whether it was another
// reason before.
func (s *Set) fail(w *Want, err error) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = s.all[w.Selection] == w && (w.err == nil || w.err.Error() != err.Error())
	if changed {
		s.config.OnChanged(w.Selection, true)
	}
	w.err = err
	w.broadcast()

	return changed
}

// bind sets the lease of a want. Why it cannot is logged as an error, since it
// does not change by itself, unless only reads want it, which need none.
func (s *Set) bind(w *Want, m restmap.Mapping) {
	key := s.key(w, m)
	err := s.watchable(w, m)
	var lease *informerpool.Lease
	if err == nil {
		lease, err = s.config.Pool.Acquire(s.config.Context, key)
	}
	if err != nil {
		if s.fail(w, err) && s.config.Context.Err() == nil && !s.ofReads(w) {
			s.config.Logger.Error(err, "Kind is not watched", "cluster", s.config.Name, "kind", KindName(w.GVK))
		}
		return
	}
	s.config.AddIndexes(lease, w.GVK)
	s.mu.Lock()
	if w.lease != nil || s.all[w.Selection] != w || s.closed {
		s.mu.Unlock()

		lease.Release() // bound twice, or released meanwhile
		return
	}
	w.mapping.Store(&m)
	awaited := w.err != nil
	w.lease, w.err = lease, nil
	waiting, unsent := w.waiting, w.unsent
	w.waiting, w.unsent = nil, nil
	s.index.bindLocked(w)
	if awaited {
		s.awaitKindsLocked()
	}
	w.broadcast()
	s.config.OnChanged(w.Selection, true)
	s.mu.Unlock()

	if s.config.Observed() {
		s.observeTrust(w) // an informer that ran before may not change until its trust ends
	}
	now, known := s.config.Mapper.Cached(w.GVK)
	switch {
	case m.Presumed:
		s.remap.soon()
	case known && now != m:
		s.remap.now() // a check in between has not found the want yet
	default:
		s.remap.later()
	}
	s.config.AddIndexes(lease, w.GVK) // those that a goroutine added after the call above, without seeing the lease
	for _, sub := range waiting {
		_ = sub.Add(lease) // it fails only if one of the two has ended meanwhile
	}
	s.config.OnBound(w)
	for _, u := range unsent { // after the handlers are registered
		lease.Seen(u)
	}
}
