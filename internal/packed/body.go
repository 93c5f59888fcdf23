// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"github.com/klauspost/compress/s2"
)

// Encodings of a body, given by its first byte. A new encoding of the part
// behind the metadata, such as the kind's protobuf message, would need a new
// code here and a new branch in open and Into; no other code looks inside a
// body.
//
// After the code come the generation of the dictionary, if there is one, the
// length of the metadata members as a varint and then, possibly compressed,
// these members and the other members of the object, both as JSON without
// braces.
const (
	codecJSON   = 'j' // uncompressed
	codecS2     = 's' // an s2 block
	codecS2Dict = 'd' // an s2 block that refers to the kind's dictionary
)

// scratchMax is the capacity of the largest scratch memory that is reused.
const scratchMax = 1 << 18

// scratch is reusable memory for packing or unpacking one object.
type scratch struct {
	plain []byte // metadata members and other members, uncompressed
	meta  int    // how many bytes of plain are metadata members
	other []byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func newScratch() *scratch { return scratches.Get().(*scratch) }

// close releases the scratch memory. Its slices become invalid.
func (s *scratch) close() {
	if cap(s.plain)+cap(s.other) > scratchMax {
		return
	}
	s.plain, s.other, s.meta = s.plain[:0], s.other[:0], 0
	scratches.Put(s)
}

// headMax is the maximum length of a body's head: code, generation and varint.
const headMax = 2 + binary.MaxVarintLen32

// seal encodes plain. The result has no spare capacity.
func (s *scratch) seal(d *dictionary) string {
	if need := headMax + s2.MaxEncodedLen(len(s.plain)); cap(s.other) < need {
		s.other = make([]byte, need)
	}
	room := s.other[headMax:headMax]
	head := append(make([]byte, 0, headMax), codecS2)
	var block []byte
	if d != nil && len(s.plain) <= maxBlock {
		head = append(head[:0], codecS2Dict, d.gen)
		block = encodeBlock(room, s.plain, d)
	} else {
		block = s2.EncodeBetter(room[:cap(room)], s.plain)
	}

	if len(block) > len(s.plain)*9/10 {
		head = append(head[:0], codecJSON)
		block = append(room, s.plain...)
	}
	head = binary.AppendUvarint(head, uint64(s.meta))
	from := headMax - len(head)
	copy(s.other[from:headMax], head)

	return string(s.other[from : headMax+len(block)])
}

// open decodes the object's body into scratch memory, which the caller must
// close.
func (o *Object) open() (*scratch, error) {
	s := newScratch()
	if err := s.unseal(o.body, &o.kind.dict); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *scratch) unseal(body string, dicts *trainer) error {
	b := unsafe.Slice(unsafe.StringData(body), len(body)) // never written to
	if len(b) < 2 {
		return ErrCorrupt
	}
	codec, decode := b[0], s2.Decode
	b = b[1:]
	if codec == codecS2Dict {
		d := dicts.generation(b[0])
		if d == nil {
			return ErrCorrupt
		}
		decode = d.decoder.Decode
		b = b[1:]
	}

	meta, n := binary.Uvarint(b)
	if n <= 0 {
		return ErrCorrupt
	}
	var err error
	switch b = b[n:]; codec {
	case codecJSON:
		s.plain = append(s.plain[:0], b...)
	case codecS2, codecS2Dict:
		s.plain, err = decode(s.plain[:cap(s.plain)], b)
	default:
		err = ErrCorrupt
	}

	if err != nil || meta > uint64(len(s.plain)) {
		return ErrCorrupt
	}
	s.meta = int(meta)

	return nil
}
