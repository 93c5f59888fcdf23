// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package twins finds keys that name the same thing: two keys of clusters that
// lead to one API server.
package twins

import (
	"maps"
	"slices"
	"sync"
)

// Set has the identity of each key. Make one with [New]. All methods may be
// called from many goroutines, and none blocks.
type Set[K comparable] struct {
	compare func(a, b K) int

	mu struct {
		sync.Mutex // nothing else is locked under it

		identity map[K]string
		keys     map[string]map[K]struct{} // by identity
	}
}

// New returns an empty set. compare orders what it returns.
func New[K comparable](compare func(a, b K) int) *Set[K] {
	s := &Set[K]{compare: compare}
	s.mu.identity = map[K]string{}
	s.mu.keys = map[string]map[K]struct{}{}
	return s
}

// Put records the identity of a key; the empty one is none. If the key did not
// have it before, Put returns the other keys that have it.
func (s *Set[K]) Put(key K, identity string) []K {
	s.mu.Lock()
	defer s.mu.Unlock()

	before, known := s.mu.identity[key]
	if known && before == identity {
		return nil
	}
	s.dropLocked(key)
	if identity == "" {
		return nil
	}
	s.mu.identity[key] = identity
	if s.mu.keys[identity] == nil {
		s.mu.keys[identity] = map[K]struct{}{}
	}
	s.mu.keys[identity][key] = struct{}{}

	return s.othersLocked(key)
}

// Drop forgets a key.
func (s *Set[K]) Drop(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(key)
}

func (s *Set[K]) dropLocked(key K) {
	identity := s.mu.identity[key]
	delete(s.mu.identity, key)
	delete(s.mu.keys[identity], key)
	if len(s.mu.keys[identity]) == 0 {
		delete(s.mu.keys, identity)
	}
}

// Others returns the other keys with the identity of a key, in order.
func (s *Set[K]) Others(key K) []K {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.othersLocked(key)
}

func (s *Set[K]) othersLocked(key K) []K {
	all := s.mu.keys[s.mu.identity[key]]
	if len(all) < 2 {
		return nil
	}
	others := slices.SortedFunc(maps.Keys(all), s.compare)
	return slices.DeleteFunc(others, func(k K) bool { return k == key })
}
