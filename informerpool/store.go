// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"iter"
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/packed"
)

// Object is one cached object: a read-only client.Object whose metadata is
// available without decoding the body. DeepCopyObject returns a mutable
// *unstructured.Unstructured; Into decodes into any form.
type Object = packed.Object

// store holds the objects of one informer. Its owner's lock protects it.
type store struct {
	objects map[string]*names // by namespace: the namespace index costs nothing more
	count   int
	bytes   int64 // memory of the objects and the maps, without what the objects share
	shared  *packed.Shared
	indexes []*index
	sight   *sight
}

// names are the objects of one namespace.
type names struct {
	objects map[string]*Object
	peak    int // the most entries that objects has had: maps do not shrink
}

const (
	// namespaceBytes is the memory of a namespace whose objects fit into one
	// group of a map, including its own entry in the map of namespaces.
	namespaceBytes = 400
	// smallMap is the number of entries in such a group, and entryBytes the
	// average memory of each further entry.
	smallMap   = 8
	entryBytes = 38
)

func newStore() *store {
	return &store{objects: map[string]*names{}, shared: new(packed.Shared), sight: &sight{}}
}

// size returns the approximate memory of the store.
func (s *store) size() int64 {
	n := s.bytes + s.shared.Bytes()
	for _, x := range s.indexes {
		n += x.bytes
	}
	return n
}

// mapBytes returns the memory of a map of names that has had that many entries.
func mapBytes(peak int) int64 { return entryBytes * int64(max(peak-smallMap, 0)) }

// stage returns a store for objects that are going to be moved to s.
func (s *store) stage() *store { return &store{objects: map[string]*names{}, shared: s.shared} }

// emptyCopy returns a store without objects and with the same indexes, which
// are complete.
func (s *store) emptyCopy() *store {
	c := newStore()
	c.sight = s.sight
	for _, x := range s.indexes {
		copied := newIndex(x.name, x.values)
		copied.ready = true
		c.indexes = append(c.indexes, copied)
	}
	return c
}

func (s *store) get(namespace, name string) *Object {
	if n := s.objects[namespace]; n != nil {
		return n.objects[name]
	}
	return nil
}

// put stores o in place of old, the object that get returns for its name, which
// may be nil. values are o's values by index.
func (s *store) put(old, o *Object, values map[*index]computed) {
	s.unlist(old)
	n := s.objects[o.GetNamespace()]
	if n == nil {
		n = &names{objects: map[string]*Object{}}
		s.objects[o.GetNamespace()] = n
		s.bytes += namespaceBytes + int64(len(o.GetNamespace()))
	}
	if old != nil {
		delete(n.objects, o.GetName()) // the map's key must be part of the new object, not keep the old object's bytes alive
	}
	n.objects[o.GetName()] = o
	if len(n.objects) > n.peak {
		s.bytes += mapBytes(len(n.objects)) - mapBytes(n.peak)
		n.peak = len(n.objects)
	}
	s.count++
	s.bytes += int64(o.OwnSize())
	s.shared.Retain(o)
	for _, x := range s.indexes {
		x.add(o, values[x])
	}
}

// remove removes old from the store.
func (s *store) remove(old *Object) {
	s.unlist(old)
	n := s.objects[old.GetNamespace()]
	delete(n.objects, old.GetName())

	switch left := len(n.objects); {
	case left == 0:
		delete(s.objects, old.GetNamespace())
		s.bytes -= mapBytes(n.peak) + namespaceBytes + int64(len(old.GetNamespace()))
	case n.peak > 64 && left < n.peak/4:
		smaller := make(map[string]*Object, left)
		maps.Copy(smaller, n.objects)
		s.bytes += mapBytes(left) - mapBytes(n.peak)
		n.objects, n.peak = smaller, left
	}
}

func (s *store) unlist(old *Object) {
	if old == nil {
		return
	}
	s.count--
	s.bytes -= int64(old.OwnSize())
	s.shared.Release(old)
	for _, x := range s.indexes {
		x.remove(old)
	}
}

// all yields every object, in no order.
func (s *store) all() iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		for _, n := range s.objects {
			for _, o := range n.objects {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// in yields the objects of one namespace, or all objects if it is empty.
func (s *store) in(namespace string) iter.Seq[*Object] {
	if namespace == "" {
		return s.all()
	}
	return func(yield func(*Object) bool) {
		n := s.objects[namespace]
		if n == nil {
			return
		}
		for _, o := range n.objects {
			if !yield(o) {
				return
			}
		}
	}
}

// countIn returns the number of objects in a namespace.
func (s *store) countIn(namespace string) int {
	if n := s.objects[namespace]; n != nil {
		return len(n.objects)
	}
	return 0
}

// scope is whether objects live in namespaces.
type scope int32

const (
	scopeUnknown scope = iota // there are no objects, or some of both
	scopeNamespace
	scopeCluster
)

// scope returns the common scope of all objects.
func (s *store) scope() scope {
	switch s.countIn("") {
	case s.count:
		if s.count == 0 {
			return scopeUnknown
		}
		return scopeCluster
	case 0:
		return scopeNamespace
	}

	return scopeUnknown
}

// nameOf returns the name under which an object is stored.
func nameOf(o *Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
