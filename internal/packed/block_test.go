// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBlocksOfEveryShapeComeBack encodes sources made of pieces of the
// dictionary, pieces of themselves and noise, up to the maximum length.
func TestBlocksOfEveryShapeComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		return b
	}
	for round := range 150 {
		content := noise(margin + r.IntN([]int{32, 1000, dictMax, 1 << 16}[round%4]))
		d := newDictionary([][]byte{content}, 0)
		if d == nil {
			continue
		}
		var src []byte
		for size := r.IntN([]int{10, 500, 5000, maxBlock}[r.IntN(4)]); len(src) < size; {
			from := [][]byte{d.content, src, noise(20)}[r.IntN(3)]
			if len(from) > 0 {
				at := r.IntN(len(from))
				src = append(src, from[at:at+r.IntN(min(len(from)-at, 1+r.IntN(5000))+1)]...)
			}
		}
		src = src[:min(len(src), maxBlock)]
		got, err := d.decoder.Decode(nil, encodeBlock(nil, src, d))
		require.NoError(t, err)
		require.Equal(t, string(src), string(got))
	}
}

// TestCopiesOfEverySizeComeBack covers the boundaries between the tags of the
// format.
func TestCopiesOfEverySizeComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	content := make([]byte, dictMax)
	for i := range content {
		content[i] = byte(r.IntN(256))
	}
	d := newDictionary([][]byte{content[:dictMax/4], content[dictMax/4 : dictMax/2], content[dictMax/2 : dictMax*3/4],
		content[dictMax*3/4:]}, 0)
	require.Len(t, d.content, dictMax)
	const literal = 16000
	src := content[:literal] // arbitrary bytes: they are encoded as a literal
	for _, offset := range []int{1, 2, 255, 256, 2047, 2048, 2049, 15999, 16000, 30000, 65535, 65536, 65537,
		literal + dictMax} {
		for _, length := range []int{4, 5, 7, 8, 9, 11, 12, 13, 59, 60, 61, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 263,
			264, 265, 266, 267, 268, 269, 323, 324, 325, 330, 3000, 65000} {
			m := match{offset, length}
			if offset > literal && length > offset-literal || literal+2*length > 1<<17 {
				continue // a match ends where the dictionary does
			}
			block := binary.AppendUvarint(nil, uint64(literal+2*length))
			block = appendLiteral(block, src)
			block = appendCopy(block, m, 0)
			want := extend(d, src, m)
			if offset <= literal || length <= offset-literal-length {
				block = appendCopy(block, m, offset)
				want = extend(d, want, m)
			} else {
				block = appendLiteral(block, src[:length])
				want = append(want, src[:length]...)
			}
			got, err := d.decoder.Decode(nil, block)
			require.NoError(t, err, m)
			require.True(t, bytes.Equal(want, got), m)
		}
	}
}

// extend applies a copy.
func extend(d *dictionary, b []byte, m match) []byte {
	all := append(slices.Clone(d.content), b...)
	for range m.length {
		all = append(all, all[len(all)-m.offset])
	}
	return all[len(d.content):]
}

// TestMatchesStayOnTheirSideOfTheBorder: a match in the source must not be
// extended backwards into the dictionary.
func TestMatchesStayOnTheirSideOfTheBorder(t *testing.T) {
	d := newDictionary([][]byte{[]byte("................................Z")}, 0)
	src := []byte("abcdefghijklmnopZabcdefghijklmnop0123456789")
	got, err := d.decoder.Decode(nil, encodeBlock(nil, src, d))
	require.NoError(t, err)
	require.Equal(t, string(src), string(got))
}

// TestMatcherForgetsAfterItsCounterStartsOver: a table entry of an earlier
// source must never be taken for one of the current source, even after the
// counter of sources wraps around.
func TestMatcherForgetsAfterItsCounterStartsOver(t *testing.T) {
	m := new(matcher)
	for i := range 1 << 17 {
		if m.begin(); m.round == 0 {
			t.Fatal("zero is what an empty table holds")
		}
		if i == 1<<16-2 {
			m.seen[7] = m.round<<16 | 5
		}
	}
	require.Zero(t, m.seen[7])
}
