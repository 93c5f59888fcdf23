// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"iter"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/packed"
)

// Object is one cached object: a read-only client.Object whose metadata answers without decoding the body.
// DeepCopyObject gives a mutable *unstructured.Unstructured; Into decodes into any form.
type Object = packed.Object

// store holds the objects of one informer. Its owner's lock protects it.
type store struct {
	objects map[string]map[string]*Object // by namespace, then name: the namespace index costs nothing more
	count   int
	bytes   int64
	indexes []*index
}

func newStore() *store { return &store{objects: map[string]map[string]*Object{}} }

// emptyCopy returns a store without objects and with the same indexes, which lack nothing.
func (s *store) emptyCopy() *store {
	c := newStore()
	for _, x := range s.indexes {
		copied := newIndex(x.name, x.values)
		copied.ready = true
		c.indexes = append(c.indexes, copied)
	}
	return c
}

func (s *store) get(namespace, name string) *Object { return s.objects[namespace][name] }

// put stores o in place of old, which is what get answers for its name, and may be nil. values are o's, by index.
func (s *store) put(old, o *Object, values map[*index][]string) {
	s.unlist(old)
	names := s.objects[o.GetNamespace()]
	if names == nil {
		names = map[string]*Object{}
		s.objects[o.GetNamespace()] = names
	}
	if old != nil {
		delete(names, o.GetName()) // the entry's key must be a part of the new object, not keep the old one's bytes alive
	}
	names[o.GetName()] = o
	s.count++
	s.bytes += int64(o.Size())
	for _, x := range s.indexes {
		x.add(o, values[x])
	}
}

// remove takes old out of the store.
func (s *store) remove(old *Object) {
	s.unlist(old)
	names := s.objects[old.GetNamespace()]
	delete(names, old.GetName())
	if len(names) == 0 {
		delete(s.objects, old.GetNamespace())
	}
}

func (s *store) unlist(old *Object) {
	if old == nil {
		return
	}
	s.count--
	s.bytes -= int64(old.Size())
	for _, x := range s.indexes {
		x.remove(old)
	}
}

// all yields every object, in no order.
func (s *store) all() iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		for _, names := range s.objects {
			for _, o := range names {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// in yields the objects of one namespace, or all for the empty one.
func (s *store) in(namespace string) iter.Seq[*Object] {
	if namespace == "" {
		return s.all()
	}
	return func(yield func(*Object) bool) {
		for _, o := range s.objects[namespace] {
			if !yield(o) {
				return
			}
		}
	}
}

// nameOf returns what an object is stored under.
func nameOf(o *Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
