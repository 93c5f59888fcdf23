// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wants

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/restmap"
)

// maxSeenUnmapped is how many objects a want without an informer remembers.
const maxSeenUnmapped = 1000

// fail records why wants get no lease. It reports whether that is news: none of
// them had the same reason already, which was logged then.
func (s *Set) fail(why error, wants ...*Want) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := false
	for _, w := range wants {
		same := w.err != nil && w.err.Error() == why.Error()
		if s.all[w.Selection] == w {
			known, news = known || same, news || !same
			if !same {
				s.config.OnChanged(w.Selection, true)
			}
		}
		w.err = why
		w.broadcast()
	}

	return news && !known
}

// bind sets the lease of a want. Why it cannot is logged as an error, since it
// does not change by itself, unless only reads want it, which need none.
func (s *Set) bind(w *Want, m restmap.Mapping) {
	err := s.watchable(w, m)
	var lease *informerpool.Lease
	if err == nil {
		lease, err = s.config.Pool.Acquire(s.config.Context, s.key(w, m))
	}
	if err != nil {
		if s.fail(err, w) && s.config.Context.Err() == nil && !s.ofReads(w) {
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
	s.Index.bindLocked(w)
	if awaited {
		s.awaitKindsLocked()
	}
	w.broadcast()
	s.config.OnChanged(w.Selection, true)
	s.mu.Unlock()

	if s.config.Observed() {
		s.observeTrust(w) // an informer that ran before may not change until its trust ends
	}
	s.Kinds.bound(w.GVK, m)
	s.config.AddIndexes(lease, w.GVK) // those that a goroutine added after the call above, without seeing the lease
	for _, sub := range waiting {
		_ = sub.Add(lease) // it fails only if one of the two has ended meanwhile
	}
	s.config.OnBound(w)
	for _, u := range unsent { // after the handlers are registered
		lease.Seen(u)
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
		s.Index.rekeyLocked(w)
	}
	w.broadcast()
	s.config.OnChanged(w.Selection, true)
	s.mu.Unlock()
}

// Listen connects a subscription to the want's informer: now, or once there is
// one.
func (s *Set) Listen(w *Want, sub *informerpool.Subscription) {
	s.mu.Lock()
	lease := w.lease
	if lease == nil {
		w.waiting = append(w.waiting, sub)
	}
	s.mu.Unlock()

	if lease != nil {
		_ = sub.Add(lease) // it fails only if one of the two has ended meanwhile
	}
}

// Unlisten forgets a subscription that waits for the want's informer.
func (s *Set) Unlisten(w *Want, sub *informerpool.Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if i := slices.Index(w.waiting, sub); i >= 0 {
		w.waiting = slices.Delete(slices.Clone(w.waiting), i, i+1)
	}
}

// keepSeen keeps an object that a read has shown for wants without a lease. It
// returns the leases of those that have got one meanwhile.
func (s *Set) keepSeen(unmapped []*Want, u *unstructured.Unstructured) (leases []*informerpool.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range unmapped {
		switch {
		case w.lease != nil:
			leases = append(leases, w.lease)
		case len(w.unsent) < maxSeenUnmapped:
			if w.unsent == nil {
				w.unsent = map[types.UID]*unstructured.Unstructured{}
			}
			w.unsent[u.GetUID()] = u
		}
	}

	return leases
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

// awaitKinds has the definitions of missing kinds watched. It reports whether
// the set is open.
func (s *Set) awaitKinds() (open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaitKindsLocked()
	return !s.closed
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
