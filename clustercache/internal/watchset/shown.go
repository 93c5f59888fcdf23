// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Late returns the wants of a kind that may have an object, or objects of the
// namespace if the name is empty, and whose informers have not listed in the
// history that is served. Another informer may answer a read with an object
// that their first list lacks, and their handlers would never receive its
// deletion. Late is called before the read: an informer that lists in between
// may already lack the object. Where all have listed, as nearly always, Late
// takes no lock and allocates nothing.
func (s *Set) Late(gvk schema.GroupVersionKind, key client.ObjectKey) []*Want {
	k := s.index.of(gvk)
	readable, waiting := k.readable(key.Name), k.waits(key.Name)
	if len(readable)+len(waiting) < 2 {
		return nil // the only one is the one that answers
	}
	epoch := s.config.Epoch()
	var late []*Want
	for _, w := range readable {
		if !w.lease.ListedIn(epoch) && (!apart(w.Namespace, key.Namespace) || !w.Namespaced()) {
			late = append(late, w)
		}
	}

	return append(late, waiting...) // it is not known yet whether their kind has namespaces
}

// Shown records at late wants that another want has answered a read.
func (s *Set) Shown(late []*Want, by *Want, objects ...*informerpool.Object) {
	for _, w := range late {
		if w == by {
			continue
		}
		if lease := s.keepShown(w, objects); lease != nil {
			lease.SeenObjects(objects...)
		}
	}
}

// keepShown returns the lease of a want. If it has none yet, keepShown keeps
// the objects for it.
func (s *Set) keepShown(w *Want, objects []*informerpool.Object) *informerpool.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()

	if w.lease != nil {
		return w.lease
	}
	if w.shown == nil {
		w.shown = map[client.ObjectKey]*informerpool.Object{}
	}
	for _, o := range objects {
		name := client.ObjectKeyFromObject(o)
		before := w.shown[name]
		if before == nil && len(w.shown) < maxSeenUnmapped || before != nil && !precedes(o, before) {
			w.shown[name] = o
		}
	}

	return nil
}
