// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "bytes"

// Byte classes at which the splitter stops.
const (
	classOpen  = 1
	classClose = 2
	classQuote = 3
)

var splitClass = [256]uint8{
	'{': classOpen,
	'[': classOpen,
	'}': classClose,
	']': classClose,
	'"': classQuote,
}

// splitter finds the end of one JSON object, array or string by counting
// brackets outside strings. Its input may arrive in pieces. It does not
// validate: for bytes that are not JSON it returns some prefix, which Scan then
// refuses. For valid JSON the result is exact.
type splitter struct {
	depth    int
	inString bool
	escaped  bool // the last byte fed was a backslash that escapes the next one
	inner    int  // number of containers closed at depth one
	innerEnd int  // position after the last of them, in the caller's terms
}

// scan reads b from position i. It returns the position after the end of the
// value, or len(b) and false if the value is not complete yet.
func (s *splitter) scan(b []byte, i int) (int, bool) {
	for i < len(b) {
		if s.inString {
			if i = s.skipString(b, i); s.inString {
				return len(b), false
			}
			if s.depth == 0 {
				return i, true
			}
			continue
		}

		for i < len(b) && splitClass[b[i]] == 0 {
			i++
		}
		if i == len(b) {
			break
		}

		switch splitClass[b[i]] {
		case classQuote:
			s.inString = true
		case classOpen:
			s.depth++
		case classClose:
			s.depth--
			if s.depth == 1 {
				s.inner, s.innerEnd = s.inner+1, i+1
			}
		}

		i++
		if s.depth <= 0 && !s.inString {
			return i, true
		}
	}

	return len(b), false
}

// skipString leaves the string and returns the position after its closing
// quote, or returns len(b) if the string is not complete yet.
func (s *splitter) skipString(b []byte, i int) int {
	for i < len(b) {
		if s.escaped {
			s.escaped = false
			i++
			continue
		}
		n := bytes.IndexByte(b[i:], '"')
		end := i + n
		if n < 0 {
			end = len(b)
		}
		slashes := 0
		for j := end - 1; j >= i && b[j] == '\\'; j-- {
			slashes++
		}
		odd := slashes%2 == 1
		switch {
		case n < 0:
			s.escaped = odd
			return len(b)
		case odd:
			i = end + 1
		default:
			s.inString = false
			return end + 1
		}
	}

	return len(b)
}
