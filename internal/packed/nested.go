// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Nested text is text in base64, as PEM in the data of a Secret is: base64 in
// lines, and all of it in base64 once more. Six bits for each of its characters
// would be eight for each of the text's. So it is replaced by the text, between
// two bytes that occur in no JSON; text nested in it likewise. Then a dense block
// finds in it what it finds in any text.
//
//	"tls.crt":"LS0tLS1CRUdJTi…" ◄─nest── unnest─► "tls.crt":"␁-----BEGIN…␂"
//
// A padding stays behind the second byte.

const (
	nestBegin = 1 // precedes a text
	nestEnd   = 2 // follows it
	// nestMax bounds the levels.
	nestMax = 3
	// nestStride is the distance at which base64 of some length is looked for.
	nestStride = 64
	// nestMin is the length from which on it is sure to be found.
	nestMin = nestStride + nestStride/2
)

// unnest returns the parts of s without their nested text, which the caller must
// close, or nil if there is none. From what it returns nest restores the same.
func (s *scratch) unnest() *scratch {
	texts := s.texts()
	if len(s.plain) > 2*maxBlock || nextNested(s.plain[texts:], 0) < 0 {
		return nil
	}
	u := newScratch()
	u.plain, u.parts = append(u.plain[:0], s.plain[:texts]...), s.parts
	// Labels and owner references stay as they are: they are read alone.
	inMetadata := u.appendUnnested(s.metadata(), 0)
	u.metaLen = len(u.plain) - texts
	inRest := u.appendUnnested(s.rest(), 0)

	if (inMetadata || inRest) && u.restores(s) {
		return u
	}
	u.close()

	return nil
}

// restores reports whether nest makes s of u.
func (s *scratch) restores(from *scratch) bool {
	t := newScratch()
	defer t.close()
	t.parts = s.parts
	return t.nest(s.plain) && t.parts == from.parts && bytes.Equal(t.plain, from.plain)
}

// appendUnnested appends b without its nested text, and reports whether there
// is any.
func (s *scratch) appendUnnested(b []byte, level int) (found bool) {
	if level == nestMax {
		s.plain = append(s.plain, b...)
		return false
	}
	inner := newScratch()
	defer inner.close()
	done := 0
	for at := nextNested(b, 0); at >= 0; {
		var n, all int
		if inner.plain, n, all = decodeText(inner.plain[:0], b[at:]); n > 0 {
			found = true
			s.plain = append(append(s.plain, b[done:at]...), nestBegin)
			s.appendUnnested(inner.plain, level+1)
			s.plain = append(s.plain, nestEnd)
			done = at + n
		}
		at = nextNested(b, at+all)
	}
	s.plain = append(s.plain, b[done:]...)

	return found
}

// nest puts into s.plain the parts that b has without their nested text. s has
// their lengths in b, and has their real ones afterwards. It reports whether b
// is valid.
func (s *scratch) nest(b []byte) (ok bool) {
	texts := s.texts()
	end := texts + s.metaLen
	if end > len(b) {
		return false
	}
	s.plain = append(slices.Grow(s.plain[:0], len(b)*4/3), b[:texts]...)
	if s.plain, ok = appendNested(s.plain, b[texts:end]); !ok {
		return false
	}
	s.metaLen = len(s.plain) - texts
	s.plain, ok = appendNested(s.plain, b[end:])

	return ok
}

// appendNested appends b, in which it puts texts into base64 again. It reports
// whether b is valid.
func appendNested(dst, b []byte) (nested []byte, ok bool) {
	var open [nestMax]int // where the texts begin in dst, the innermost last
	for level := 0; ; {
		to := len(b)
		if level > 0 {
			if to = bytes.IndexByte(b, nestEnd); to < 0 {
				return dst, false
			}
		}
		begin := bytes.IndexByte(b[:to], nestBegin)
		switch {
		case begin >= 0 && level == nestMax:
			return dst, false
		case begin >= 0:
			dst = append(dst, b[:begin]...)
			b = b[begin+1:]
			open[level] = len(dst)
			level++
		case level > 0:
			dst = append(dst, b[:to]...)
			b = b[to+1:]
			level--
			dst = encodeFrom(dst, open[level])
		default:
			return append(dst, b...), true
		}
	}
}

// nextNested finds the next base64 from an index on that begins like a text, or
// returns -1. It is sure to find it if it has at least nestMin characters. Most
// of b is only looked at now and then.
func nextNested(b []byte, from int) int {
	isOther := false // what precedes from is base64 of something else
	for i := from + nestStride - 1; i < len(b); i += nestStride {
		if base64Sorts[b[i]] == 0 || base64Sorts[b[i-nestStride/2]] == 0 {
			continue
		}
		if isOther && !ends(b[from:i]) {
			from = i
			continue
		}
		isOther = false
		begin := i
		for begin > from && base64Sorts[b[begin-1]] != 0 {
			begin--
		}
		if i-begin < nestStride/2 {
			continue // it has less than nestMin, or was looked at
		}
		if beginsText(b[begin:i]) {
			return begin
		}
		from, isOther = i, true
	}

	return -1
}

// ends reports whether base64 ends somewhere in b, as it does before a quote or
// white space.
func ends(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		x := load(b, 0)
		if (x-ones*'+')&^x&highs != 0 { // the lowest character
			return true
		}
	}
	for _, c := range b {
		if c < '+' {
			return true
		}
	}
	return false
}

// beginsText reports whether characters of base64 may be those of a text.
func beginsText(chars []byte) bool {
	for ; len(chars) >= 4; chars = chars[4:] {
		a, b, c := decode4(chars)
		if !textBytes[a] || !textBytes[b] || !textBytes[c] {
			return false
		}
	}
	return true
}

// textBytes are the bytes of texts that are not left in base64.
var textBytes = func() (text [256]bool) {
	for c := range text {
		text[c] = ' ' <= c && c <= '~' || c == '\n' || c == '\r' || c == '\t'
	}
	return text
}()

// decodeText appends the text that the characters of base64 stand for that b
// begins with. It returns the number of those that encode it without a padding,
// 0 if it is no text, and the number of all.
func decodeText(dst, b []byte) (text []byte, n, all int) {
	text = slices.Grow(dst, len(b)/4*3+4)
	at := len(dst)
	for room := text[:cap(text)]; n+4 <= len(b); n += 4 {
		x := uint32(base64Values[b[n]]) | uint32(base64Values[b[n+1]])<<8 |
			uint32(base64Values[b[n+2]])<<16 | uint32(base64Values[b[n+3]])<<24
		if x&0x80808080 != 0 { // noDigit
			break
		}
		x = x<<26 | x<<12&(63<<20) | x>>2&(63<<14) | x>>16&(63<<8)
		binary.BigEndian.PutUint32(room[at:], x)
		at += 3
	}
	text = text[:at]

	// The end of what has a padding, in which all bits that stand for nothing
	// are zero, as encodeFrom has them.
	last := [4]byte{'A', 'A', 'A', 'A'}
	rest := base64Len(b[n:min(n+4, len(b))])
	copy(last[:], b[n:n+rest])
	all = n + rest
	switch x, y, z := decode4(last[:]); {
	case rest == 2 && y == 0:
		text, n = append(text, x), all
	case rest == 3 && z == 0:
		text, n = append(text, x, y), all
	}
	if !isText(text[len(dst):]) {
		return dst, 0, all
	}

	return text, n, all
}

// isText reports whether b is a text that is not left in base64.
func isText(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		x := load(b, 0)
		if ((x-ones*' ')|(x+ones)|x)&highs == 0 {
			continue // printable characters only
		}
		for _, c := range b[:8] {
			if !textBytes[c] {
				return false
			}
		}
	}
	for _, c := range b {
		if !textBytes[c] {
			return false
		}
	}
	return true
}

// decode4 returns the three bytes that the next four characters stand for.
func decode4(chars []byte) (a, b, c byte) {
	_ = chars[3]
	bits := uint32(base64Values[chars[0]])<<18 | uint32(base64Values[chars[1]])<<12 |
		uint32(base64Values[chars[2]])<<6 | uint32(base64Values[chars[3]])
	return byte(bits >> 16), byte(bits >> 8), byte(bits) //nolint:gosec // the bytes of it
}

// encodeFrom puts what dst has from an index on into base64, without a padding.
func encodeFrom(dst []byte, from int) []byte {
	n := len(dst) - from
	chars := n/3*4 + n%3
	if n%3 > 0 {
		chars++
	}
	dst = slices.Grow(dst, chars-n)[:from+chars]
	b := dst[from:]

	// From the end on: what is written is never before what is yet to be read.
	at := n / 6 * 6
	if at < n {
		var rest, digits [8]byte
		copy(rest[:], b[at:n])
		putDigits(digits[:], rest[:])
		copy(b[at/3*4:], digits[:])
	}
	for at > 0 {
		at -= 6
		putDigits(b[at/3*4:], b[at:])
	}

	return dst
}

// putDigits writes the eight characters that stand for the first six of eight
// bytes.
func putDigits(chars, of []byte) {
	x := binary.BigEndian.Uint64(of)
	binary.LittleEndian.PutUint64(chars, digits(x>>52, x>>40, x>>28, x>>16))
}
