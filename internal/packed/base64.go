// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import "encoding/binary"

// Base64, as in the data of Secrets and in certificates, is kept as the six bits
// that each of its characters stands for. Prefix codes would take as many, if
// the data are random, but each character would have to wait for the one before
// it. Pairs of characters are read by one access to a table.

// base64Min is the length from which on base64 is kept apart.
const base64Min = 32

// base64Digits are the characters, by what they stand for.
const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// noDigit is no value of a character.
const noDigit = 0xff

// base64Values are what the characters stand for, and noDigit for others.
var base64Values = func() (values [256]uint8) {
	for c := range values {
		values[c] = noDigit
	}
	for value, c := range []byte(base64Digits) {
		values[c] = uint8(value) //nolint:gosec // less than 64
	}
	return values
}()

// Sorts of characters of base64.
const (
	base64Upper = 1 << iota
	base64Lower // that is not hexadecimal
	base64Digit
	base64Other
	base64All = base64Upper | base64Lower | base64Digit
)

// base64Sorts are the sorts of the characters; 0 is no character of base64.
var base64Sorts = func() (sorts [256]uint8) {
	for _, c := range []byte(base64Digits) {
		switch {
		case 'A' <= c && c <= 'Z':
			sorts[c] = base64Upper
		case 'g' <= c && c <= 'z':
			sorts[c] = base64Lower
		case '0' <= c && c <= '9':
			sorts[c] = base64Digit
		default:
			sorts[c] = base64Other
		}
	}
	return sorts
}()

// base64In finds the first base64 among literals. What has not all sorts of
// characters is hexadecimal, or a word, and may have shorter codes.
func base64In(b []byte) (from, to int) {
	for ; len(b)-from >= base64Min; from = to + 1 {
		sorts := uint8(0)
		for to = from; to < len(b) && base64Sorts[b[to]] != 0; to++ {
			sorts |= base64Sorts[b[to]]
		}
		if to-from >= base64Min && sorts&base64All == base64All {
			return from, to
		}
	}

	return 0, 0
}

// base64 writes characters of base64, the bits of each pair as in base64.
func (w *bitWriter) base64(chars []byte) {
	for ; len(chars) >= 4; chars = chars[4:] {
		x := uint64(base64Values[chars[0]])<<6 | uint64(base64Values[chars[1]]) |
			uint64(base64Values[chars[2]])<<18 | uint64(base64Values[chars[3]])<<12
		w.put(x, 4*6)
	}
	if len(chars) >= 2 {
		w.put(uint64(base64Values[chars[0]])<<6|uint64(base64Values[chars[1]]), 2*6)
		chars = chars[2:]
	}
	if len(chars) > 0 {
		w.put(uint64(base64Values[chars[0]]), 6)
	}
}

// base64 reads characters of base64.
func (r *bitReader) base64(dst []byte) {
	for ; len(dst) >= 8; dst = dst[8:] {
		r.fill()
		x := r.acc
		binary.LittleEndian.PutUint64(dst, digits(x, x>>12, x>>24, x>>36))
		r.acc >>= 8 * 6
		r.n -= 8 * 6
	}

	r.fill()
	for ; len(dst) >= 2; dst = dst[2:] {
		binary.LittleEndian.PutUint16(dst, base64Pairs[r.acc&(1<<12-1)])
		r.acc >>= 2 * 6
		r.n -= 2 * 6
	}
	if len(dst) > 0 {
		dst[0] = base64Digits[r.acc&63]
		r.acc >>= 6
		r.n -= 6
	}
}

// base64Pairs are all pairs of characters, by what they stand for.
var base64Pairs = func() (pairs [1 << 12]uint16) {
	for i := range pairs {
		pairs[i] = uint16(base64Digits[i>>6]) | uint16(base64Digits[i&63])<<8
	}
	return pairs
}()

// digits returns the eight characters that the lowest 12 bits of these stand
// for, in the order of memory.
func digits(a, b, c, d uint64) uint64 {
	const pair = 1<<12 - 1
	return uint64(base64Pairs[a&pair]) | uint64(base64Pairs[b&pair])<<16 |
		uint64(base64Pairs[c&pair])<<32 | uint64(base64Pairs[d&pair])<<48
}
