// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

// codeMax is the maximum length of a code in bits. A longer one would save
// next to nothing, and a table for decoding has 1<<codeMax entries.
const codeMax = 11

// code is a prefix code for the symbols of an alphabet: frequent symbols take
// fewer bits. Every symbol has one, so that a code made of a few samples can
// write everything. It is immutable.
type code struct {
	words []uint16 // by symbol, as they are written: the lowest bit first
	sizes []uint8  // by symbol, in bits
	table *[1 << codeMax]entryOf
}

// entryOf is what the next codeMax bits begin with: how many bits the first
// symbol takes in the lowest four bits, the symbol in the next eight, and if it
// is a literal in a textTable its sort in the others.
type entryOf uint16

const sortShift = 12

func (e entryOf) symbol() int { return int(e >> 4 & 0xff) }

func (e entryOf) size() uint { return uint(e & 15) }

// newCode makes the code whose symbols take these numbers of bits.
func newCode(sizes []uint8) *code {
	c := &code{
		words: make([]uint16, len(sizes)),
		sizes: sizes,
		table: new([1 << codeMax]entryOf),
	}
	word := 0
	for size := uint8(1); size <= codeMax; size++ {
		word <<= 1
		for symbol, s := range sizes {
			if s != size {
				continue
			}
			c.words[symbol] = bits.Reverse16(uint16(word)) >> (16 - size) //nolint:gosec // at most codeMax bits
			word++
			for at := int(c.words[symbol]); at < len(c.table); at += 1 << size {
				c.table[at] = entryOf(symbol<<4 | int(size)) //nolint:gosec // symbols have 8 bits
			}
		}
	}

	return c
}

// codeSizes returns the length of each symbol's code, at most codeMax. There
// are at least two symbols and at most 256.
func codeSizes(counts []uint32) []uint8 {
	weights := make([]uint32, len(counts))
	for symbol, n := range counts {
		weights[symbol] = max(n, 1)
	}
	for {
		sizes := treeDepths(weights)
		if slices.Max(sizes) <= codeMax {
			return sizes
		}
		// A flatter distribution has a flatter tree.
		for symbol := range weights {
			weights[symbol] = weights[symbol]/2 + 1
		}
	}
}

// treeDepths returns the depth of each leaf in the tree that results from
// joining the two lightest nodes again and again.
func treeDepths(weights []uint32) []uint8 {
	n := len(weights)
	leaves := make([]int, n)
	for i := range leaves {
		leaves[i] = i
	}
	slices.SortStableFunc(leaves, func(a, b int) int { return cmp.Compare(weights[a], weights[b]) })

	// Inner nodes, numbered from n, come into being by increasing weight.
	weight := append(make([]uint32, 0, 2*n), weights...)
	parent := make([]int, 2*n)
	leaf, inner := 0, n
	lightest := func() int {
		if leaf < n && (inner == len(weight) || weight[leaves[leaf]] <= weight[inner]) {
			leaf++
			return leaves[leaf-1]
		}
		inner++
		return inner - 1
	}
	for len(weight) < 2*n-1 {
		a, b := lightest(), lightest()
		parent[a], parent[b] = len(weight), len(weight)
		weight = append(weight, weight[a]+weight[b])
	}

	depths := make([]uint8, 2*n)
	for i := 2*n - 3; i >= 0; i-- {
		depths[i] = depths[parent[i]] + 1
	}
	return depths[:n]
}

// Numbers are written as a symbol, which has the magnitude and the two bits
// below the highest one, and the remaining bits.

// numbers is the size of the alphabet: it covers 18 bits.
const numbers = 68

// splitNumber returns the symbol of n, and its remaining bits and how many.
func splitNumber(n uint32) (symbol int, rest uint64, size uint) {
	if n < 4 {
		return int(n), 0, 0
	}
	size = uint(bits.Len32(n)) - 3
	return int(size)<<2 + int(n>>size), uint64(n & (1<<size - 1)), size
}

// bitWriter appends bits, the lowest first.
type bitWriter struct {
	b   []byte
	acc uint64
	n   uint
}

// put writes the n lowest bits of x, which has no others; at most 32.
func (w *bitWriter) put(x uint64, n uint) {
	w.acc |= x << w.n
	if w.n += n; w.n >= 32 {
		w.b = binary.LittleEndian.AppendUint32(w.b, uint32(w.acc)) //nolint:gosec // the lowest half
		w.acc >>= 32
		w.n -= 32
	}
}

// symbol writes the code of a symbol.
func (w *bitWriter) symbol(c *code, symbol int) {
	w.put(uint64(c.words[symbol]), uint(c.sizes[symbol]))
}

// number writes a number with symbols from base on.
func (w *bitWriter) number(c *code, base int, n uint32) {
	symbol, rest, size := splitNumber(n)
	w.symbol(c, base+symbol)
	w.put(rest, size)
}

// end writes the last bits and returns all bytes.
func (w *bitWriter) end() []byte {
	for ; w.n > 0; w.n -= min(w.n, 8) {
		w.b = append(w.b, byte(w.acc))
		w.acc >>= 8
	}
	return w.b
}

// bitReader reads what a bitWriter wrote. Behind the end it reads zeros.
type bitReader struct {
	b    []byte
	i    int
	acc  uint64
	n    uint // bits in acc
	over uint // how many of those read are behind the end
}

// fill makes at least 56 bits available.
func (r *bitReader) fill() {
	if r.i+8 <= len(r.b) {
		r.acc |= load(r.b, r.i) << (r.n & 63)
		r.i += int(63-r.n) >> 3 //nolint:gosec // at most 7
		r.n |= 56
		return
	}
	r.fillSlowly()
}

func (r *bitReader) fillSlowly() {
	for ; r.n < 56; r.n += 8 {
		if r.i < len(r.b) {
			r.acc |= uint64(r.b[r.i]) << r.n
			r.i++
		} else {
			r.over += 8
		}
	}
}

// symbol reads a symbol; codeMax bits must be available.
func (r *bitReader) symbol(c *code) int {
	e := c.table[r.acc&(1<<codeMax-1)]
	r.acc >>= e.size()
	r.n -= e.size()
	return e.symbol()
}

// textTable has the tables of the codes of literals, one after the other. An
// entry leads to the next table, so that each byte takes one access to memory
// that the next one waits for: most of the time to decode a block is spent on
// literals.
type textTable [sorts << codeMax]entryOf

// text reads literals. sort is that of the byte before them.
func (r *bitReader) text(t *textTable, dst []byte, sort uint8) {
	from := uint64(sort) << codeMax
	for at := 0; at < len(dst); {
		r.fill()
		acc, n := r.acc, r.n
		for ; at < len(dst) && n >= codeMax; at++ {
			e := t[from|acc&(1<<codeMax-1)]
			dst[at] = byte(e >> 4) //nolint:gosec // without the sort
			acc >>= e.size()
			n -= e.size()
			from = uint64(e>>sortShift) << codeMax
		}
		r.acc, r.n = acc, n
	}
}

// number reads a number; codeMax and 15 bits must be available.
func (r *bitReader) number(c *code) int { return r.rest(r.symbol(c)) }

// marked reads a number, and which half of the alphabet its symbol is in.
func (r *bitReader) marked(c *code) (int, bool) {
	symbol := r.symbol(c)
	if symbol >= numbers {
		return r.rest(symbol - numbers), true
	}
	return r.rest(symbol), false
}

// rest reads the remaining bits of a number.
func (r *bitReader) rest(symbol int) int {
	if symbol < 4 {
		return symbol
	}
	size := uint(symbol)>>2 - 1
	n := (4|symbol&3)<<size | int(r.acc&(1<<size-1)) //nolint:gosec // at most 16 bits
	r.acc >>= size
	r.n -= size
	return n
}

// exceeded reports whether more bits were read than there are.
func (r *bitReader) exceeded() bool { return r.n < r.over }

// finished reports whether everything was read, and no more.
func (r *bitReader) finished() bool {
	left := (len(r.b)-r.i)*8 + int(r.n) - int(r.over) //nolint:gosec // small
	return left >= 0 && left < 8 && r.acc&(1<<left-1) == 0
}
