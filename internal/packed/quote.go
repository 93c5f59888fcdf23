// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

// hexDigits are used to escape control characters.
const hexDigits = "0123456789abcdef"

// appendQuoted appends s, which must be valid UTF-8, as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		if c < 0x20 {
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		} else {
			dst = append(dst, '\\', c)
		}
		from = i + 1
	}

	dst = append(dst, s[from:]...)
	return append(dst, '"')
}
