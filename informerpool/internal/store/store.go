// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package store holds the objects of one informer, its indexes, and which
// changes reads may have seen.
//
// # Tests
//
// The leading test is TestNamesAgreeWithAMap. TestMemoryIsGivenBack covers
// memory, TestIndexKnowsWhatItMisses indexes.
package store

import (
	"iter"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/packed"
)

// Store holds the objects of one informer. Its owner's lock protects it.
type Store struct {
	Count   int
	Bytes   int64 // memory of the objects and the names
	Indexes []*Index
	Sight   *Sight
	Changes uint64 // number of changes of the objects; it never decreases, in copies either

	namespaces map[string]*names // the namespace index costs nothing more
}

// EntryBytes is the average memory that an object takes in its namespace.
const EntryBytes = 14

// New returns an empty store.
func New() *Store { return &Store{namespaces: map[string]*names{}, Sight: &Sight{}} }

// Size returns the approximate memory of the store.
func (s *Store) Size() int64 {
	n := s.Bytes
	for _, x := range s.Indexes {
		n += x.bytes
	}
	return n
}

// Stage returns a store for objects that are going to be moved to s.
func (s *Store) Stage() *Store { return &Store{namespaces: map[string]*names{}} }

// EmptyCopy returns a store without objects and with the same indexes, which
// are complete.
func (s *Store) EmptyCopy() *Store {
	c := New()
	c.Sight = s.Sight
	c.Changes = s.Changes + 1
	for _, x := range s.Indexes {
		copied := NewIndex(x.Name, x.Values)
		copied.Ready = true
		c.Indexes = append(c.Indexes, copied)
	}
	return c
}

// Part returns a store with some of the objects, and with the indexes that are
// complete. No index function is called. Reads of either store count for both.
func (s *Store) Part(objects []*packed.Object) *Store {
	c := New()
	c.Sight = s.Sight
	values := map[*Index]Computed{}
	of := map[*Index]*Index{}
	for _, x := range s.Indexes {
		if x.Ready {
			copied := NewIndex(x.Name, x.Values)
			copied.Ready = true
			c.Indexes = append(c.Indexes, copied)
			of[copied] = x
		}
	}
	for _, o := range objects {
		for copied, x := range of {
			values[copied] = Computed{Values: x.listed[o], Err: x.failed[o]}
		}
		c.Put(nil, o, values)
	}
	return c
}

// Get returns an object by its name, or nil.
func (s *Store) Get(namespace, name string) *packed.Object {
	if n := s.namespaces[namespace]; n != nil {
		return n.get(name)
	}
	return nil
}

// Of returns the stored object with o's name, or nil.
func (s *Store) Of(o *packed.Object) *packed.Object { return s.Get(o.GetNamespace(), packed.NameOf(o)) }

// Put stores o in place of old, the object that Of returns for it, which
// may be nil. values are o's values by index.
func (s *Store) Put(old, o *packed.Object, values map[*Index]Computed) {
	s.unlist(old)
	s.Changes++
	n := s.namespaces[o.GetNamespace()]
	if n == nil {
		n = &names{}
		s.namespaces[o.GetNamespace()] = n
	} else {
		s.Bytes -= n.bytes()
	}
	n.put(o)
	s.Bytes += n.bytes()
	s.Count++
	s.Bytes += int64(o.Size())
	for _, x := range s.Indexes {
		x.Add(o, values[x])
	}
}

// Remove removes old from the store.
func (s *Store) Remove(old *packed.Object) {
	s.unlist(old)
	s.Changes++
	n := s.namespaces[old.GetNamespace()]
	s.Bytes -= n.bytes()
	n.remove(packed.NameOf(old))
	if n.count == 0 {
		delete(s.namespaces, old.GetNamespace())
		return
	}
	s.Bytes += n.bytes()
}

func (s *Store) unlist(old *packed.Object) {
	if old == nil {
		return
	}
	s.Count--
	s.Bytes -= int64(old.Size())
	for _, x := range s.Indexes {
		x.remove(old)
	}
}

// All yields every object, in no order.
func (s *Store) All() iter.Seq[*packed.Object] {
	return func(yield func(*packed.Object) bool) {
		for _, n := range s.namespaces {
			for o := range n.all() {
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
	if n := s.namespaces[namespace]; n != nil {
		return n.all()
	}
	return func(func(*packed.Object) bool) {}
}

// CountIn returns the number of objects in a namespace.
func (s *Store) CountIn(namespace string) int {
	if n := s.namespaces[namespace]; n != nil {
		return n.count
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

// ViewOf is NameOf without a copy, to look something up: it must not be kept,
// since it keeps the object alive.
func ViewOf(o *packed.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: packed.NameOf(o)}
}

// NameOf returns the name under which an object is stored.
func NameOf(o *packed.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
