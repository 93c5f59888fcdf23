// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"io"
)

// value consumes one JSON value, which need not be well-formed. If pass is true,
// an object that is too large is passed.
func (l *ListReader) value(pass bool) ([]byte, error) {
	var split splitter
	fed := 0
	for {
		pending := l.w.pending()
		var end int
		var done bool
		switch pending[0] {
		case '{', '[', '"':
			end, done = split.scan(pending, fed)
		default:
			end, done = scalarEnd(pending, fed)
		}

		if end > l.max && pass && pending[0] == '{' {
			return l.passBy(&split, end, done)
		}
		if end > l.max {
			return nil, &LimitError{What: "object bytes", Limit: int64(l.max)}
		}
		if done {
			l.w.pos += end
			return pending[:end:end], nil
		}
		fed = end
		if err := l.more(); err != nil {
			return nil, err
		}
	}
}

// passBy reads to the end of an item that is too large, and returns an item
// that contains only its identity.
func (l *ListReader) passBy(split *splitter, end int, done bool) ([]byte, error) {
	c := capture{base: 1}
	err := l.w.pass(split, done, end, l.pass, &c)
	if errors.Is(err, io.EOF) {
		err = l.cutOff()
	}
	if err != nil {
		return nil, err
	}
	l.ahead.over = &LimitError{What: "object bytes", Limit: int64(l.max)}

	return c.found.appendStub(nil), nil
}

// scalarEnd finds the byte that ends a number or literal.
func scalarEnd(b []byte, i int) (int, bool) {
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case isSpace(c), c == ',', c == ']', c == '}', c == ':':
			return i, true
		}
	}

	return i, false
}

// peek skips white space and returns the byte behind it without consuming it.
func (l *ListReader) peek() (byte, error) {
	for !l.w.skipSpace() {
		if err := l.more(); err != nil {
			return 0, err
		}
	}
	return l.w.buf.b[l.w.pos], nil
}

// more calls fill where the document must not end.
func (l *ListReader) more() error {
	err := l.w.fill()
	if errors.Is(err, io.EOF) {
		return l.cutOff()
	}
	return err
}

func (l *ListReader) cutOff() error {
	return &SyntaxError{Offset: l.w.base + int64(l.w.end), Reason: "unexpected end", Err: io.ErrUnexpectedEOF}
}

func (l *ListReader) fail(reason string) error {
	return &SyntaxError{Offset: l.w.offset(), Reason: reason}
}
