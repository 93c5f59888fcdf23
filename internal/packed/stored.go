// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
	"unique"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StoredFormat is the format of stored objects and dictionaries. It changes
// whenever an encoding does, of a body as well.
const StoredFormat = 3

// ErrStored indicates that a stored object or dictionary cannot be read.
var ErrStored = errors.New("stored object is damaged")

// Flags of a stored object, beside those of an object.
const (
	storedUID      = 1 << (iota + 10) // a UID that is no UUID
	storedVersion                     // a version that is no number
	storedCreated                     // a time that the header cannot represent
	storedDeleted                     // a deletionTimestamp
	storedRevision                    // a generation that the header cannot represent
)

// AppendStored appends the object as it is in memory, for another process, whose
// Shelf reads it. The body is neither decoded nor copied elsewhere. dictionary
// is the number of DictionaryOf(o) among those that the Shelf is given.
func AppendStored(dst []byte, o *Object, dictionary byte) []byte {
	var r rare
	if o.rare != nil {
		r = *o.rare
	}
	flags := o.flags
	for _, f := range []struct {
		flag    uint16
		present bool
	}{
		{storedUID, r.uid != ""}, {storedVersion, r.version != ""}, {storedCreated, !r.created.IsZero()},
		{storedDeleted, !r.deleted.IsZero()}, {storedRevision, r.generation != 0},
	} {
		if f.present {
			flags |= f.flag
		}
	}

	dst = binary.LittleEndian.AppendUint16(dst, flags)
	dst = appendText(dst, o.GetNamespace())
	dst = appendText(dst, NameOf(o))
	if flags&hasUID != 0 {
		dst = append(dst, o.uid[:]...)
	}
	if flags&hasVersion != 0 {
		dst = binary.AppendUvarint(dst, o.version)
	}
	if flags&hasCreated != 0 {
		dst = binary.LittleEndian.AppendUint32(dst, o.created)
	}
	dst = binary.AppendUvarint(dst, uint64(o.generation))
	if flags&storedUID != 0 {
		dst = appendText(dst, r.uid)
	}
	if flags&storedVersion != 0 {
		dst = appendText(dst, r.version)
	}
	if flags&storedCreated != 0 {
		dst = appendTime(dst, r.created)
	}
	if flags&storedDeleted != 0 {
		dst = appendTime(dst, r.deleted)
	}
	if flags&storedRevision != 0 {
		dst = binary.AppendVarint(dst, r.generation)
	}
	body := len(dst)
	dst = append(dst, o.body...)
	if len(o.body) > 1 && isDense(o.body[0]) {
		dst[body+1] = dictionary
	}

	return dst
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendTime(dst []byte, t metav1.Time) []byte {
	return binary.AppendUvarint(binary.AppendVarint(dst, t.Unix()), uint64(t.Nanosecond())) //nolint:gosec // positive
}

// Shelf makes objects of one kind from what an earlier process has stored.
type Shelf struct {
	kind  *Kind
	slots []byte // by the number of the dictionary in that process
}

// Object returns the object that AppendStored has stored. It copies what it
// keeps. What is stored must be authentic: only its structure is checked, and
// nothing is decoded but the labels.
func (s *Shelf) Object(stored []byte) (*Object, error) {
	p := storedParser{b: stored}
	flags := p.uint16()
	namespace := p.text()
	o := newObject(s.kind, view(p.text()))
	o.namespace = unique.Make(view(namespace))
	o.flags = flags & (storedUID - 1)
	if flags&hasUID != 0 {
		copy(o.uid[:], p.take(len(o.uid)))
	}
	if flags&hasVersion != 0 {
		o.version = p.uvarint(math.MaxUint64)
	}
	if flags&hasCreated != 0 {
		o.created = p.uint32()
	}
	o.generation = uint32(p.uvarint(math.MaxUint32)) //nolint:gosec // bounded
	if flags&storedUID != 0 {
		o.more().uid = string(p.text())
	}
	if flags&storedVersion != 0 {
		o.more().version = string(p.text())
	}
	if flags&storedCreated != 0 {
		o.more().created = p.time()
	}
	if flags&storedDeleted != 0 {
		o.more().deleted = p.time()
	}
	if flags&storedRevision != 0 {
		o.more().generation = p.varint()
	}
	if p.failed || len(p.b) < 2 || NameOf(o.Object) == "" {
		return nil, ErrStored
	}

	body := append(make([]byte, 0, len(p.b)), p.b...)
	if isDense(body[0]) {
		if int(body[1]) >= len(s.slots) || s.slots[body[1]] >= slots {
			return nil, ErrStored
		}
		body[1] = s.slots[body[1]]
	}
	o.body = unsafe.String(unsafe.SliceData(body), len(body)) // never written to again
	if o.flags&hasLabels != 0 {
		scratch := newScratch()
		defer scratch.close()
		if err := scratch.unseal(o.body, &s.kind.dict, toTexts); err != nil {
			return nil, ErrStored
		}
		t := text{view(scratch.labels())}
		o.labels = t.digest()
	}

	return o.Object, nil
}

// storedParser reads what AppendStored wrote. After a failure it returns zeros.
type storedParser struct {
	b      []byte
	failed bool
}

func (p *storedParser) take(n int) []byte {
	if n > len(p.b) {
		p.b, p.failed = nil, true
		return nil
	}
	taken := p.b[:n]
	p.b = p.b[n:]
	return taken
}

func (p *storedParser) uvarint(limit uint64) uint64 {
	x, n := binary.Uvarint(p.b)
	if n <= 0 || x > limit {
		p.b, p.failed = nil, true
		return 0
	}
	p.b = p.b[n:]
	return x
}

func (p *storedParser) varint() int64 {
	x, n := binary.Varint(p.b)
	if n <= 0 {
		p.b, p.failed = nil, true
		return 0
	}
	p.b = p.b[n:]
	return x
}

func (p *storedParser) text() []byte {
	return p.take(int(p.uvarint(math.MaxInt32))) //nolint:gosec // bounded
}

func (p *storedParser) uint16() uint16 {
	if b := p.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (p *storedParser) uint32() uint32 {
	if b := p.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (p *storedParser) time() metav1.Time {
	seconds := p.varint()
	return metav1.Time{Time: time.Unix(seconds, int64(p.uvarint(uint64(time.Second))))} //nolint:gosec // bounded
}
