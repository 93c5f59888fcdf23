// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"encoding/pem"
	"math/rand/v2"
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

// randomPEM returns random data that look like a PEM block of n bytes.
func randomPEM(r *rand.Rand, name string, n int) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: name, Bytes: randomBytes(r, n)})
}
