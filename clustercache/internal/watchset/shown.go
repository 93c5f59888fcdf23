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
	k, epoch := s.index.of(gvk), s.config.Epoch()
	k.mu.RLock()
	none := len(k.waiting) == 0 && len(k.unlisted) == 0 && k.epoch == epoch
	none = none || len(k.exact)+len(k.waiting) < 2 && len(k.waiting[""]) < 2 // the only one is the one that answers
	k.mu.RUnlock()

	if none {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.epoch != epoch {
		k.epoch = epoch
		for _, w := range k.exact {
			k.unlisted[w] = struct{}{}
		}
	}
	late := k.waits(key.Name) // it is not known yet whether their kind has namespaces
	for w := range k.unlisted {
		switch {
		case w.lease.ListedIn(epoch):
			delete(k.unlisted, w)
		case w.scope.name != "" && key.Name != "" && w.scope.name != key.Name,
			apart(w.Namespace, key.Namespace) && w.Namespaced():
		default:
			late = append(late, w)
		}
	}

	return late
}

// Unlist records that informers have lost their objects, or have been exchanged:
// any may have to list again in the same epoch.
func (s *Set) Unlist() {
	for _, k := range *s.index.kinds.Load() {
		k.mu.Lock()
		for _, w := range k.exact {
			k.unlisted[w] = struct{}{}
		}
		k.mu.Unlock()
	}
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
