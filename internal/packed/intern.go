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
	// internMax is the maximum length of a text that gets a slot: longer texts
	// are rarely shared.
	internMax = 1 << 10
)

var internSeed = maphash.MakeSeed()

// Shared holds the texts that the objects of one store have in common, and
// counts their bytes. It is a hash table without chains, in which a newer text
// displaces an older one. A complete table would cost more than most label
// sets, and this one finds the duplicates that matter, since replicas are
// listed side by side, and an update follows its object.
//
// A Shared belongs to one store, so that its count is exact: a text counts from
// the first stored object that has it to the last, and is never kept for its
// own sake. A Shared is not safe for concurrent use.
type Shared struct {
	slots []*text
	texts int   // texts of stored objects
	bytes int64 // the bytes they take
}

// Bytes returns how many bytes the texts of the stored objects take.
func (s *Shared) Bytes() int64 { return s.bytes + int64(len(s.slots))*8 }

// text returns the stored objects' text with the bytes b, or a new one; nil if
// b is empty.
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

// Retain starts counting an object, which has been stored.
func (s *Shared) Retain(o *Object) {
	s.retain(o.labels)
	s.retain(o.owners)
}

// Release stops counting an object, which is no longer stored.
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

// textSize is the size of a text's header.
const textSize = int(unsafe.Sizeof(text{}))

// size returns how many bytes a text takes, 0 for nil.
func (t *text) size() int64 {
	if t == nil {
		return 0
	}
	return int64(heapSize(textSize) + heapSize(len(t.json)))
}
