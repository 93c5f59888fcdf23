// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package markup

import (
	"html"
	"strings"
	"unicode/utf8"
)

// appendEscaped appends text as it is written both between tags and between
// double quotes: a parser reads the same text, except that U+FFFD stands for
// each byte that is not UTF-8 and for characters that HTML forbids.
func appendEscaped(out []byte, text string) []byte {
	text = html.EscapeString(strings.Map(readable, text))
	return append(out, strings.ReplaceAll(text, "\r", "&#13;")...) // a parser would read a line feed
}

// readable returns U+FFFD for a character that a document must not contain, not
// even as a reference: a control other than white space, or a noncharacter.
func readable(r rune) rune {
	switch {
	case r == '\t', r == '\n', r == '\f', r == '\r':
		return r
	case r < ' ', r >= 0x7f && r < 0xa0, r >= 0xfdd0 && r <= 0xfdef, r&0xfffe == 0xfffe:
		return utf8.RuneError
	}

	return r
}
