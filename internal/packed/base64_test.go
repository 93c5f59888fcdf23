// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBase64TakesSixBitsACharacter: whatever the dictionary was made of, and
// wherever it begins and ends.
func TestBase64TakesSixBitsACharacter(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		return base64.StdEncoding.EncodeToString(b)
	}
	d := testDictionary([]byte(`{"data":{"token":"0123456789abcdef"},"type":"Opaque"}`))
	for n := 100; n < 130; n++ {
		one := random(n)
		src := []byte(`{"data":{"token":"` + one + `","other":"` + one[:60] + `"}`)
		requireBlock(t, d, src)
		block := d.encode(nil, src)
		require.Less(t, len(block), len(one)*6/8+40)
		for cut := range len(src) {
			got := make([]byte, len(src))
			require.True(t, d.decode(got, block, cut))
			require.Equal(t, string(src[:cut]), string(got[:cut]))
		}
	}
}

// TestBase64OfEveryLengthComesBack, between other bits.
func TestBase64OfEveryLengthComesBack(t *testing.T) {
	for n := range 200 {
		text := base64.StdEncoding.EncodeToString(randomBytes(uint64(n), n))[:n]
		w := bitWriter{}
		w.put(5, 3)
		w.base64([]byte(text))
		w.put(9, 4)
		block := w.end()
		require.Len(t, block, (n*6+3+4+7)/8)
		r := bitReader{b: block}
		r.fill()
		require.Equal(t, 5, r.bits(3))
		got := make([]byte, n)
		r.base64(got)
		require.Equal(t, text, string(got))
		r.fill()
		require.Equal(t, 9, r.bits(4))
		require.True(t, r.finished())
	}
}

// TestTextInBase64IsDecodedAsByTheLibrary, up to what is no text.
func TestTextInBase64IsDecodedAsByTheLibrary(t *testing.T) {
	for n := range 200 {
		text := strings.Repeat("Some text,\r\n\tof lines: ~\n", 10)[:n]
		encoded := base64.RawStdEncoding.EncodeToString([]byte(text))
		for _, behind := range []string{"", "=", "==\"", "-----"} {
			got, chars, all := decodeText([]byte("before"), []byte(encoded+behind))
			require.Equal(t, "before"+text, string(got))
			require.Equal(t, len(encoded), chars)
			require.Equal(t, len(encoded), all)
		}
		for at := range n {
			for _, c := range []byte{0, 1, 2, 8, 0x1f, 0x7f, 0x80, 0xff} {
				other := []byte(text)
				other[at] = c
				encoded := base64.RawStdEncoding.EncodeToString(other)
				got, chars, all := decodeText(nil, []byte(encoded))
				require.Zero(t, chars)
				require.Empty(t, got)
				require.Equal(t, len(encoded), all)
			}
		}
	}
}

// TestBase64IsEncodedInPlace as by the library, whatever is before it.
func TestBase64IsEncodedInPlace(t *testing.T) {
	for n := range 200 {
		text := randomBytes(uint64(n), n)
		got := encodeFrom(append([]byte("before"), text...), len("before"))
		require.Equal(t, "before"+base64.RawStdEncoding.EncodeToString(text), string(got))
	}
}

// TestOnlyBase64IsTakenForIt: hexadecimal digits and words have shorter codes.
func TestOnlyBase64IsTakenForIt(t *testing.T) {
	const found = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZn"
	for text, want := range map[string]string{
		"":                                      "",
		found:                                   found,
		`"` + found + `=="`:                     found,
		"short=" + found[:31] + " " + found:     found,
		found[:31]:                              "",
		strings.Repeat("0123456789abcdef", 4):   "",
		strings.Repeat("0123456789ABCDEF", 4):   "",
		strings.Repeat("registry/of/images", 3): "",
		strings.Repeat("aNameInMixedCase", 3):   "",
		strings.Repeat("0123456789abcdef", 4) + found: strings.Repeat("0123456789abcdef", 4) + found,
	} {
		from, to := base64In([]byte(text))
		require.Equal(t, want, text[from:to], text)
	}
}
