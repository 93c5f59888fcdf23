// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"hash/maphash"
	"unsafe"
)

const (
	minSlots = 1 << 4
	maxSlots = 1 << 13
	// internMax is the longest text worth a slot: longer ones are rarely
	// shared.
	internMax = 1 << 10
)

var internSeed = maphash.MakeSeed()

// Shared holds the texts that the objects of one store have in common, and what
// they take. It is a table without chains in which the newer text wins: a
// complete one would cost more than most label sets, and this finds what
// matters, since replicas are listed side by side, and an update follows its
// object.
//
// It belongs to one store, so that its account is exact: a text counts from the
// first stored object that has it to the last, and is never kept for its own
// sake. It is not safe for concurrent use.
type Shared struct {
	slots []*text
	texts int   // that objects have
	bytes int64 // what those take
}

// Bytes returns what the texts of the stored objects take.
func (s *Shared) Bytes() int64 { return s.bytes + int64(len(s.slots))*8 }

// text returns the text of b that stored objects have, or a new one; nil for no
// bytes.
func (s *Shared) text(b []byte) *text {
	if len(b) == 0 {
		return nil
	}
	if s != nil && len(b) <= internMax && len(s.slots) > 0 {
		if t := s.slots[s.slot(maphash.Bytes(internSeed, b))]; t != nil && t.json == string(b) {
			return t
		}
	}
	return &text{json: string(b)}
}

func (s *Shared) slot(hash uint64) int { return int(hash % uint64(len(s.slots))) }

// Retain counts an object that is stored from now on.
func (s *Shared) Retain(o *Object) {
	s.retain(o.labels)
	s.retain(o.owners)
}

// Release counts an object that is stored no more.
func (s *Shared) Release(o *Object) {
	s.release(o.labels)
	s.release(o.owners)
}

func (s *Shared) retain(t *text) {
	if t == nil {
		return
	}
	if t.refs++; t.refs > 1 {
		return
	}
	s.texts++
	s.bytes += t.size()
	if len(t.json) > internMax {
		return
	}
	if s.texts > 2*len(s.slots) && len(s.slots) < maxSlots {
		s.grow()
	}
	s.slots[s.slot(maphash.String(internSeed, t.json))] = t
}

func (s *Shared) release(t *text) {
	if t == nil {
		return
	}
	if t.refs--; t.refs > 0 {
		return
	}
	s.texts--
	s.bytes -= t.size()
	if len(t.json) > internMax || len(s.slots) == 0 {
		return
	}
	if slot := s.slot(maphash.String(internSeed, t.json)); s.slots[slot] == t {
		s.slots[slot] = nil
	}
}

func (s *Shared) grow() {
	old := s.slots
	s.slots = make([]*text, max(2*len(old), minSlots))
	for _, t := range old {
		if t != nil {
			s.slots[s.slot(maphash.String(internSeed, t.json))] = t
		}
	}
}

// textSize is what the header of a text takes.
const textSize = int(unsafe.Sizeof(text{}))

// size is what a text takes, 0 for none.
func (t *text) size() int64 {
	if t == nil {
		return 0
	}
	return int64(heapSize(textSize) + heapSize(len(t.json)))
}
