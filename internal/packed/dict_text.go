// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"slices"
	"sync"
)

// The text of a dictionary is its last sample, and of each other one what the
// later ones do not have, if an object may have it again: what two samples have,
// and long stretches, which are in objects of another form. The rest are values,
// such as names, addresses and keys. They are most of what differs between
// samples, and no other object has them.

const (
	// shingle is how many bytes of a sample are looked up at a time.
	shingle = 8
	// shingleBits are those of an index of shingles.
	shingleBits = 16
	// stretchMin is the length of a stretch that is no value.
	stretchMin = 256
	// stretchGap is how many shingles that the text has may be in a stretch, one
	// after the other.
	stretchGap = 16
	// forgotten is how many shared shingles in a row may not be known. A byte that
	// differs makes more of them differ.
	forgotten = 3
)

// shingles is what is known of the shingles of the samples, by their hashes. Of
// several with the same index it knows one, if possible one that two samples
// have.
type shingles [1 << shingleBits]uint32

// Parts of an entry. The lowest bits are the number of a sample that has the
// shingle, and all others are of its hash.
const (
	inText    = 1 << 7
	inSamples = 1 << 6 // in more than one
	inSample  = inSamples - 1
	ofHash    = ^uint32(1<<8 - 1)
)

var shinglesPool = sync.Pool{New: func() any { return new(shingles) }}

// entry returns where the entry of a shingle is, and its hash.
func (t *shingles) entry(x uint64) (e *uint32, hash uint32) {
	x *= 0x9e3779b97f4a7c15
	return &t[x>>(64-shingleBits)], uint32(x>>8) & ofHash //nolint:gosec // a part of it
}

// has reports whether a shingle is known to be somewhere.
func (t *shingles) has(x uint64, where uint32) bool {
	e, hash := t.entry(x)
	return *e&ofHash == hash && *e&where != 0
}

// count enters the shingles of a sample.
func (t *shingles) count(sample []byte, number uint32) {
	for i := 0; i+shingle <= len(sample); i++ {
		e, hash := t.entry(load(sample, i))
		switch {
		case *e&ofHash == hash && *e&inSample != number:
			*e |= inSamples
		case *e&inSamples == 0:
			*e = hash | number
		}
	}
}

// add records that the text has b.
func (t *shingles) add(b []byte) {
	for i := 0; i+shingle <= len(b); i++ {
		e, hash := t.entry(load(b, i))
		*e = hash | inText
	}
}

// textOf makes the text of a dictionary, and returns how far before its end the
// last sample begins.
func textOf(samples [][]byte) (text []byte, start int) {
	t := shinglesPool.Get().(*shingles)
	defer shinglesPool.Put(t)
	clear(t[:])
	for i, b := range samples {
		t.count(b, uint32(i)) //nolint:gosec // there are few
	}
	last := len(samples) - 1
	t.add(samples[last])
	parts := [][]byte{samples[last]}
	for _, b := range slices.Backward(samples[:last]) {
		parts = append(parts, t.appendNew(nil, b))
	}
	slices.Reverse(parts)

	return slices.Concat(parts...), len(samples[last])
}

// appendNew appends what the text needs of a sample.
func (t *shingles) appendNew(dst, b []byte) []byte {
	for i := 0; i+shingle <= len(b); {
		if t.has(load(b, i), inText) {
			i++
			continue
		}
		from, last := i, i
		for ; i+shingle <= len(b) && i-last <= stretchGap; i++ {
			if !t.has(load(b, i), inText) {
				last = i
			}
		}
		stretch := b[from : last+shingle]
		if len(stretch) >= stretchMin && !isMostlyBase64(stretch) {
			dst = append(dst, stretch...)
			t.add(stretch)
		} else {
			dst = t.appendShared(dst, stretch)
		}
	}
	return dst
}

// appendShared appends what two samples have of a stretch, and the text does
// not.
func (t *shingles) appendShared(dst, b []byte) []byte {
	for i := 0; i+shingle <= len(b); {
		if !t.isShared(load(b, i)) {
			i++
			continue
		}
		from, last := i, i
		for ; i+shingle <= len(b) && i-last <= forgotten; i++ {
			if t.isShared(load(b, i)) {
				last = i
			}
		}
		shared := b[from : last+shingle]
		dst = append(dst, shared...)
		t.add(shared)
	}
	return dst
}

// isShared reports whether two samples have a shingle, and the text does not.
func (t *shingles) isShared(x uint64) bool { return t.has(x, inSamples) && !t.has(x, inText) }

// isMostlyBase64 reports whether half of b is base64, as random data are.
func isMostlyBase64(b []byte) bool {
	n, length := 0, len(b)
	for from, to := base64In(b); from < to; from, to = base64In(b) {
		n += to - from
		b = b[to:]
	}
	return n > length/2
}
