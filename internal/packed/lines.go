// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

// Base64 in lines, as in PEM, is kept as one base64, without what is between the
// lines:
//
//	lines = 0, number of characters, [ width ], number of the gap, characters
//
// 0 is no length of base64. All lines but the last one have the same width, and
// the same gap is between any two of them.

const (
	// pemWidth is the width of lines in PEM, which is not written.
	pemWidth = 64
	// widthBits are those of another width.
	widthBits = 8
	// skipMax is how many characters of base64 may precede the first line, as
	// the n of an escaped newline does.
	skipMax = 8
	// gapBits are those of the number of a gap.
	gapBits = 2
)

// gaps are what may be between lines: newlines, as they are or escaped. What is
// longer, such as an indentation, is a match.
var gaps = [1 << gapBits]string{"\n", `\n`, `\\n`, "\r\n"}

// lines says how base64 is divided into lines; the zero value that it is not.
type lines struct{ width, gap int } // gap is a number

// span returns how many bytes characters in these lines take.
func (l lines) span(chars int) int {
	if l.width == 0 {
		return chars
	}
	return chars + (chars-1)/l.width*len(gaps[l.gap])
}

// linesIn finds lines at the beginning of b, which begins with some characters
// of base64. It returns how many of these precede the lines, and how many
// characters are in the lines; 0 if there are no lines.
func linesIn(b []byte, run int) (skip, chars int, l lines) {
	number := gapAt(b[run:])
	if number < 0 {
		return 0, 0, lines{}
	}
	gap := gaps[number]
	width := run
	second := base64Len(b[run+len(gap):])
	// A line between two others is whole. Before the first one there may be
	// something else.
	if after := b[run+len(gap)+second:]; gapAt(after) == number && base64Len(after[len(gap):]) > 0 {
		width = second
	}
	skip = run - width
	if second == 0 || second > width || skip < 0 || skip > skipMax || width >= 1<<widthBits {
		return 0, 0, lines{}
	}

	chars = width
	for n, at := width, run; n == width && gapAt(b[at:]) == number; at += len(gap) + n {
		if n = base64Len(b[at+len(gap):]); n > width {
			break
		}
		chars += n
	}

	return skip, chars, lines{width, number}
}

// base64Len returns the number of characters of base64 that b begins with.
func base64Len(b []byte) int {
	for i, c := range b {
		if base64Sorts[c] == 0 {
			return i
		}
	}
	return len(b)
}

// gapAt returns the number of the gap that b begins with, or -1.
func gapAt(b []byte) int {
	for number, gap := range gaps {
		if len(b) >= len(gap) && string(b[:len(gap)]) == gap {
			return number
		}
	}
	return -1
}

// lines writes the lines that src begins with.
func (w *bitWriter) lines(lengths *code, src []byte, chars int, l lines) {
	w.number(lengths, 0, 0)
	w.number(lengths, 0, uint32(chars)) //nolint:gosec // at most maxBlock
	if l.width == pemWidth {
		w.put(0, 1)
	} else {
		w.put(1, 1)
		w.put(uint64(l.width), widthBits) //nolint:gosec // positive
	}
	w.put(uint64(l.gap), gapBits) //nolint:gosec // positive

	for {
		n := min(chars, l.width)
		w.base64(src[:n])
		if chars -= n; chars == 0 {
			return
		}
		src = src[n+len(gaps[l.gap]):]
	}
}

// lines reads lines, whose 0 is read already, into dst, of which it may fill
// only the first enough bytes. It returns how many it has filled, 0 if the lines
// are not valid.
func (r *bitReader) lines(lengths *code, dst []byte, enough int) int {
	r.fill()
	chars := r.number(lengths)
	l := lines{width: pemWidth}
	if r.bits(1) != 0 {
		l.width = r.bits(widthBits)
	}
	l.gap = r.bits(gapBits)
	if chars == 0 || l.width == 0 || r.exceeded() || l.span(chars) > len(dst) {
		return 0
	}

	for at := 0; ; {
		n := min(chars, l.width)
		r.base64(dst[at : at+n])
		at += n
		if chars -= n; chars == 0 || at >= enough {
			return at
		}
		at += copy(dst[at:], gaps[l.gap])
	}
}

// bits reads the next n bits, which must be available.
func (r *bitReader) bits(n uint) int {
	x := int(r.acc & (1<<n - 1)) //nolint:gosec // few bits
	r.acc >>= n
	r.n -= n
	return x
}
