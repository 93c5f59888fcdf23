// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
)

// DictionaryID is a digest of a dictionary.
type DictionaryID [16]byte

// MarshalText implements encoding.TextMarshaler.
func (i DictionaryID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, i[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *DictionaryID) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(i)) {
		return ErrStored
	}
	_, err := hex.Decode(i[:], text)
	return err
}

// Dictionary is a dictionary that bodies refer to.
type Dictionary struct{ d *dictionary }

// DictionaryOf returns the dictionary that the object's body refers to, or nil
// if it refers to none. The same dictionary yields the same pointer.
func DictionaryOf(o *Object) *Dictionary {
	if len(o.body) < 2 || !isDense(o.body[0]) {
		return nil
	}
	if d := o.kind.dict.in(o.body[1]); d != nil {
		return d.public
	}
	return nil
}

// ID returns the digest of the dictionary.
func (d *Dictionary) ID() DictionaryID { return d.d.id }

// AppendStored appends the dictionary for another process, whose Shelf reads
// it.
func (d *Dictionary) AppendStored(dst []byte) []byte { return d.d.appendStored(dst) }

// StoredDictionary is a dictionary that an earlier process has stored.
type StoredDictionary struct {
	// ID is its digest. Zero means that no object refers to it.
	ID DictionaryID
	// Read returns what AppendStored wrote.
	Read func() ([]byte, error)
}

// Shelf returns what makes objects of the kind that an earlier process has
// stored, with its dictionaries. The kind keeps those it does not have yet: the
// most recent of them serves to pack further objects, unless the kind has one
// of its own by then.
func (k *Kind) Shelf(dictionaries []StoredDictionary) (*Shelf, error) {
	s := &Shelf{kind: k}
	for _, stored := range dictionaries {
		slot := byte(slots)
		if stored.ID != (DictionaryID{}) {
			var err error
			if slot, err = k.dict.adopt(stored); err != nil {
				return nil, err
			}
		}
		s.slots = append(s.slots, slot)
	}
	k.dict.useAdopted()

	return s, nil
}

// adopt returns the slot of a stored dictionary, which it takes up if
// necessary.
func (t *trainer) adopt(stored StoredDictionary) (slot byte, err error) {
	if slot, ok := t.slotOf(stored.ID); ok {
		return slot, nil
	}
	text, err := stored.Read()
	if err != nil {
		return 0, err
	}
	d := readDictionary(text)
	if d == nil || d.id != stored.ID {
		return 0, ErrStored
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if slot, ok := t.slotOf(stored.ID); ok { // meanwhile
		return slot, nil
	}
	if !t.placeLocked(d) {
		return 0, fmt.Errorf("more than %d dictionaries of a kind", slots)
	}

	return d.slot, nil
}

// slotOf returns the slot of a dictionary.
func (t *trainer) slotOf(id DictionaryID) (slot byte, ok bool) {
	for i := range t.all {
		if d := t.all[i].Load(); d != nil && d.id == id {
			return d.slot, true
		}
	}
	return 0, false
}

// useAdopted makes the most recent dictionary the one for packing, unless there
// is one of this process.
func (t *trainer) useAdopted() {
	if t.newest.Load() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var best *dictionary
	for i := range t.all {
		if d := t.all[i].Load(); d != nil && (best == nil || d.gen >= best.gen) {
			best = d
		}
	}
	if best == nil || t.newest.Load() != nil {
		return
	}
	t.newest.Store(best)
	t.gen, t.seen = max(t.gen, int(best.gen)+1), nil
	t.done.Store(t.gen >= generations)
}

// placeLocked puts a dictionary into a free slot, if there is one.
func (t *trainer) placeLocked(d *dictionary) bool {
	for i := range t.all {
		if t.all[i].Load() == nil {
			d.slot = byte(i) //nolint:gosec // there are few
			t.all[i].Store(d)
			return true
		}
	}
	return false
}

// identify computes the digest.
func (d *dictionary) identify() {
	sum := sha256.Sum256(d.appendStored(nil))
	d.id = DictionaryID(sum[:len(d.id)])
	d.public = &Dictionary{d}
}

// appendStored appends the content of the dictionary, and the sizes of its
// codes, which determine them.
func (d *dictionary) appendStored(dst []byte) []byte {
	dst = append(dst, d.gen)
	dst = binary.AppendUvarint(dst, uint64(d.start)) //nolint:gosec // positive
	dst = binary.AppendUvarint(dst, uint64(len(d.content)))
	dst = append(dst, d.content...)
	for _, sizes := range d.codes.all() {
		dst = append(dst, sizes...)
	}
	return dst
}

// readDictionary returns the dictionary that appendStored wrote, for reading
// only, or nil if it is none.
func readDictionary(stored []byte) *dictionary {
	p := storedParser{b: stored}
	var gen byte
	if b := p.take(1); b != nil {
		gen = b[0]
	}
	start := int(p.uvarint(dictMax))      //nolint:gosec // bounded
	size := int(p.uvarint(math.MaxInt32)) //nolint:gosec // bounded
	if p.failed || gen >= generations || size > dictMax || size < margin || start > size {
		return nil
	}
	d := &dictionary{
		gen:     gen,
		start:   start,
		content: append([]byte(nil), p.take(size)...),
		codes:   new(codes),
		checks:  new(checks),
	}
	for _, sizes := range d.codes.all() {
		copy(sizes, p.take(len(sizes)))
		if !isCode(sizes) {
			return nil
		}
	}
	if p.failed || len(p.b) > 0 {
		return nil
	}
	d.identify()

	return d
}

// isCode reports whether there is a code whose words have these sizes.
func isCode(sizes []uint8) bool {
	room := 0
	for _, size := range sizes {
		if size == 0 || size > codeMax {
			return false
		}
		room += 1 << (codeMax - size)
	}
	return room == 1<<codeMax
}
