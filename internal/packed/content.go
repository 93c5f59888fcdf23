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

// decoder builds the Go values of unstructured objects. They equal those of
// k8s.io/apimachinery/pkg/util/json. A decoder is reused, and used by one
// goroutine at a time.
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

// close resets the decoder, so that it refers to nothing, and returns it to the
// pool.
func (d *decoder) close() {
	d.begin(nil)
	if cap(d.space) > scratchMax {
		d.space = nil
	}
	d.arena = arena{}
	clear(d.entries)
	clear(d.values)
	d.entries, d.values = d.entries[:0], d.values[:0]
	decoders.Put(d)
}

// read reads a value.
func (d *decoder) read(b []byte) any {
	d.begin(b)
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
		return d.arena.value(d.text())
	case 'n', 't', 'f':
		d.scalar()
		if c == 'n' {
			return nil
		}
		return c == 't'
	}

	return number(d.scalar())
}

// object reads members into m, up to the end of the object or of the bytes. If
// m is nil, object makes a map of the right size.
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

// number converts a number as util/json does: without a fraction, and if it
// fits, it becomes an int64.
func number(literal []byte) any {
	s := view(literal)
	if strings.IndexByte(s, '.') < 0 {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n
		}
	}
	// Validation refused numbers that are out of range.
	f, _ := strconv.ParseFloat(s, 64)
	return f
}

const (
	arenaSize = 512
	// arenaMax is the maximum length of a string that shares memory with
	// others.
	arenaMax = arenaSize / 8
	// arenaValues is how many values share memory.
	arenaValues = 16
)

// arena allocates short strings, many per allocation. A retained string retains
// at most arenaSize bytes of others, and a retained value arenaValues strings.
type arena struct {
	chunk  []byte
	values []string
}

// value returns a string as the value of an interface.
func (a *arena) value(b []byte) any {
	if len(b) > arenaMax {
		return string(b)
	}
	if len(a.values) == cap(a.values) {
		a.values = make([]string, 0, arenaValues)
	}
	a.values = append(a.values, a.string(b))

	return valueAt(&a.values[len(a.values)-1])
}

// valueAt returns the string at s, which never changes, as the value of an
// interface. A conversion would allocate a copy.
func valueAt(s *string) any {
	var v any = ""
	(*struct{ typ, data unsafe.Pointer })(unsafe.Pointer(&v)).data = unsafe.Pointer(s)
	return v
}

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

	// Bytes that have been appended are never overwritten.
	return unsafe.String(&a.chunk[n], len(b))
}

// keys interns keys that many objects share: field names and labels.
var keys keyTable

const (
	keySlots = 1 << 11
	keyMax   = 64
)

// keyTable is an interner for short strings. Like other interners, it may
// forget them.
type keyTable struct {
	slots [keySlots]atomic.Pointer[string]
}

func (t *keyTable) string(b []byte) string {
	if len(b) > keyMax {
		return string(b)
	}
	slot := &t.slots[maphash.Bytes(digestSeed, b)%keySlots]
	if s := slot.Load(); s != nil && *s == string(b) {
		return *s
	}
	s := string(b)
	slot.Store(&s)

	return s
}
