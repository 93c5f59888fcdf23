// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"slices"
	"sync/atomic"
)

// A dense block is what an object differs by from the dictionary of its kind:
//
//	block    = { sequence } [ number of literals, literals ]
//	sequence = number of literals, literals, match | base64 | lines
//	match    = length, offset
//	base64   = length, characters
//
// The number of literals also says what follows them. All but the characters of
// base64, and what its lines look like, is written in prefix codes, which the
// dictionary has made of its samples. A literal's code depends on the sort of
// the byte before it, so that a hexadecimal digit among others takes four bits.
// The length of a match is written without minMatch-1; its offset, if the match
// is in the dictionary, as the difference from that of the previous such match,
// which is 0 or small where an object follows a sample from one value that
// differs to the next. That, and prefix codes, are why this is smaller than s2;
// see BenchmarkEncode.

// Sorts of bytes.
const (
	punctuation = iota
	hexDigit
	letter
	sorts
)

// classes are the sorts of all bytes.
var classes = func() (c [256]uint8) {
	for i := range c {
		switch b := byte(i); {
		case '0' <= b && b <= '9', 'a' <= b && b <= 'f':
			c[i] = hexDigit
		case 'g' <= b && b <= 'z', 'A' <= b && b <= 'Z':
			c[i] = letter
		}
	}
	return c
}()

// first stands for the byte before the first one.
const first = '"'

// codes are the prefix codes of a dictionary. The sizes of its words, in bits,
// determine a code.
type codes struct {
	literals      [sorts][256]uint8 // by the sort of the byte before
	lengths       [numbers]uint8
	runs, offsets [2 * numbers]uint8
	made          lazy[tables]
}

// all returns the sizes of the words of each code, in the order of a stored
// dictionary.
func (c *codes) all() [sorts + 3][]uint8 {
	return [...][]uint8{c.literals[0][:], c.literals[1][:], c.literals[2][:], c.runs[:], c.lengths[:], c.offsets[:]}
}

// tables are what a dictionary's codes are written and read with.
type tables struct {
	literals               [sorts]*code // to write
	text                   textTable    // to read literals
	runs, lengths, offsets *code
}

// tables returns the tables of the codes.
func (c *codes) tables() *tables {
	return c.made.get(func() *tables {
		t := &tables{
			runs:    newCode(c.runs[:]),
			lengths: newCode(c.lengths[:]),
			offsets: newCode(c.offsets[:]),
		}
		for sort := range t.literals {
			l := newCode(c.literals[sort][:])
			for at, e := range l.table {
				t.text[sort<<codeMax|at] = e | entryOf(classes[e.symbol()])<<sortShift
			}
			l.table = nil
			t.literals[sort] = l
		}
		return t
	})
}

// usage counts the symbols of blocks.
type usage struct {
	literals      [sorts][256]uint32
	lengths       [numbers]uint32
	runs, offsets [2 * numbers]uint32
}

// codes returns the codes that write these symbols in the fewest bits.
func (u *usage) codes() *codes {
	c := new(codes)
	for sort := range c.literals {
		copy(c.literals[sort][:], codeSizes(u.literals[sort][:]))
	}
	copy(c.lengths[:], codeSizes(u.lengths[:]))
	copy(c.runs[:], codeSizes(u.runs[:]))
	copy(c.offsets[:], codeSizes(u.offsets[:]))
	return c
}

// add counts the symbols of a source.
func (u *usage) add(src []byte, d *dictionary) {
	m := matchers.Get().(*matcher)
	defer matchers.Put(m)
	at, offset := 0, d.start
	count := func(symbols []uint32, n uint32) {
		symbol, _, _ := splitNumber(n)
		symbols[symbol]++
	}
	for _, s := range m.parse(src, d) {
		runs := u.runs[:numbers]
		if s.base64 > 0 {
			runs = u.runs[numbers:]
			if s.width > 0 {
				count(u.lengths[:], 0)
			}
			count(u.lengths[:], uint32(s.base64)) //nolint:gosec // at most maxBlock
		}
		count(runs, uint32(s.literals)) //nolint:gosec // at most maxBlock
		for end := at + s.literals; at < end; at++ {
			u.literals[sortBefore(src, at)][src[at]]++
		}
		if s.length > 0 {
			count(u.lengths[:], uint32(s.length-minMatch+1)) //nolint:gosec // at most maxBlock
			if s.offset > at {
				count(u.offsets[:numbers], zigzag(s.offset-offset))
				offset = s.offset
			} else {
				count(u.offsets[numbers:], uint32(s.offset))
			}
		}
		at += s.span(s.base64) + s.length
	}
}

// sortBefore returns the sort of the byte before b[i].
func sortBefore(b []byte, i int) uint8 {
	if i == 0 {
		return classes[first]
	}
	return classes[b[i-1]]
}

// zigzag maps small numbers of either sign to small positive ones.
func zigzag(n int) uint32 { return uint32(n<<1 ^ n>>63) } //nolint:gosec // n has 18 bits

func unzigzag(n int) int { return n>>1 ^ -(n & 1) }

// encode appends src, which has at most maxBlock bytes, as a dense block.
func (d *dictionary) encode(dst, src []byte) []byte {
	m := matchers.Get().(*matcher)
	defer matchers.Put(m)
	w := bitWriter{b: dst}
	c := d.codes.tables()
	at, offset, sort := 0, d.start, classes[first]
	for _, s := range m.parse(src, d) {
		before := 0
		if s.base64 > 0 {
			before = numbers
		}
		w.number(c.runs, before, uint32(s.literals)) //nolint:gosec // at most maxBlock
		for _, b := range src[at : at+s.literals] {
			w.symbol(c.literals[sort], int(b))
			sort = classes[b]
		}
		at += s.literals
		if s.base64 > 0 {
			if s.width > 0 {
				w.lines(c.lengths, src[at:], s.base64, s.lines)
			} else {
				w.number(c.lengths, 0, uint32(s.base64)) //nolint:gosec // at most maxBlock
				w.base64(src[at : at+s.base64])
			}
			at += s.span(s.base64)
			sort = classes[src[at-1]]
			continue
		}
		if s.length == 0 {
			break
		}
		w.number(c.lengths, 0, uint32(s.length-minMatch+1)) //nolint:gosec // at most maxBlock
		if s.offset > at {
			w.number(c.offsets, 0, zigzag(s.offset-offset))
			offset = s.offset
		} else {
			w.number(c.offsets, numbers, uint32(s.offset))
		}
		at += s.length
		sort = classes[src[at-1]]
	}

	return w.end()
}

// decode decodes a block into dst, which has the source's length. It may stop
// as soon as it has the first enough bytes. It reports whether block is valid.
func (d *dictionary) decode(dst, block []byte, enough int) bool {
	r := bitReader{b: block}
	c := d.codes.tables()
	at, offset := 0, d.start
	for at < enough {
		r.fill()
		run, base64 := r.marked(c.runs)
		if run > len(dst)-at {
			return false
		}
		end := min(at+run, enough)
		r.text(&c.text, dst[at:end], sortBefore(dst, at))
		if at = end; at == enough {
			break
		}
		if base64 {
			r.fill()
			length := r.number(c.lengths)
			if length == 0 {
				n := r.lines(c.lengths, dst[at:], enough-at)
				if n == 0 {
					return false
				}
				at += n
				continue
			}
			if r.exceeded() || length > len(dst)-at {
				return false
			}
			r.base64(dst[at : at+length]) // no part of it: pairs belong together
			at += length
			continue
		}

		r.fill()
		length := r.number(c.lengths) + minMatch - 1
		r.fill()
		from, own := r.marked(c.offsets)
		if !own {
			offset += unzigzag(from)
			from = offset
		}
		if r.exceeded() || length > len(dst)-at || !d.copy(dst, at, from, length) {
			return false
		}
		at += length
	}

	return !r.exceeded() && (at < len(dst) || r.finished())
}

// checks decide which blocks of a dictionary are decoded before they are kept.
type checks struct {
	blocks atomic.Uint32
	failed atomic.Bool
}

const (
	// checkedFirst is how many blocks are decoded once there is a dictionary.
	checkedFirst = 64
	// checkedEvery is the share of the others: one in so many.
	checkedEvery = 16
)

// due reports whether the next block is to be decoded. Decoding all of them
// takes an eighth of the time of a first sync.
func (c *checks) due() bool {
	n := c.blocks.Add(1)
	return n <= checkedFirst || n%checkedEvery == 0 || c.failed.Load()
}

// passes reports whether a block of src may be kept. What is wrong with a block
// that is kept is noticed by a reader at best: blocks are decoded by sample,
// and all of them once one did not come back.
func (d *dictionary) passes(src, block []byte) bool {
	if !d.checks.due() || d.reproduces(src, block) {
		return true
	}
	d.checks.failed.Store(true)
	return false
}

// reproduces reports whether decoding a block results in src.
func (d *dictionary) reproduces(src, block []byte) bool {
	s := newScratch()
	defer s.close()
	s.plain = slices.Grow(s.plain[:0], len(src))[:len(src)]
	return d.decode(s.plain, block, len(src)) && bytes.Equal(s.plain, src)
}

// copy copies length bytes from offset bytes before dst[at], which may be in
// the dictionary. It reports false if they are not all on one side.
func (d *dictionary) copy(dst []byte, at, offset, length int) bool {
	from := at - offset
	switch {
	case from < 0:
		from += len(d.content)
		if from < 0 || from+length > len(d.content) {
			return false
		}
		copy(dst[at:at+length], d.content[from:])
	case offset >= length:
		copy(dst[at:at+length], dst[from:])
	case offset <= 0:
		return false
	default:
		for i := range length {
			dst[at+i] = dst[from+i]
		}
	}

	return true
}
