// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wants

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Seen records what reads have shown while the kind is watched. If an informer
// finds such an object gone, for example deleted between the read and the first
// list, it delivers the delete to handlers: no other event ever would.
type Seen struct {
	epoch func() informerpool.Epoch
	index *Index
	// keep keeps an object for wants without a lease. It returns the leases of
	// those that have got one meanwhile.
	keep func(unmapped []*Want, u *unstructured.Unstructured) []*informerpool.Lease
}

// Object records that the API server answered a read with an object.
func (s *Seen) Object(gvk schema.GroupVersionKind, obj client.Object) {
	leases, unmapped := s.interested(gvk, obj)
	if len(leases)+len(unmapped) == 0 {
		return
	}
	u := plain(gvk, obj)
	if u == nil {
		return
	}
	for _, l := range append(leases, s.keep(unmapped, u)...) {
		l.Seen(u)
	}
}

// Begin returns a function that records what a call of a client showed, unless
// another history of the cluster began meanwhile. The answer to a write shows
// an object as a read does; but one that is being deleted may be gone with that
// very answer, as with its last finalizer.
func (s *Seen) Begin() func(gvk schema.GroupVersionKind, obj any, written bool) {
	before := s.epoch()
	return func(gvk schema.GroupVersionKind, obj any, written bool) {
		list, isList := obj.(client.ObjectList)
		if isList {
			gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		}
		if s.epoch() != before || s.index.of(gvk) == nothing {
			return
		}
		if isList {
			s.List(gvk, list)
			return
		}
		u := plain(gvk, obj)
		gone := written && u != nil && u.GetDeletionTimestamp() != nil
		if u != nil && u.GetUID() != "" && u.GetResourceVersion() != "" && !gone {
			s.Object(gvk, u)
		}
	}
}

// Answered records that a want has answered a read with objects. Handlers of
// others that have not reached them, or have not listed yet, receive their
// deletes in any case.
func (s *Seen) Answered(by *Want, objects ...*informerpool.Object) {
	by.lease.Answered(objects...)
	k := by.kind
	k.mu.RLock()
	waits := k.waiting.Len() > 0
	k.mu.RUnlock()
	if !waits {
		return
	}
	for _, o := range objects {
		k.mu.RLock()
		unmapped := k.waits(o.GetName())
		k.mu.RUnlock()
		if u := plain(by.GVK, o); u != nil {
			s.keep(unmapped, u)
		}
	}
}

// interested returns the watches of a kind that may select an object: the
// leases, and the wants that have none yet.
func (s *Seen) interested(
	gvk schema.GroupVersionKind, obj client.Object,
) (leases []*informerpool.Lease, unmapped []*Want) {
	key, has := client.ObjectKeyFromObject(obj), labels.Labels(nil)
	if packed, ok := obj.(*informerpool.Object); ok {
		has = LabelsOf{packed}
	} else {
		has = labels.Set(obj.GetLabels())
	}
	for _, w := range s.index.Selecting(gvk, key, has) {
		leases = append(leases, w.lease)
	}
	k := s.index.of(gvk)
	k.mu.RLock()
	defer k.mu.RUnlock()
	return leases, k.waits(key.Name)
}

// List is Object for the objects of a list.
func (s *Seen) List(gvk schema.GroupVersionKind, list client.ObjectList) {
	if s.index.of(gvk) == nothing {
		return
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		if obj, ok := o.(client.Object); ok {
			s.Object(gvk, obj)
		}
		return nil
	})
}

// Packed is Object for packed objects.
func (s *Seen) Packed(gvk schema.GroupVersionKind, objects []*informerpool.Object) {
	if s.index.of(gvk) == nothing {
		return
	}
	for _, o := range objects {
		s.Object(gvk, o)
	}
}

// plain returns the object in the form of its JSON, or nil.
func plain(gvk schema.GroupVersionKind, obj any) *unstructured.Unstructured {
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil
	}
	u := &unstructured.Unstructured{}
	if json.Unmarshal(raw, &u.Object) != nil || u.Object == nil {
		return nil
	}
	u.SetGroupVersionKind(gvk)

	return u
}
