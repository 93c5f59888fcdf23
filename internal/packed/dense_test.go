// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/base64"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/repeat"
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
	for round := range repeat.Times(150) {
		content := noise(margin + r.IntN([]int{32, 1000, dictMax, 1 << 16}[round%4]))
		d := testDictionary(content)
		if d == nil {
			continue
		}
		var src []byte
		for size := r.IntN([]int{10, 500, 5000, maxBlock}[r.IntN(4)]); len(src) < size; {
			from := [][]byte{
				d.content, src, noise(20), []byte(base64.StdEncoding.EncodeToString(noise(1 + r.IntN(400)))),
			}[r.IntN(4)]
			if len(from) > 0 {
				at := r.IntN(len(from))
				src = append(src, from[at:at+r.IntN(min(len(from)-at, 1+r.IntN(5000))+1)]...)
			}
		}
		src = src[:min(len(src), maxBlock)]
		requireBlock(t, d, src)
	}
}

// testDictionary returns a dictionary with codes of its own, or nil.
func testDictionary(content []byte) *dictionary {
	d := newDictionary([][]byte{content}, 0)
	if d != nil {
		var u usage
		u.add(content, d)
		d.codes = u.codes()
	}
	return d
}

// requireBlock encodes a source and decodes it, as a whole, in part, and cut
// off.
func requireBlock(t *testing.T, d *dictionary, src []byte) {
	t.Helper()
	block := d.encode([]byte("before"), src)[len("before"):]
	got := make([]byte, len(src))
	require.True(t, d.decode(got, block, len(src)))
	require.Equal(t, string(src), string(got))
	require.True(t, d.reproduces(src, block))

	enough := len(src) / 3
	clear(got)
	require.True(t, d.decode(got, block, enough))
	require.Equal(t, string(src[:enough]), string(got[:enough]))

	require.False(t, d.decode(got, append(block, 0), len(src)), "a byte too many")
	if len(block) > 8 {
		require.False(t, d.decode(got, block[:len(block)-8], len(src)), "cut off")
	}
}

// TestSequencesOfEverySizeComeBack covers the boundaries between the symbols of
// numbers, for literals, lengths and offsets.
func TestSequencesOfEverySizeComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	content := make([]byte, dictMax/4)
	for i := range content {
		content[i] = byte(r.IntN(256))
	}
	d := testDictionary(content)
	for _, n := range []int{0, 1, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 255, 256, 257, 4095, 4096, 8000, 12000} {
		for _, at := range []int{0, 1, 2, 100, 1000, 2000} {
			var src []byte
			src = append(src, content[at:at+n]...)
			for range n % 1000 {
				src = append(src, byte(r.IntN(256)))
			}
			src = append(src, content[len(content)-n:]...)
			src = append(src, src[min(at, len(src)):]...)
			requireBlock(t, d, src)
		}
	}
}

// TestBeginningOfABlockThatIsCutOffIsRefused: what is read behind the end is
// not taken for labels.
func TestBeginningOfABlockThatIsCutOffIsRefused(t *testing.T) {
	d := testDictionary([]byte("a dictionary without any digits"))
	src := []byte("0918273645546372819009182736455463728190")[:30]
	block := d.encode(nil, src)
	got := make([]byte, len(src))
	require.True(t, d.decode(got, block, len(src)/2))
	for n := range len(block) / 3 {
		require.False(t, d.decode(got, block[:n], len(src)/2), n)
	}
}

func TestNumbersOfEverySizeComeBack(t *testing.T) {
	var counts [2 * numbers]uint32
	counts[1] = 1 << 20 // unequal codes
	c := newCode(codeSizes(counts[:]))
	var all []uint32
	for n := uint32(0); n < 1<<18; n += 1 + n/50 {
		all = append(all, n)
	}
	all = append(all, 1<<18-1)
	var w bitWriter
	for _, n := range all {
		w.number(c, 0, n)
		w.number(c, numbers, n)
	}
	r := bitReader{b: w.end()}
	for _, n := range all {
		for _, ofSource := range []bool{false, true} {
			r.fill()
			got, source := r.marked(c)
			require.EqualValues(t, n, got)
			require.Equal(t, ofSource, source)
		}
	}
	require.True(t, r.finished())
	for n := -1 << 17; n < 1<<17; n += 997 {
		require.Equal(t, n, unzigzag(int(zigzag(n))))
	}
}

// TestCodesAreCompleteForEveryDistribution: each symbol has a code, no code
// begins with another, and none is too long for the table.
func TestCodesAreCompleteForEveryDistribution(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for round := range repeat.Times(300) {
		counts := make([]uint32, []int{2, 3, numbers, 2 * numbers, 256}[round%5])
		for i := range counts {
			switch round % 4 {
			case 0: // nothing is known
			case 1: // as skewed as can be
				counts[i] = uint32(1) << (i % 25)
			default:
				counts[i] = uint32(r.Uint64N(1 + r.Uint64N(1<<20)))
			}
		}
		c := newCode(codeSizes(counts))
		room := 0
		for symbol, size := range c.sizes {
			require.LessOrEqual(t, int(size), codeMax)
			require.Positive(t, size)
			room += 1 << (codeMax - size)
			r := bitReader{b: []byte{byte(c.words[symbol]), byte(c.words[symbol] >> 8)}}
			r.fill()
			require.Equal(t, symbol, r.symbol(c))
		}
		require.Equal(t, 1<<codeMax, room, "Kraft's equality")
	}
}

// TestBlockThatDoesNotComeBackIsNotKept: if dictionary and decoder disagree for
// whatever reason, objects are kept in another way.
func TestBlockThatDoesNotComeBackIsNotKept(t *testing.T) {
	c, k := codecWithBadDictionary(t)
	for i := range samples {
		o := mustPack(t, c, k, pods(100+i))
		require.EqualValues(t, codecS2, o.body[0])
		requireSameObject(t, pods(100+i), o)
	}
}

// TestAllBlocksAreCheckedOnceOneDidNotComeBack: later blocks are decoded by
// sample, until one of the sample is wrong.
func TestAllBlocksAreCheckedOnceOneDidNotComeBack(t *testing.T) {
	c, k := codecWithBadDictionary(t)
	checks := k.dict.newest.Load().checks
	checks.blocks.Store(checkedFirst)
	unnoticed := 0
	for ; !checks.failed.Load(); unnoticed++ {
		require.Less(t, unnoticed, checkedEvery)
		mustPack(t, c, k, pods(100+unnoticed))
	}
	for i := range 2 * checkedEvery {
		o := mustPack(t, c, k, pods(200+i))
		require.EqualValues(t, codecS2, o.body[0])
		requireSameObject(t, pods(200+i), o)
	}
}

// codecWithBadDictionary returns a kind whose decoder takes a for b.
func codecWithBadDictionary(t *testing.T) (*Codec, *Kind) {
	t.Helper()
	c := NewCodec()
	k := c.Kind(podGVK)
	var keep []*Object
	for i := range samples {
		keep = append(keep, mustPack(t, c, k, pods(i)))
	}
	require.NotEmpty(t, keep)
	good := k.dict.newest.Load()
	text := *good.codes.tables()
	for at, e := range text.text {
		switch e.symbol() {
		case 'a':
			text.text[at] += ('b' - 'a') << 4
		case 'b':
			text.text[at] -= ('b' - 'a') << 4
		}
	}
	bad := &dictionary{content: good.content, start: good.start, codes: new(codes), checks: new(checks)}
	bad.codes.made.get(func() *tables { return &text })
	t.Cleanup(func() { runtime.KeepAlive(&text) })
	k.dict.newest.Store(bad)
	k.dict.all[0].Store(bad)

	return c, k
}

// TestMatchesStayOnTheirSideOfTheBorder: a match in the source must not be
// extended backwards into the dictionary.
func TestMatchesStayOnTheirSideOfTheBorder(t *testing.T) {
	requireBlock(t, testDictionary([]byte("................................Z")),
		[]byte("abcdefghijklmnopZabcdefghijklmnop0123456789"))
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
