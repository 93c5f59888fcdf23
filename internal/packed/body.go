// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"unsafe"

	"github.com/klauspost/compress/s2"
)

// Encodings of a body, given by its first byte. A new encoding of the last
// part, such as the kind's protobuf message, would need a new code here and a
// new branch in open and Into; no other code looks inside a body.
//
// After the code come the slot of the dictionary, if there is one; as
// varints the lengths of the first three parts, and for a dense block that of
// all parts; and then, possibly compressed, the parts: labels and owner
// references as received, and without braces the other members of metadata and
// of the object. A dense block can be decoded up to the end of any part, so
// that what is read alone comes first. The lengths with codecNested are those
// without nested text.
const (
	codecJSON   = 'j' // uncompressed
	codecS2     = 's' // an s2 block
	codecDense  = 'd' // a dense block, which refers to the kind's dictionary
	codecNested = 'n' // the same, of parts whose nested text is replaced
)

// isDense reports whether a body with this code refers to a dictionary. Its
// second byte is the slot then.
func isDense(code byte) bool { return code == codecDense || code == codecNested }

// scratchMax is the capacity of the largest scratch memory that is reused.
const scratchMax = 1 << 18

// scratch is reusable memory for packing or unpacking one object.
type scratch struct {
	plain []byte // the parts of a body, uncompressed
	parts
	other []byte
	text  text // to look at labels without an allocation
}

// parts are the lengths of the parts of a body, but for the last one.
type parts struct{ labelsLen, ownersLen, metaLen int }

// texts returns the length of labels and owner references.
func (p *parts) texts() int { return p.labelsLen + p.ownersLen }

func (s *scratch) labels() []byte { return s.plain[:s.labelsLen] }

func (s *scratch) owners() []byte { return s.plain[s.labelsLen:s.texts()] }

func (s *scratch) metadata() []byte { return s.plain[s.texts() : s.texts()+s.metaLen] }

// rest returns the members of the object except metadata.
func (s *scratch) rest() []byte { return s.plain[s.texts()+s.metaLen:] }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func newScratch() *scratch { return scratches.Get().(*scratch) }

// close releases the scratch memory. Its slices become invalid.
func (s *scratch) close() {
	if cap(s.plain)+cap(s.other) > scratchMax {
		return
	}
	s.plain, s.other, s.parts, s.text = s.plain[:0], s.other[:0], parts{}, text{}
	scratches.Put(s)
}

// headMax is the maximum length of a body's head: code, slot and varints.
const headMax = 2 + 4*binary.MaxVarintLen32

// seal encodes plain. The result has no spare capacity.
func (s *scratch) seal(d *dictionary) string {
	if need := headMax + s2.MaxEncodedLen(len(s.plain)); cap(s.other) < need {
		s.other = make([]byte, need)
	}
	room := s.other[headMax:headMax]
	src, code := s, byte(codecDense)
	if d != nil {
		if u := s.unnest(); u != nil {
			defer u.close()
			src, code = u, codecNested
		}
	}
	dense := d != nil && len(src.plain) <= maxBlock
	var block []byte
	if dense {
		if block = d.encode(room, src.plain); !d.passes(src.plain, block) {
			dense = false
		}
	}
	if !dense {
		block = s2.EncodeBetter(room[:cap(room)], s.plain)
	}

	head := make([]byte, 0, headMax)
	switch {
	case len(block) > len(s.plain)*9/10:
		src, dense = s, false
		head = append(head, codecJSON)
		block = append(room, s.plain...)
	case dense:
		head = append(head, code, d.slot)
	default:
		src = s
		head = append(head, codecS2)
	}
	for _, n := range [...]int{src.labelsLen, src.ownersLen, src.metaLen} {
		head = binary.AppendUvarint(head, uint64(n)) //nolint:gosec // a length
	}
	if dense {
		head = binary.AppendUvarint(head, uint64(len(src.plain)))
	}

	// What is kept is shorter than the room, so that it was written there.
	from := headMax - len(head)
	copy(s.other[from:headMax], head)

	return string(s.other[from : headMax+len(block)])
}

// extent is how much of a body is decoded. The other parts are empty then.
type extent uint8

const (
	toTexts    extent = iota // labels and owner references
	toMetadata               // and the rest of the metadata
	toEnd
)

// opened is an object whose body is in scratch memory.
type opened struct {
	*Object
	s *scratch
}

// open decodes the object's body into scratch memory, which the caller must
// close.
func (o *Object) open(to extent) (opened, error) {
	s := newScratch()
	if err := s.unseal(o.body, &o.kind.dict, to); err != nil {
		s.close()
		return opened{}, err
	}
	return opened{o, s}, nil
}

// close releases the scratch memory.
func (o opened) close() { o.s.close() }

// unseal decodes a body up to an extent.
func (s *scratch) unseal(body string, dicts *trainer, to extent) error {
	b := unsafe.Slice(unsafe.StringData(body), len(body)) // never written to
	h, b, ok := readHead(b)
	if !ok {
		return ErrCorrupt
	}
	if to == toTexts {
		h.metaLen = 0
	}
	end := h.texts() + h.metaLen
	var err error
	switch h.codec {
	case codecJSON:
		s.plain = append(s.plain[:0], b...)
	case codecS2:
		s.plain, err = s2.Decode(s.plain[:cap(s.plain)], b)
	case codecDense, codecNested:
		d, enough, into := dicts.in(h.slot), h.length, &s.plain
		if to != toEnd {
			enough = end
		}
		if h.codec == codecNested {
			into = &s.other
		}
		*into = slices.Grow((*into)[:0], h.length)[:h.length]
		if d == nil || enough > h.length || !d.decode(*into, b, enough) {
			return ErrCorrupt
		}
		*into = (*into)[:enough]
		if h.codec == codecNested {
			s.parts = h.parts
			if !s.nest(s.other) {
				return ErrCorrupt
			}
			h.parts = s.parts
			end = h.texts() + h.metaLen
		}
	default:
		return ErrCorrupt
	}

	if err != nil || end > len(s.plain) {
		return ErrCorrupt
	}
	if to != toEnd {
		s.plain = s.plain[:end]
	}
	s.parts = h.parts

	return nil
}

// head is what precedes the parts of a body.
type head struct {
	codec, slot byte
	parts
	length int // of all parts; 0 if it is not given
}

// readHead returns a body's head and what follows it.
func readHead(b []byte) (h head, rest []byte, ok bool) {
	if len(b) < 2 {
		return h, nil, false
	}
	h.codec, b = b[0], b[1:]
	numbers := []*int{&h.labelsLen, &h.ownersLen, &h.metaLen, &h.length}[:3]
	if isDense(h.codec) {
		h.slot, b = b[0], b[1:]
		numbers = numbers[:4]
	}
	for _, into := range numbers {
		x, n := binary.Uvarint(b)
		if n <= 0 || x > math.MaxInt32 {
			return h, nil, false
		}
		*into, b = int(x), b[n:] //nolint:gosec // checked
	}

	return h, b, h.length <= maxBlock
}
