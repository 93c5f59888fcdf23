// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package few has a map that is small while it has few entries. Go's own takes
// room for eight as soon as it has one: 640 bytes, if a key is four strings. A
// fleet has some ten such maps for each informer, most of them with one entry.
//
// # Tests
//
// The leading test is TestMapAgreesWithGos. TestFewEntriesTakeLittle covers
// memory.
package few

import (
	"iter"
	"maps"
	"slices"
)

// limit is how many entries are kept in a slice.
const limit = 8

// Map maps keys to values. The zero value is an empty map. A Map must not be
// copied, except to be stored in place of the original. Like Go's maps, it may
// be read by several goroutines at once, unless it is changed meanwhile.
type Map[K comparable, V any] struct {
	few  []entry[K, V]
	many map[K]V // nil until there are more than limit, and then instead of few
}

type entry[K comparable, V any] struct {
	value V // before the key: at the end, a value without a size would take some
	key   K
}

// Set is a set of keys.
type Set[K comparable] = Map[K, struct{}]

// Sets are sets by what their members have in common. None is empty.
type Sets[K, M comparable] = Map[K, Set[M]]

// Add adds a member to the set of a key.
func Add[K, M comparable](to *Sets[K, M], key K, member M) {
	set := to.Get(key)
	set.Set(member, struct{}{})
	to.Set(key, set)
}

// Remove removes a member from the set of a key.
func Remove[K, M comparable](from *Sets[K, M], key K, member M) {
	set := from.Get(key)
	if set.Delete(member); set.Len() > 0 {
		from.Set(key, set)
	} else {
		from.Delete(key)
	}
}

// Count adds to the number of a key, which is deleted if nothing is left.
func Count[K comparable](of *Map[K, int], key K, more int) {
	if n := of.Get(key) + more; n != 0 {
		of.Set(key, n)
	} else {
		of.Delete(key)
	}
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int { return len(m.few) + len(m.many) }

// Get returns the value of a key, or the zero value.
func (m *Map[K, V]) Get(key K) V {
	v, _ := m.Lookup(key)
	return v
}

// Lookup returns the value of a key, and whether there is one.
func (m *Map[K, V]) Lookup(key K) (v V, ok bool) {
	if m.many != nil {
		v, ok = m.many[key]
		return v, ok
	}
	if i := m.index(key); i >= 0 {
		return m.few[i].value, true
	}
	return v, false
}

func (m *Map[K, V]) index(key K) int {
	for i := range m.few {
		if m.few[i].key == key {
			return i
		}
	}
	return -1
}

// Set sets the value of a key.
func (m *Map[K, V]) Set(key K, v V) {
	switch i := m.index(key); {
	case m.many != nil:
		m.many[key] = v
	case i >= 0:
		m.few[i].value = v
	case len(m.few) < limit:
		m.few = append(m.few, entry[K, V]{v, key})
	default:
		m.many = maps.Collect(m.All())
		m.many[key] = v
		m.few = nil
	}
}

// Delete removes a key. An empty map holds no memory.
func (m *Map[K, V]) Delete(key K) {
	if delete(m.many, key); m.many == nil {
		// A new slice, so that All goes on over the old one.
		m.few = slices.DeleteFunc(slices.Clone(m.few), func(e entry[K, V]) bool { return e.key == key })
	}
	if m.Len() == 0 {
		*m = Map[K, V]{}
	}
}

// All yields the entries, in no order. Those that are deleted meanwhile may
// still be yielded, those that are set may not.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	if m.many != nil {
		return maps.All(m.many)
	}
	few := m.few
	return func(yield func(K, V) bool) {
		for i := range few {
			if !yield(few[i].key, few[i].value) {
				return
			}
		}
	}
}

// Keys yields the keys, as All does.
func (m *Map[K, V]) Keys() iter.Seq[K] {
	return func(yield func(K) bool) {
		for key := range m.All() {
			if !yield(key) {
				return
			}
		}
	}
}

// Values yields the values, as All does.
func (m *Map[K, V]) Values() iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range m.All() {
			if !yield(v) {
				return
			}
		}
	}
}
