// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"encoding/base64"
	"math/rand/v2"
	"strings"
)

func word(r *rand.Rand, n int) string { return letters(r, n, "bcdfghjklmnpqrstvwxz2456789") }

func hex(r *rand.Rand, n int) string { return letters(r, n, "0123456789abcdef") }

func letters(r *rand.Rand, n int, alphabet string) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

func uid(r *rand.Rand) string {
	return hex(r, 8) + "-" + hex(r, 4) + "-4" + hex(r, 3) + "-a" + hex(r, 3) + "-" + hex(r, 12)
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.UintN(256))
	}
	return b
}

// pemLine is the length of a line of PEM.
const pemLine = 64

// pem returns random data that look like a PEM block of n bytes.
func pem(r *rand.Rand, name string, n int) string {
	text := base64.StdEncoding.EncodeToString(randomBytes(r, n))
	var b strings.Builder
	b.WriteString("-----BEGIN " + name + "-----\n")
	for len(text) > 0 {
		line := text[:min(pemLine, len(text))]
		text = text[len(line):]
		b.WriteString(line + "\n")
	}
	b.WriteString("-----END " + name + "-----\n")

	return b.String()
}
