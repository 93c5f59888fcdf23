// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// maxPlainNumber is the maximum length of a number without an exponent that
// needs no range check: 308 digits fit into a float64.
const maxPlainNumber = 308

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// str skips the string whose opening quote is at i, eight bytes at a time.
func (p *parser) str(i int) int {
	b := p.b
	for i++; ; {
		for ; i+8 <= len(b); i += 8 {
			x := binary.LittleEndian.Uint64(b[i:])
			// A quote with bit 1 flipped is 0x20, and control characters stay
			// below that.
			low, slash := x^0x02*ones, x^'\\'*ones
			// The lowest mark is exact; borrows can only mark bytes above a
			// true one.
			mark := ((low-0x21*ones)&^low | (slash-ones)&^slash) & highs
			if mark != 0 {
				i += bits.TrailingZeros64(mark) / 8
				break
			}
		}

		for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
			i++
		}
		switch {
		case i >= len(b):
			return p.fail(i, "unexpected end in a string")
		case b[i] == '"':
			return i + 1
		case b[i] != '\\':
			return p.fail(i, "control character in a string")
		}

		if i = p.escape(i); i < 0 {
			return -1
		}
	}
}

// escape skips the escape sequence whose backslash is at i.
func (p *parser) escape(i int) int {
	switch p.at(i + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for j := i + 2; j < i+6; j++ {
			if !isHex(p.at(j)) {
				return p.fail(j, "invalid unicode escape")
			}
		}
		return i + 6
	}

	return p.fail(i+1, "invalid escape")
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// number skips the number at i. It refuses a number that a float64 cannot hold,
// as every decoder to map[string]any does.
func (p *parser) number(i int) int {
	start, exponent := i, false
	if p.at(i) == '-' {
		i++
	}
	switch c := p.at(i); {
	case c == '0':
		i++
	case '1' <= c && c <= '9':
		i = p.digits(i)
	default:
		return p.fail(i, "invalid number")
	}

	if p.at(i) == '.' {
		if i = p.someDigits(i + 1); i < 0 {
			return -1
		}
	}

	if c := p.at(i); c == 'e' || c == 'E' {
		exponent = true
		i++
		if c := p.at(i); c == '+' || c == '-' {
			i++
		}
		if i = p.someDigits(i); i < 0 {
			return -1
		}
	}

	if exponent || i-start > maxPlainNumber {
		if _, err := strconv.ParseFloat(string(p.b[start:i]), 64); err != nil {
			return p.fail(start, "number out of range")
		}
	}

	return i
}

func (p *parser) digits(i int) int {
	for i < len(p.b) && '0' <= p.b[i] && p.b[i] <= '9' {
		i++
	}
	return i
}

func (p *parser) someDigits(i int) int {
	if c := p.at(i); c < '0' || c > '9' {
		return p.fail(i, "invalid number")
	}
	return p.digits(i)
}

// plain reports whether the string literal (with its quotes) stands for itself:
// it has neither escapes nor invalid UTF-8.
func plain(quoted []byte) bool {
	for _, c := range quoted {
		if c == '\\' {
			return false
		}
		if c >= utf8.RuneSelf {
			return bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted)
		}
	}

	return true
}

// unquote returns the string that a valid literal (with its quotes) stands for,
// resolving escapes and invalid UTF-8 as encoding/json does.
func unquote(quoted []byte) string {
	if plain(quoted) {
		return string(quoted[1 : len(quoted)-1])
	}
	var space [64]byte
	return string(AppendText(space[:0], quoted))
}

// escapes are the bytes that escapes of one byte stand for.
var escapes = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// AppendText appends what a valid literal (with its quotes) stands for,
// resolving escapes and invalid UTF-8 as encoding/json does. It leaves only
// escapes of code points and invalid UTF-8 to that: quotes are escaped in the
// keys of managedFields, and in annotations that contain JSON.
func AppendText(dst, quoted []byte) []byte {
	from, rest := len(dst), quoted[1:len(quoted)-1]
	for simple := utf8.Valid(rest); simple; {
		at := bytes.IndexByte(rest, '\\')
		if at < 0 {
			return append(dst, rest...)
		}
		c := escapes[rest[at+1]]
		if simple = c != 0; simple {
			dst = append(append(dst, rest[:at]...), c)
			rest = rest[at+2:]
		}
	}

	var s string
	// A validated literal cannot fail.
	_ = json.Unmarshal(quoted, &s)
	return append(dst[:from], s...)
}
