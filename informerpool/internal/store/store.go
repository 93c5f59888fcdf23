// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package store holds the objects of one informer, its indexes, and which
// changes reads may have seen.
package store

import (
	"iter"
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/packed"
)

// Store holds the objects of one informer. Its owner's lock protects it.
type Store struct {
	Objects map[string]*names // by namespace: the namespace index costs nothing more
	Count   int
	Bytes   int64 // memory of the objects and the maps, without what the objects share
	Shared  *packed.Shared
	Indexes []*Index
	Sight   *Sight
}

// names are the objects of one namespace.
type names struct {
	Objects map[string]*packed.Object
	peak    int // the most entries that objects has had: maps do not shrink
}

const (
	// namespaceBytes is the memory of a namespace whose objects fit into one
	// group of a map, including its own entry in the map of namespaces.
	namespaceBytes = 400
	// smallMap is the number of entries in such a group.
	smallMap = 8
	// EntryBytes is the average memory of each further entry of a map.
	EntryBytes = 38
)

// New returns an empty store.
func New() *Store {
	return &Store{Objects: map[string]*names{}, Shared: new(packed.Shared), Sight: &Sight{}}
}

// Size returns the approximate memory of the store.
func (s *Store) Size() int64 {
	n := s.Bytes + s.Shared.Bytes()
	for _, x := range s.Indexes {
		n += x.bytes
	}
	return n
}

// mapBytes returns the memory of a map of names that has had that many entries.
func mapBytes(peak int) int64 { return EntryBytes * int64(max(peak-smallMap, 0)) }

// Stage returns a store for objects that are going to be moved to s.
func (s *Store) Stage() *Store { return &Store{Objects: map[string]*names{}, Shared: s.Shared} }

// EmptyCopy returns a store without objects and with the same indexes, which
// are complete.
func (s *Store) EmptyCopy() *Store {
	c := New()
	c.Sight = s.Sight
	for _, x := range s.Indexes {
		copied := NewIndex(x.Name, x.Values)
		copied.Ready = true
		c.Indexes = append(c.Indexes, copied)
	}
	return c
}

// Get returns an object by its name, or nil.
func (s *Store) Get(namespace, name string) *packed.Object {
	if n := s.Objects[namespace]; n != nil {
		return n.Objects[name]
	}
	return nil
}

// Put stores o in place of old, the object that get returns for its name, which
// may be nil. values are o's values by index.
func (s *Store) Put(old, o *packed.Object, values map[*Index]Computed) {
	s.unlist(old)
	n := s.Objects[o.GetNamespace()]
	if n == nil {
		n = &names{Objects: map[string]*packed.Object{}}
		s.Objects[o.GetNamespace()] = n
		s.Bytes += namespaceBytes + int64(len(o.GetNamespace()))
	}
	if old != nil {
		// The map's key must be part of the new object, not keep the old
		// object's bytes alive.
		delete(n.Objects, o.GetName())
	}
	n.Objects[o.GetName()] = o
	if len(n.Objects) > n.peak {
		s.Bytes += mapBytes(len(n.Objects)) - mapBytes(n.peak)
		n.peak = len(n.Objects)
	}
	s.Count++
	s.Bytes += int64(o.OwnSize())
	s.Shared.Retain(o)
	for _, x := range s.Indexes {
		x.Add(o, values[x])
	}
}

// Remove removes old from the store.
func (s *Store) Remove(old *packed.Object) {
	s.unlist(old)
	n := s.Objects[old.GetNamespace()]
	delete(n.Objects, old.GetName())

	switch left := len(n.Objects); {
	case left == 0:
		delete(s.Objects, old.GetNamespace())
		s.Bytes -= mapBytes(n.peak) + namespaceBytes + int64(len(old.GetNamespace()))
	case n.peak > 64 && left < n.peak/4:
		smaller := make(map[string]*packed.Object, left)
		maps.Copy(smaller, n.Objects)
		s.Bytes += mapBytes(left) - mapBytes(n.peak)
		n.Objects, n.peak = smaller, left
	}
}

func (s *Store) unlist(old *packed.Object) {
	if old == nil {
		return
	}
	s.Count--
	s.Bytes -= int64(old.OwnSize())
	s.Shared.Release(old)
	for _, x := range s.Indexes {
		x.remove(old)
	}
}

// All yields every object, in no order.
func (s *Store) All() iter.Seq[*packed.Object] {
	return func(yield func(*packed.Object) bool) {
		for _, n := range s.Objects {
			for _, o := range n.Objects {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// In yields the objects of one namespace, or all objects if it is empty.
func (s *Store) In(namespace string) iter.Seq[*packed.Object] {
	if namespace == "" {
		return s.All()
	}
	return func(yield func(*packed.Object) bool) {
		n := s.Objects[namespace]
		if n == nil {
			return
		}
		for _, o := range n.Objects {
			if !yield(o) {
				return
			}
		}
	}
}

// CountIn returns the number of objects in a namespace.
func (s *Store) CountIn(namespace string) int {
	if n := s.Objects[namespace]; n != nil {
		return len(n.Objects)
	}
	return 0
}

// Scope is whether objects live in namespaces.
type Scope int32

// Scopes of the objects of a store.
const (
	ScopeUnknown Scope = iota // there are no objects, or some of both
	ScopeNamespace
	scopeCluster
)

// Scope returns the common scope of all objects.
func (s *Store) Scope() Scope {
	switch s.CountIn("") {
	case s.Count:
		if s.Count == 0 {
			return ScopeUnknown
		}
		return scopeCluster
	case 0:
		return ScopeNamespace
	}

	return ScopeUnknown
}

// NameOf returns the name under which an object is stored.
func NameOf(o *packed.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
