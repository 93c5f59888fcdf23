// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

// Base64, as in the data of Secrets and in certificates, is kept as the six bits
// that each of its characters stands for. Prefix codes would take as many, if
// the data are random, but each character would have to wait for the one before
// it.

// base64Min is the length from which on base64 is kept apart.
const base64Min = 32

// base64Digits are the characters, by what they stand for.
const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// base64Values are what the characters stand for.
var base64Values = func() (values [256]uint8) {
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

// base64 writes characters of base64.
func (w *bitWriter) base64(chars []byte) {
	for ; len(chars) >= 4; chars = chars[4:] {
		x := uint64(base64Values[chars[0]]) | uint64(base64Values[chars[1]])<<6 |
			uint64(base64Values[chars[2]])<<12 | uint64(base64Values[chars[3]])<<18
		w.put(x, 4*6)
	}
	for _, c := range chars {
		w.put(uint64(base64Values[c]), 6)
	}
}

// base64 reads characters of base64.
func (r *bitReader) base64(dst []byte) {
	for ; len(dst) >= 8; dst = dst[8:] {
		r.fill()
		acc := r.acc
		for i := range dst[:8] {
			dst[i] = base64Digits[acc&63]
			acc >>= 6
		}
		r.acc, r.n = acc, r.n-8*6
	}

	r.fill()
	for i := range dst {
		dst[i] = base64Digits[r.acc&63]
		r.acc >>= 6
		r.n -= 6
	}
}
