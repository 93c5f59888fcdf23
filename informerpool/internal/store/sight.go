// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package store

import "sync/atomic"

// Sight records which changes of a store reads may have seen. If an object came
// and went while a handler was busy, the handler receives its delete only if a
// read may have returned the object. It costs a read two loads, and a store if
// something has changed since the last read.
type Sight struct {
	changes atomic.Uint64 // so far; grows under the lock of the store's owner
	looked  atomic.Uint64 // number of changes at the last read
}

// Look records a read. The lock of the store's owner is held for reading.
func (s *Sight) Look() {
	if n := s.changes.Load(); s.looked.Load() != n {
		s.looked.Store(n)
	}
}

// Next returns the moment of a change. The lock of the store's owner is held.
func (s *Sight) Next() Moment { return Moment{s, s.changes.Add(1)} }

// Moment is when a store applied a change.
type Moment struct {
	of *Sight
	at uint64
}

// Read reports whether the store has been read since.
func (m Moment) Read() bool { return m.of != nil && m.of.looked.Load() >= m.at }
