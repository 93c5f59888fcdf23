// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLinesOfBase64TakeSixBitsACharacter, whatever is between them and behind
// them, and can be read in part.
func TestLinesOfBase64TakeSixBitsACharacter(t *testing.T) {
	d := testDictionary([]byte(`{"data":{"ca.crt":"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"}}`))
	for _, gap := range gaps {
		for _, width := range []int{40, 63, 64, 65, 76, 200} {
			for _, n := range []int{width, 500, 501, 502, 960} {
				text := inLines(uint64(n+width), n, width, gap)
				for _, before := range []string{`"`, `-----BEGIN CERTIFICATE-----\n`} {
					src := []byte(before + text + gap + "-----END")
					requireBlock(t, d, src)
					block := d.encode(nil, src)
					require.Less(t, len(block), n+len(before)+40, "%q %d", gap, width)
					if width != pemWidth {
						continue
					}
					for cut := range len(src) {
						got := make([]byte, len(src))
						require.True(t, d.decode(got, block, cut))
						require.Equal(t, string(src[:cut]), string(got[:cut]))
					}
				}
			}
		}
	}
}

// TestLinesEndWhereTheirShapeDoes: what is not a line of the same width is
// written like anything else.
func TestLinesEndWhereTheirShapeDoes(t *testing.T) {
	line := base64.StdEncoding.EncodeToString(randomBytes(1, 48))
	d := testDictionary([]byte(`{"data":{"token":"0123456789abcdef"},"type":"Opaque"}`))
	for name, c := range map[string]struct {
		text        string
		skip, chars int
		lines       lines
	}{
		"one line":                {line + "\n", 0, 0, lines{}},
		"one line and no more":    {line, 0, 0, lines{}},
		"two":                     {line + "\n" + line, 0, 128, lines{64, 0}},
		"two, the last short":     {line + "\n" + line[:3] + "\n--", 0, 67, lines{64, 0}},
		"the second longer":       {line[:40] + "\n" + line + "\n" + line, 0, 0, lines{}},
		"an escape before":        {"n" + line + `\n` + line + `\n` + line[:9] + `\n`, 1, 137, lines{64, 1}},
		"much before":             {line[:9] + line + "\n" + line + "\n" + line, 0, 0, lines{}},
		"another gap":             {line + "\n" + line + "\r\n" + line, 0, 128, lines{64, 0}},
		"the third longer":        {line + "\n" + line + "\n" + line + "x", 0, 128, lines{64, 0}},
		"a line after a short":    {line + "\n" + line + "\n" + line[:5] + "\n" + line, 0, 133, lines{64, 0}},
		"an indentation":          {line + "\n  " + line + "\n  " + line, 0, 0, lines{}},
		"lines that are too long": {strings.Repeat(line, 4) + "\n" + strings.Repeat(line, 4), 0, 0, lines{}},
		"an escape of another":    {line + `\t` + line, 0, 0, lines{}},
		"a backslash at the end":  {line + `\`, 0, 0, lines{}},
		"an escape cut off":       {line + `\n`, 0, 0, lines{}},
	} {
		skip, chars, l := linesIn([]byte(c.text), base64Len([]byte(c.text)))
		require.Equal(t, c.lines, l, name)
		require.Equal(t, c.skip, skip, name)
		require.Equal(t, c.chars, chars, name)
		requireBlock(t, d, []byte(c.text))
		requireBlock(t, d, []byte(`"a":"`+c.text+`","b":"`+c.text+`"`))
	}
}

// TestDamagedLinesAreRefused: no number in them leads out of the source.
func TestDamagedLinesAreRefused(t *testing.T) {
	d := testDictionary([]byte(`{"data":{"token":"0123456789abcdef"},"type":"Opaque"}`))
	write := func(chars uint32, width uint64) []byte {
		w := bitWriter{}
		w.number(d.codes.tables().runs, numbers, 0)
		w.number(d.codes.tables().lengths, 0, 0)
		w.number(d.codes.tables().lengths, 0, chars)
		w.put(1, 1)
		w.put(width, widthBits)
		w.put(0, gapBits)
		for range chars {
			w.put(0, 6)
		}
		return w.end()
	}
	decode := func(block []byte, n int) bool { return d.decode(make([]byte, n), block, n) }
	require.True(t, decode(write(100, 50), 101))
	require.True(t, decode(write(100, 1), 199))
	require.False(t, decode(write(100, 50), 100), "longer than the source")
	require.False(t, decode(write(100, 50), 102), "shorter than the source")
	require.False(t, decode(write(0, 50), 10), "nothing")
	require.False(t, decode(write(100, 0), 200), "lines without a width")
	require.False(t, decode(write(1<<18-1, 255), maxBlock))
	whole := write(100, 50)
	for n := range whole {
		require.False(t, decode(whole[:n], 101))
	}
}
