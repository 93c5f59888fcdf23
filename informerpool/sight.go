// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import "sync/atomic"

// sight records which changes of a store reads may have seen. If an object came
// and went while a handler was busy, the handler receives its delete only if a
// read may have returned the object. It costs a read two loads, and a store if
// something has changed since the last read.
type sight struct {
	changes atomic.Uint64 // so far; grows under the lock of the store's owner
	looked  atomic.Uint64 // number of changes at the last read
}

// look records a read. The lock of the store's owner is held for reading.
func (s *sight) look() {
	if n := s.changes.Load(); s.looked.Load() != n {
		s.looked.Store(n)
	}
}

// next returns the moment of a change. The lock of the store's owner is held.
func (s *sight) next() moment { return moment{s, s.changes.Add(1)} }

// moment is when a store applied a change.
type moment struct {
	of *sight
	at uint64
}

// read reports whether the store has been read since.
func (m moment) read() bool { return m.of != nil && m.of.looked.Load() >= m.at }
