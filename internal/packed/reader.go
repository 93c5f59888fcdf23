// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"math/bits"
	"unicode/utf8"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// reader traverses JSON that was validated before it was packed, so it checks
// nothing. That makes decoding cheaper than with the library, which validates
// first.
type reader struct {
	b     []byte
	i     int
	space []byte // for a literal with escapes
}

// begin begins to read b.
func (r *reader) begin(b []byte) { r.b, r.i = b, 0 }

// peek skips white space and returns the next byte, or 0 at the end.
func (r *reader) peek() byte {
	for ; r.i < len(r.b); r.i++ {
		if c := r.b[r.i]; c > ' ' {
			return c
		}
	}
	return 0
}

// enter enters an object or array.
func (r *reader) enter() { r.i++ }

// more advances to the next member or element and returns true, or leaves the
// object or array and returns false. A list of members without braces ends with
// the bytes.
func (r *reader) more() bool {
	switch r.peek() {
	case ',':
		r.i++
		r.peek()
		return true
	case '}', ']':
		r.i++
		return false
	}

	return r.i < len(r.b)
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// literal reads a string literal with its quotes. plain reports whether the
// literal contains nothing to resolve.
func (r *reader) literal() (quoted []byte, plain bool) {
	b, i := r.b, r.i+1
	ascii, plain := true, true
	for b[i] != '"' {
		if i+8 <= len(b) {
			x := load(b, i)
			quote, slash := x^'"'*ones, x^'\\'*ones
			// The lowest mark is exact; borrows can only mark bytes above a
			// true one.
			mark := ((quote-ones)&^quote | (slash-ones)&^slash | x) & highs
			if mark == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(mark) / 8
		}

		switch c := b[i]; {
		case c == '\\':
			plain = false
			i += 2
		case c != '"':
			ascii = ascii && c < utf8.RuneSelf
			i++
		}
	}

	quoted = b[r.i : i+1]
	r.i = i + 1

	return quoted, plain && (ascii || utf8.Valid(quoted))
}

// text reads a string literal and returns the bytes that it stands for. They
// are valid until the next call.
func (r *reader) text() []byte {
	quoted, plain := r.literal()
	if plain {
		return quoted[1 : len(quoted)-1]
	}
	r.space = wire.AppendText(r.space[:0], quoted)
	return r.space
}

// key reads a key and advances to its value.
func (r *reader) key() []byte {
	k := r.text()
	r.peek()
	r.i++ // the colon
	r.peek()
	return k
}

// skip advances to the value of the next member if its key, with quotes and
// colon, is this one.
func (r *reader) skip(key string) bool {
	end := r.i + len(key)
	if end > len(r.b) || r.b[r.i+1] != key[1] || string(r.b[r.i:end]) != key {
		return false
	}
	r.i = end
	r.peek()
	return true
}

// scalar reads a number, true, false or null.
func (r *reader) scalar() []byte {
	start := r.i
	for ; r.i < len(r.b); r.i++ {
		switch c := r.b[r.i]; {
		case c <= ' ', c == ',', c == '}', c == ']':
			return r.b[start:r.i]
		}
	}

	return r.b[start:r.i]
}

// raw skips a value and returns its bytes.
func (r *reader) raw() []byte {
	start := r.i
	switch r.b[r.i] {
	case '"':
		r.literal()
	case '{', '[':
		r.container()
	default:
		return r.scalar()
	}

	return r.b[start:r.i]
}

// container skips an object or array.
func (r *reader) container() {
	for depth := 0; ; {
		switch r.b[r.i] {
		case '"':
			r.skipLiteral()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				r.i++
				return
			}
		}

		r.i++
	}
}

// skipLiteral skips a string literal. Only a quote after a backslash may not be
// its end.
func (r *reader) skipLiteral() {
	end := r.i + 1 + bytes.IndexByte(r.b[r.i+1:], '"')
	if r.b[end-1] == '\\' {
		r.literal()
		return
	}
	r.i = end + 1
}
