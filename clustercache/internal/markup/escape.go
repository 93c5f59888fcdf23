// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package markup

import "unicode/utf8"

// appendEscaped appends text as it is written both between tags and between
// double quotes: a parser reads the same text, except that U+FFFD stands for
// each byte that is not UTF-8 and for characters that HTML forbids.
func appendEscaped(out []byte, text string) []byte {
	for _, r := range text {
		switch {
		case r == '&':
			out = append(out, "&amp;"...)
		case r == '<':
			out = append(out, "&lt;"...)
		case r == '>':
			out = append(out, "&gt;"...)
		case r == '"':
			out = append(out, "&#34;"...)
		case r == '\'':
			out = append(out, "&#39;"...)
		case r == '\r': // a parser would read a line feed
			out = append(out, "&#13;"...)
		case forbidden(r):
			out = utf8.AppendRune(out, utf8.RuneError)
		default:
			out = utf8.AppendRune(out, r)
		}
	}

	return out
}

// forbidden reports whether a document must not contain a character, not even
// as a reference: controls other than white space, and noncharacters.
func forbidden(r rune) bool {
	switch {
	case r < ' ':
		return r != '\t' && r != '\n' && r != '\f'
	case r >= 0x7f && r < 0xa0, r >= 0xfdd0 && r <= 0xfdef:
		return true
	}

	return r&0xfffe == 0xfffe
}
