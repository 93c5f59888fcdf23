// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// byKind finds holds by their kind. It is replaced, never changed.
type byKind struct {
	readable map[schema.GroupVersionKind][]*hold // those with a lease, widest first
	waiting  map[schema.GroupVersionKind][]*hold // those without
}

// late returns the holds of a kind that may have an object of the namespace,
// and whose informers have not listed in the history that is served. Another
// informer may answer a read with an object that their first list lacks, and
// their handlers would never receive its deletion. late is called before the
// read: an informer that lists in between may already lack the object. Where
// all have listed, as nearly always, late takes no lock and allocates nothing.
func (c *cluster) late(gvk schema.GroupVersionKind, namespace string) []*hold {
	all := c.holds.byKind.Load()
	readable := all.readable[gvk]
	var waiting []*hold
	if len(all.waiting) > 0 {
		waiting = all.waiting[gvk]
	}
	if len(readable)+len(waiting) < 2 {
		return nil // the only one is the one that answers
	}
	epoch := c.view.Load().epoch
	var late []*hold
	for _, h := range readable {
		if !h.lease.ListedIn(epoch) && (!apart(h.id.namespace, namespace) || !h.namespaced()) {
			late = append(late, h)
		}
	}

	return append(late, waiting...) // it is not known yet whether their kind has namespaces
}

// shown records at late holds that another hold has answered a read.
func (s *holds) shown(late []*hold, by *hold, objects ...*informerpool.Object) {
	for _, h := range late {
		if h == by {
			continue
		}
		if lease := s.keepShown(h, objects); lease != nil {
			lease.SeenObjects(objects...)
		}
	}
}

// keepShown returns the lease of a hold. If it has none yet, keepShown keeps
// the objects for it.
func (s *holds) keepShown(h *hold, objects []*informerpool.Object) *informerpool.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()

	if h.lease != nil {
		return h.lease
	}
	if h.shown == nil {
		h.shown = map[client.ObjectKey]*informerpool.Object{}
	}
	for _, o := range objects {
		name := client.ObjectKeyFromObject(o)
		before := h.shown[name]
		if before == nil && len(h.shown) < maxSeenUnmapped || before != nil && !precedes(o, before) {
			h.shown[name] = o
		}
	}

	return nil
}
