// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package refusals remembers the objects whose state an informer does not know
// because it refused what the server sent.
//
// # Tests
//
// The leading test is TestRefusedObjectIsUnknownUntilItIsAccepted.
// TestHazardServerRefusedWithoutEnd covers memory.
package refusals

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
)

const (
	// maxUnknown is how many refused objects are known by name. Beyond it every
	// object is unknown: a server that sends so many is not reliable in
	// anything.
	maxUnknown = 1024
	// maxUnknownBytes bounds the names together.
	maxUnknownBytes = 128 << 10
)

// Set is the set of objects that an informer refused and that may exist all the
// same. They are unknown, not absent: the store cannot answer for them.
type Set struct {
	names map[types.NamespacedName]string // and the versions of their refused states, if they have an order
	bytes int
	all   error // why any object may be unknown; nil while names is complete
	last  error // why the last one was refused
}

// Add records that an object was refused at a version. It reports whether the
// object was not yet known to be refused.
func (s *Set) Add(name types.NamespacedName, version string, why error) bool {
	s.last = why
	if !ordering.Ordered(version) {
		version = ""
	}
	if was, known := s.names[name]; known || s.all != nil {
		if known {
			s.names[name] = ordering.Further(was, version)
		}
		return false
	}
	size := len(name.Namespace) + len(name.Name)
	if name.Name == "" || len(s.names) == maxUnknown || s.bytes+size > maxUnknownBytes {
		s.AddAll(why)
		return true
	}
	if s.names == nil {
		s.names = map[types.NamespacedName]string{}
	}
	s.names[name] = version
	s.bytes += size

	return true
}

// AddAll records that any object may be unknown.
func (s *Set) AddAll(why error) { s.names, s.bytes, s.all, s.last = nil, 0, why, why }

// Forget records that the state of an object at a version is known. A state from
// before the refused one says nothing of that.
func (s *Set) Forget(name types.NamespacedName, version string) {
	if refused, known := s.names[name]; known && !ordering.Behind(version, refused) {
		delete(s.names, name)
		s.bytes -= len(name.Namespace) + len(name.Name)
	}
}

// Clone returns a copy.
func (s *Set) Clone() Set {
	c := *s
	c.names = maps.Clone(s.names)
	return c
}

// Has reports whether an object is unknown.
func (s *Set) Has(name types.NamespacedName) bool {
	_, known := s.names[name]
	return known || s.all != nil
}

// At reports whether the state of an object at a version is the one that was
// refused.
func (s *Set) At(name types.NamespacedName, version string) bool {
	refused, known := s.names[name]
	return known && refused != "" && refused == version
}

// In reports whether an object of the namespace is unknown, or of any namespace
// if it is empty.
func (s *Set) In(namespace string) bool {
	if s.all != nil || namespace == "" {
		return s.all != nil || len(s.names) > 0
	}
	for name := range s.names {
		if name.Namespace == namespace {
			return true
		}
	}
	return false
}

// All returns why any object may be unknown, or nil.
func (s *Set) All() error { return s.all }

// Last returns why the last object was refused.
func (s *Set) Last() error { return s.last }

// Len returns how many objects are known to be unknown.
func (s *Set) Len() int { return len(s.names) }
