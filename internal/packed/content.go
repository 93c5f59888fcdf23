// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"hash/maphash"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// decoder builds the Go values that unstructured objects are made of, equal to
// those of k8s.io/apimachinery/pkg/util/json. It belongs to one goroutine at a
// time and is reused.
type decoder struct {
	reader
	arena   arena
	entries []entry // members of the objects being read, innermost last
	values  []any   // elements of the arrays being read
}

type entry struct {
	key   string
	value any
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

func newDecoder() *decoder { return decoders.Get().(*decoder) }

// close gives the decoder back, which then refers to nothing.
func (d *decoder) close() {
	d.reader, d.arena = reader{}, arena{}
	clear(d.entries)
	clear(d.values)
	d.entries, d.values = d.entries[:0], d.values[:0]
	decoders.Put(d)
}

// read reads the value of a text.
func (d *decoder) read(t *text) any {
	d.reader = t.reader()
	return d.value()
}

// value reads any value.
func (d *decoder) value() any {
	switch c := d.b[d.i]; c {
	case '{':
		d.enter()
		return d.object(nil)
	case '[':
		d.enter()
		return d.array()
	case '"':
		return d.string()
	case 'n', 't', 'f':
		d.scalar()
		if c == 'n' {
			return nil
		}
		return c == 't'
	}
	return number(d.scalar())
}

// object reads members to the end of the object, or of the bytes, into m; a nil
// m is made as large as it must be.
func (d *decoder) object(m map[string]any) map[string]any {
	base := len(d.entries)
	for d.more() {
		key := keys.string(d.key())
		d.entries = append(d.entries, entry{key, d.value()})
	}
	members := d.entries[base:]
	if m == nil {
		m = make(map[string]any, len(members))
	}
	for _, e := range members {
		m[e.key] = e.value
	}
	clear(members)
	d.entries = d.entries[:base]
	return m
}

func (d *decoder) array() []any {
	base := len(d.values)
	for d.more() {
		v := d.value()
		d.values = append(d.values, v)
	}
	elements := d.values[base:]
	a := make([]any, len(elements))
	copy(a, elements)
	clear(elements)
	d.values = d.values[:base]
	return a
}

func (d *decoder) string() string { return d.arena.string(d.text()) }

// number converts as util/json does: what has no fraction and fits is an int64.
func number(literal []byte) any {
	s := view(literal)
	if strings.IndexByte(s, '.') < 0 {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n
		}
	}
	// Validation refused what is out of range.
	f, _ := strconv.ParseFloat(s, 64)
	return f
}

const (
	arenaSize = 512
	// arenaMax is the longest string that shares memory with others.
	arenaMax = arenaSize / 8
)

// arena makes short strings, many to an allocation. A string that is kept keeps
// at most arenaSize bytes of others.
type arena struct{ chunk []byte }

func (a *arena) string(b []byte) string {
	if len(b) > arenaMax {
		return string(b)
	}
	if len(b) == 0 {
		return ""
	}
	if cap(a.chunk)-len(a.chunk) < len(b) {
		a.chunk = make([]byte, 0, arenaSize)
	}
	n := len(a.chunk)
	a.chunk = append(a.chunk, b...)
	// What has been appended is never written again.
	return unsafe.String(&a.chunk[n], len(b))
}

// keys holds the keys that objects have in common: field names and labels.
var keys keyTable

const (
	keySlots = 1 << 11
	keyMax   = 64
)

// keyTable is an interner for short strings; like that, it forgets.
type keyTable struct {
	slots [keySlots]atomic.Pointer[string]
}

func (t *keyTable) string(b []byte) string {
	if len(b) > keyMax {
		return string(b)
	}
	slot := &t.slots[maphash.Bytes(internSeed, b)%keySlots]
	if s := slot.Load(); s != nil && *s == string(b) {
		return *s
	}
	s := string(b)
	slot.Store(&s)
	return s
}
