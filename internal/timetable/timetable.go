// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package timetable orders values by the times at which they are due ([Table]),
// and calls functions at given times ([Timers]). It starts no goroutine.
//
// # Tests
//
// The leading test is TestEarliestIsFirstWhateverIsSetAndRemoved.
package timetable

import (
	"container/heap"
	"time"
)

// Table holds entries ordered by time, earliest first. The zero value is an
// empty table. It is not safe for concurrent use.
type Table[T any] struct {
	entries entries[T]
}

// Entry is a value with the time at which it is due. It is in at most one
// table. The zero value and a removed entry are in none.
type Entry[T any] struct {
	Value T

	at    time.Time
	place int // position in the heap, counted from one; zero if in no table
}

// At returns the time at which the entry is due, or last was.
func (e *Entry[T]) At() time.Time { return e.at }

// Listed reports whether the entry is in a table.
func (e *Entry[T]) Listed() bool { return e.place > 0 }

// Set sets the time at which e is due. It replaces an earlier setting.
func (t *Table[T]) Set(e *Entry[T], at time.Time) {
	e.at = at
	if e.Listed() {
		heap.Fix(&t.entries, e.place-1)
		return
	}
	heap.Push(&t.entries, e)
}

// Remove removes e. It does nothing if e is in no table.
func (t *Table[T]) Remove(e *Entry[T]) {
	if e.Listed() {
		heap.Remove(&t.entries, e.place-1)
	}
}

// First returns the entry that is due first, or nil if the table is empty.
func (t *Table[T]) First() *Entry[T] {
	if len(t.entries) == 0 {
		return nil
	}
	return t.entries[0]
}

// PopDue removes and returns the entry that is due first, or returns nil if
// none is due yet.
func (t *Table[T]) PopDue(now time.Time) *Entry[T] {
	first := t.First()
	if first == nil || first.at.After(now) {
		return nil
	}
	t.Remove(first)
	return first
}

// Len returns the number of entries.
func (t *Table[T]) Len() int { return len(t.entries) }

// entries is a heap.
type entries[T any] []*Entry[T]

// Len implements heap.Interface.
func (h entries[T]) Len() int { return len(h) }

// Less implements heap.Interface.
func (h entries[T]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

// Swap implements heap.Interface.
func (h entries[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

// Push implements heap.Interface.
func (h *entries[T]) Push(x any) {
	e := x.(*Entry[T])
	e.place = len(*h) + 1
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *entries[T]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil // so that the removed entry is not retained
	*h = (*h)[:last]
	e.place = 0

	return e
}
