// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import "sync/atomic"

// sight says which changes of a store reads may have seen, so that a handler
// hears of the delete of an object that came and went while it was busy, if a
// read may have shown it. It costs reads two loads, and a store where something
// has changed since the last one.
type sight struct {
	changes atomic.Uint64 // so far; grows under the lock of the store's owner
	looked  atomic.Uint64 // how many there were when a read looked last
}

// look notes a read. The lock of the store's owner is held for reading.
func (s *sight) look() {
	if n := s.changes.Load(); s.looked.Load() != n {
		s.looked.Store(n)
	}
}

// next returns the moment of a change. The lock of the store's owner is held.
func (s *sight) next() moment { return moment{s, s.changes.Add(1)} }

// moment is when a store took a change over.
type moment struct {
	of *sight
	at uint64
}

// read reports whether a read has looked at the store since.
func (m moment) read() bool { return m.of != nil && m.of.looked.Load() >= m.at }
