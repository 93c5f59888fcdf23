// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/base64"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTextHasWhatOtherObjectsMayHave of its samples: what they have in common
// once, and no values.
func TestTextHasWhatOtherObjectsMayHave(t *testing.T) {
	secret := func(i uint64) string { return base64.StdEncoding.EncodeToString([]byte(noise(i, 500))) }
	form := func(i uint64) string {
		var b strings.Builder
		for _, value := range strings.SplitAfter(noise(i, 600), "e") {
			fmt.Fprintf(&b, `{"key":%q},`, value)
		}
		return b.String()
	}
	common, two := noise(1, 1000), noise(2, 100)
	other := form(3)
	var parts [][]byte
	for i := range uint64(samples) {
		s := common + fmt.Sprintf(`"address":%q,"secret":%q,`, noise(100+i, 40), secret(i)) + common[:500]
		switch i {
		case 2, 5:
			s += two
		case 4:
			s += other
		}
		parts = append(parts, []byte(s))
	}

	got, start := textOf(parts)
	text, last := string(got), string(parts[samples-1])
	require.True(t, strings.HasSuffix(text, last))
	require.Len(t, last, start)
	require.Equal(t, 1, strings.Count(text, two), "what two have")
	require.Equal(t, 1, strings.Count(text, other), "another form")
	require.Less(t, len(text), len(last)+len(two)+len(other)+200, "and neither values nor secrets")
}

// TestTextOfSamplesWithoutAnythingInCommon is all of them: it is not known what
// later objects are like.
func TestTextOfSamplesWithoutAnythingInCommon(t *testing.T) {
	var parts [][]byte
	for i := range uint64(samples) {
		parts = append(parts, []byte(strings.ReplaceAll(noise(i, 1000), "a", "-")))
	}
	text, start := textOf(parts)
	require.Equal(t, 1000, start)
	require.Len(t, text, 1000*samples)

	text, start = textOf([][]byte{[]byte("short")})
	require.Equal(t, "short", string(text))
	require.Equal(t, 5, start)
}

// TestADictionaryAtRestIsItsText: what it is used with is made when it is
// needed.
func TestADictionaryAtRestIsItsText(t *testing.T) {
	c := NewCodec()
	k := c.Kind(podGVK)
	var objects []*Object
	for i := range 2 * samples {
		objects = append(objects, mustPack(t, c, k, pods(i)))
	}
	d := k.dict.newest.Load()
	for round := range 3 {
		runtime.GC()
		runtime.GC()
		require.True(t, d.at.value() == nil && d.codes.made.value() == nil)
		objects[samples+round].AppendJSON(nil)
		require.Nil(t, d.at.value(), "reading does not need it")
		requireSameObject(t, pods(samples+round), objects[samples+round])
		o := mustPack(t, c, k, pods(100+round))
		require.EqualValues(t, codecDense, o.body[0])
		requireSameObject(t, pods(100+round), o)
	}
}
