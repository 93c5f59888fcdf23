// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBlocksOfEveryShapeComeBack encodes sources made of pieces of the
// dictionary, of themselves and of noise, up to the largest block.
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

// A table entry of an earlier source must never be taken for one of this source,
// even when the number of the source starts over.
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
