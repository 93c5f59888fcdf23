// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"sync"
)

const (
	hashBits = 14
	// minMatch is how many bytes the hash covers; shorter matches save little.
	minMatch = 5
	// lazyLen is how long a match must be to be taken without looking for a
	// better one.
	lazyLen = 24
	// hasteAfter is the number of literals from which on only every second byte,
	// then every third and so on, is looked up: what matches in random data are
	// accidents, which save nothing.
	hasteAfter = 16
	// margin keeps 8-byte loads inside the source.
	margin = 8
	// reach is how far behind the end of the previous match its continuation
	// is looked for.
	reach = 48
	// maxBlock is the maximum length of a source: its positions have 16 bits.
	maxBlock = 1<<16 - 1
)

// positions maps a hash to its last position in the dictionary.
type positions [1 << hashBits]uint16

// positions returns the positions of the dictionary.
func (d *dictionary) positions() *positions {
	return d.at.get(func() *positions {
		p := new(positions)
		for i := 0; i+margin <= len(d.content); i++ {
			p[hash(load(d.content, i))] = uint16(i)
		}
		return p
	})
}

// sequence is a number of bytes that are written as they are, and a match or
// base64 that follows them. The last sequence of a source may lack either.
type sequence struct {
	literals int
	base64   int // number of characters
	lines        // in which they are
	match
}

// match is a repetition: length bytes that also occur offset bytes earlier, in
// dictionary or source. It never crosses from the one into the other.
type match struct{ offset, length int }

// matcher finds repetitions in one source at a time.
type matcher struct {
	round     uint32 // marks the entries of seen that belong to the current source
	seen      [1 << hashBits]uint32
	known     *positions // those of the dictionary, during parse
	sequences []sequence
}

var matchers = sync.Pool{New: func() any { return new(matcher) }}

// begin invalidates the entries of the previous source.
func (m *matcher) begin() {
	m.sequences = m.sequences[:0]
	if m.round++; m.round == 1<<16 {
		m.round = 1
		clear(m.seen[:])
	}
}

func load(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i:]) }

func hash(x uint64) uint32 {
	return uint32(x << (64 - 8*minMatch) * 889523592379 >> (64 - hashBits))
}

// parse divides src, which has at most maxBlock bytes, into sequences. They are
// valid until the next call.
func (m *matcher) parse(src []byte, d *dictionary) []sequence {
	m.begin()
	m.known = d.positions()
	defer func() { m.known = nil }()
	offset, done := d.start, 0
	for i := 0; i+margin <= len(src); {
		found, saved := m.find(src, i, done, offset, d)
		if saved <= 0 {
			i += 1 + (i-done)/hasteAfter
			continue
		}
		if found.length < lazyLen && i+1+margin <= len(src) {
			// A match that begins one byte later may be better.
			if next, more := m.find(src, i+1, done, offset, d); more > saved+literalBits {
				found = next
				i++
			}
		}

		for i > done && d.before(src, i, found.offset) == int(src[i-1]) {
			i--
			found.length++
		}
		m.add(src[done:i], found)
		if found.offset > i {
			offset = found.offset
		}
		i += found.length
		done = i
		if i+margin <= len(src) {
			m.seen[hash(load(src, i-2))] = m.round<<16 | uint32(i-2)
		}
	}

	m.add(src[done:], match{})

	return m.sequences
}

// add adds literals and the match that follows them.
func (m *matcher) add(literals []byte, found match) {
	for from, to := base64In(literals); from < to; from, to = base64In(literals) {
		s := sequence{literals: from, base64: to - from}
		if skip, chars, l := linesIn(literals[from:], to-from); chars > 0 {
			s = sequence{literals: from + skip, base64: chars, lines: l}
		}
		m.sequences = append(m.sequences, s)
		literals = literals[s.literals+s.span(s.base64):]
	}
	if len(literals) > 0 || found.length > 0 {
		m.sequences = append(m.sequences, sequence{literals: len(literals), match: found})
	}
}

// Approximate costs, in bits.
const (
	literalBits  = 5
	sequenceBits = 6 // of a sequence without its offset
	sourceBits   = 4 // of an offset in the source, besides its magnitude
)

// find returns the best known match at i, and how many bits it saves. done is
// the end of the previous match, and offset that of the previous match in the
// dictionary.
func (m *matcher) find(src []byte, i, done, offset int, d *dictionary) (best match, most int) {
	x := load(src, i)
	h := hash(x)
	before := m.seen[h]
	m.seen[h] = m.round<<16 | uint32(i)
	if offset > i {
		if n := d.matchAt(src, i, offset, x); n >= minMatch-1 {
			best, most = match{offset, n}, n*literalBits-sequenceBits
			if n >= lazyLen {
				return best, most
			}
		}
		if resumed := d.resume(src, i, done, offset); resumed > i {
			n := d.matchAt(src, i, resumed, x)
			if saved := n*literalBits - offsetBits(resumed, offset); n >= minMatch-1 && saved > most {
				best, most = match{resumed, n}, saved
			}
		}
	}

	if at := int(before & 0xffff); before>>16 == m.round && at < i {
		n := matchLen(x, src[i:], src[at:])
		saved := n*literalBits - sequenceBits - sourceBits - bits.Len32(uint32(i-at)) //nolint:gosec // at < i
		if n >= minMatch && saved > most {
			best, most = match{i - at, n}, saved
		}
	}
	at := int(m.known[h])
	n := matchLen(x, src[i:], d.content[at:])
	if at += i + len(d.content) - 2*at; n >= minMatch && n*literalBits-offsetBits(at, offset) > most {
		best, most = match{at, n}, n*literalBits-offsetBits(at, offset)
	}

	return best, most
}

// offsetBits is the approximate cost of a match in the dictionary.
func offsetBits(offset, previous int) int { return sequenceBits + bits.Len32(zigzag(offset-previous)) }

// resume returns the offset of the place in the dictionary where the text of
// the previous match goes on after a value that has another length than that in
// src, which begins at done; 0 if there is none. Values end with punctuation.
func (d *dictionary) resume(src []byte, i, done, offset int) int {
	if classes[src[i]] != punctuation {
		return 0
	}
	from := done + len(d.content) - offset
	if i == done || from >= len(d.content) {
		return 0
	}
	at := bytes.IndexByte(d.content[from:min(from+reach, len(d.content))], src[i])
	if at < 0 {
		return 0
	}
	return i + len(d.content) - from - at
}

// before returns the position offset bytes before i, or -1 if a match cannot
// begin there: matches never cross from the dictionary into the source.
func (d *dictionary) before(src []byte, i, offset int) int {
	at := i - offset
	if at > 0 {
		return int(src[at-1])
	}
	if at += len(d.content); offset > i && at > 0 {
		return int(d.content[at-1])
	}
	return -1
}

// matchAt returns how many bytes at i, which begin with x, equal those offset
// bytes earlier, which begin in the dictionary.
func (d *dictionary) matchAt(src []byte, i, offset int, x uint64) int {
	return matchLen(x, src[i:], d.content[len(d.content)+i-offset:])
}

// matchLen returns the length of the common prefix of a, which begins with x,
// and b, or 0 if b has less than eight bytes.
func matchLen(x uint64, a, b []byte) int {
	if len(b) < 8 {
		return 0
	}
	if diff := x ^ load(b, 0); diff != 0 {
		return bits.TrailingZeros64(diff) / 8
	}
	return 8 + commonLen(a[8:], b[8:])
}

func commonLen(a, b []byte) int {
	limit := min(len(a), len(b))
	n := 0
	for n+8 <= limit {
		if diff := load(a, n) ^ load(b, n); diff != 0 {
			return n + bits.TrailingZeros64(diff)/8
		}
		n += 8
	}

	for n < limit && a[n] == b[n] {
		n++
	}
	return n
}
