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

// maxPlainNumber is the longest number that needs no range check if it has no
// exponent: 308 digits fit into a float64.
const maxPlainNumber = 308

// parser validates JSON held in one slice. Its methods take the position where
// something begins and return the position after it, or -1 after a failure,
// which is then described by err.
type parser struct {
	b   []byte
	err error
}

// fail records the first failure.
func (p *parser) fail(i int, reason string) int {
	if p.err == nil {
		p.err = &SyntaxError{Offset: int64(i), Reason: reason}
	}
	return -1
}

// refuse records that a field is not what it must be.
func (p *parser) refuse(field, reason string) int {
	if p.err == nil {
		p.err = &FieldError{Field: field, Reason: reason}
	}
	return -1
}

// space skips white space.
func (p *parser) space(i int) int {
	for i < len(p.b) && p.b[i] <= ' ' && isSpace(p.b[i]) {
		i++
	}
	return i
}

// at returns the byte at i, or 0 behind the end.
func (p *parser) at(i int) byte {
	if i < len(p.b) {
		return p.b[i]
	}
	return 0
}

// value skips one value that begins at i.
func (p *parser) value(i int) int {
	c := p.at(i)
	if c == '{' || c == '[' {
		return p.container(i)
	}
	return p.scalar(i, c)
}

// scalar skips a string, number or literal that begins with c.
func (p *parser) scalar(i int, c byte) int {
	switch {
	case c == '"':
		return p.str(i)
	case c == '-' || '0' <= c && c <= '9':
		return p.number(i)
	case c == 't':
		return p.literal(i, "true")
	case c == 'f':
		return p.literal(i, "false")
	case c == 'n':
		return p.literal(i, "null")
	case i >= len(p.b):
		return p.fail(i, "unexpected end")
	default:
		return p.fail(i, "expected a value")
	}
}

func (p *parser) literal(i int, lit string) int {
	if len(p.b)-i < len(lit) || string(p.b[i:i+len(lit)]) != lit {
		return p.fail(i, "invalid literal")
	}
	return i + len(lit)
}

// container skips the object or array that begins at i. It keeps its own stack,
// one bit per level, so that hostile nesting costs no goroutine stack.
func (p *parser) container(i int) int {
	var outer nesting
	var array bool // what the innermost open container is
	for depth := 0; ; {
		c := p.at(i)
		if c == '{' || c == '[' {
			if depth == MaxDepth {
				p.err = &LimitError{What: "nesting depth", Limit: MaxDepth}
				return -1
			}
			outer.push(depth, array)
			depth, array = depth+1, c == '['
			i = p.space(i + 1)
			if p.at(i) != c+2 { // '}' and ']' follow their opening bracket by two
				if !array {
					i = p.key(i)
				}
				if i < 0 {
					return -1
				}
				continue
			}
		} else if i = p.scalar(i, c); i < 0 {
			return -1
		}
		for i = p.space(i); p.at(i) != ','; i = p.space(i) {
			if i >= len(p.b) || array && p.b[i] != ']' || !array && p.b[i] != '}' {
				return p.badEnd(i)
			}
			i++
			if depth--; depth == 0 {
				return i
			}
			array = outer.pop(depth)
		}
		if i = p.space(i + 1); !array {
			i = p.key(i)
		}
		if i < 0 {
			return -1
		}
	}
}

func (p *parser) badEnd(i int) int {
	if i >= len(p.b) {
		return p.fail(i, "unexpected end")
	}
	return p.fail(i, "expected a comma or the end of the object or array")
}

// key skips a key and its colon and returns where its value begins.
func (p *parser) key(i int) int {
	if p.at(i) != '"' {
		return p.fail(i, "expected a key")
	}
	if i = p.str(i); i < 0 {
		return -1
	}
	return p.colon(i)
}

func (p *parser) colon(i int) int {
	if i = p.space(i); p.at(i) != ':' {
		return p.fail(i, "expected a colon")
	}
	return p.space(i + 1)
}

// nesting is a stack of flags, one bit each. The usual depths need one word.
type nesting struct {
	top   uint64
	below []uint64
}

// push puts a flag on a stack of n.
func (s *nesting) push(n int, flag bool) {
	if n%64 == 0 && n > 0 {
		s.below = append(s.below, s.top)
	}
	if bit := uint64(1) << (n % 64); flag {
		s.top |= bit
	} else {
		s.top &^= bit
	}
}

// pop takes the last flag off, which leaves n.
func (s *nesting) pop(n int) bool {
	flag := s.top>>(n%64)&1 != 0
	if last := len(s.below) - 1; n%64 == 0 && n > 0 {
		s.top, s.below = s.below[last], s.below[:last]
	}
	return flag
}

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
			// A quote with bit 1 flipped is 0x20, and control characters stay below that.
			low, slash := x^0x02*ones, x^'\\'*ones
			// The lowest mark is exact; borrows can only mark bytes above a true one.
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

// number skips the number at i. One that a float64 cannot hold is refused, as
// every decoder to map[string]any refuses it.
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
	var s string
	// A validated literal cannot fail.
	_ = json.Unmarshal(quoted, &s)
	return s
}

// keyIs reports whether the key literal (with its quotes) stands for name.
func keyIs(quoted []byte, name string) bool {
	if plain(quoted) {
		return string(quoted[1:len(quoted)-1]) == name
	}
	return unquote(quoted) == name
}
