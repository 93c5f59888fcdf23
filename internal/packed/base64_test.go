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
