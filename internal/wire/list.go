// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"errors"
	"io"
)

// ListReader streams the items of one list page. It holds one buffer no larger
// than twice the largest item. It is not safe for concurrent use. A blocked
// Next ends when the underlying reader does.
type ListReader struct {
	w      window
	max    int
	pass   int64 // how many bytes of an item are read at most to pass it; 0 if none is passed
	state  func(*ListReader) ([]byte, error)
	header ListHeader
	items  bool   // the key "items" was seen
	keep   bool   // the other members are kept
	kept   []byte // each after a comma
	err    error
	ahead  ahead
}

// NewListReader returns a reader of the list page in r.
func NewListReader(r io.Reader, l Limits) *ListReader {
	return &ListReader{
		w:     window{r: r, limit: cmp.Or(l.Response, DefaultResponseLimit)},
		max:   l.object(),
		pass:  l.passing(),
		state: (*ListReader).begin,
	}
}

// Next returns the next item's raw JSON, not yet validated (see Scan) and valid
// until the next call. It blocks in the underlying reader. After the end of the
// document it returns io.EOF. A document that is not a list, not JSON, cut off,
// too large or followed by more data is an error. The underlying reader's own
// errors are returned unchanged. After an error, every call returns that error.
func (l *ListReader) Next() ([]byte, error) {
	l.ahead.begin()
	for l.err == nil {
		item, err := l.state(l)
		if item != nil {
			l.ahead.raw, l.ahead.size = item, len(item)
			return item, nil
		}
		l.err = err
	}

	l.w.close()
	return nil, l.err
}

// Object returns the item last returned by Next.
func (l *ListReader) Object() []byte { return l.ahead.raw }

// Scan calls the package's Scan on the item last returned by Next. Once Scan
// has been called, the reader finds and validates later items in a single pass,
// which takes half the time.
func (l *ListReader) Scan() (Item, error) { return l.ahead.scan(&l.w) }

// Header returns what has been read of the list's header so far. It is complete
// only after io.EOF, because lists of custom resources have their header behind
// the items.
func (l *ListReader) Header() ListHeader { return l.header }

// KeepMembers makes the reader keep the other members of the list, up to
// MaxKept bytes, for [ListReader.Members].
func (l *ListReader) KeepMembers() { l.keep = true }

// Members returns the members of the list other than apiVersion, kind and
// items, unchanged and each after a comma. They are complete after io.EOF.
func (l *ListReader) Members() []byte { return l.kept }

// keepMember stores a member for Members.
func (l *ListReader) keepMember(key string, raw []byte) error {
	if len(l.kept)+len(key)+len(raw) > MaxKept {
		return &LimitError{What: "bytes beside the items", Limit: MaxKept}
	}
	l.kept = append(append(appendJSON(append(l.kept, ','), key), ':'), raw...)
	return nil
}

// Close releases the buffer. Later calls of Next fail, and the item last
// returned becomes invalid. Close does not close the underlying reader.
func (l *ListReader) Close() {
	l.w.close()
	if l.err == nil {
		l.err = errClosed
	}
}

// begin reads the beginning of the document.
func (l *ListReader) begin() ([]byte, error) {
	c, err := l.peek()
	if err != nil {
		return nil, err
	}
	if c != '{' {
		return nil, l.fail("expected a list")
	}
	l.w.pos++
	if c, err = l.peek(); err != nil {
		return nil, err
	}
	l.state = (*ListReader).member
	if c == '}' {
		l.state = (*ListReader).afterMember
	}

	return nil, nil
}

// member reads a key and, unless it is "items", its value.
func (l *ListReader) member() ([]byte, error) {
	if c, err := l.peek(); err != nil || c != '"' {
		return nil, cmp.Or(err, l.fail("expected a key"))
	}
	quotedKey, err := l.value(false)
	if err != nil {
		return nil, err
	}
	p := parser{b: quotedKey}
	if p.str(0) < 0 {
		return nil, l.w.locate(p.err, len(quotedKey))
	}
	key := unquote(quotedKey)
	if c, err := l.peek(); err != nil || c != ':' {
		return nil, cmp.Or(err, l.fail("expected a colon"))
	}
	l.w.pos++
	c, err := l.peek()
	if err != nil {
		return nil, err
	}
	if key == "items" && c == '[' {
		return nil, l.enterItems()
	}
	l.state = (*ListReader).afterMember

	return nil, l.readMember(key)
}

// enterItems advances to the first item.
func (l *ListReader) enterItems() error {
	if l.items {
		// The last of equal keys would count, but the earlier items have
		// already been returned.
		return &FieldError{"items", "appears twice"}
	}
	l.items = true
	l.w.pos++
	c, err := l.peek()
	if err != nil {
		return err
	}
	l.state = (*ListReader).item
	if c == ']' {
		l.w.pos++
		l.state = (*ListReader).afterMember
	}

	return nil
}

// item reads one item.
func (l *ListReader) item() ([]byte, error) {
	if _, err := l.peek(); err != nil {
		return nil, err
	}
	l.state = (*ListReader).afterItem
	if l.ahead.on {
		if item := l.scanAhead(); item != nil {
			return item, nil
		}
	}
	item, err := l.value(l.pass > 0)
	if err == nil && len(item) == 0 {
		return nil, l.fail("expected an item")
	}
	return item, err
}

// scanAhead reads an item that is well-formed and completely pending. It first
// waits for a quarter more bytes than the last item had, because an item that
// is cut off has to be scanned twice. A list has an end, so the wait ends, too.
func (l *ListReader) scanAhead() []byte {
	for l.w.end-l.w.pos < min(l.ahead.size*5/4, l.max) {
		if l.w.fill() != nil {
			break
		}
	}
	pending := l.w.pending()
	end := l.ahead.read(&l.w, pending, l.max)
	if end < 0 {
		return nil
	}
	l.w.pos += end

	return pending[:end:end]
}

// afterItem advances to the next item, or beyond the last.
func (l *ListReader) afterItem() ([]byte, error) {
	return nil, l.after(']', (*ListReader).item, (*ListReader).afterMember)
}

// afterMember advances to the next member, or to the end of the document.
func (l *ListReader) afterMember() ([]byte, error) {
	return nil, l.after('}', (*ListReader).member, (*ListReader).finish)
}

// after reads a comma, or the end of what the reader is in.
func (l *ListReader) after(end byte, comma, ended func(*ListReader) ([]byte, error)) error {
	switch c, err := l.peek(); {
	case err != nil:
		return err
	case c == ',':
		l.state = comma
	case c == end:
		l.state = ended
	default:
		return l.fail("expected a comma or the end of the list")
	}

	l.w.pos++
	return nil
}

// finish reads to the end of the body, which may contain only white space.
func (l *ListReader) finish() ([]byte, error) {
	for !l.w.skipSpace() {
		if err := l.w.fill(); errors.Is(err, io.EOF) {
			return nil, l.verdict()
		} else if err != nil {
			return nil, err
		}
	}

	return nil, l.fail("more after the end of the list")
}

// verdict returns io.EOF if the document was a list, or else what is wrong with
// it.
func (l *ListReader) verdict() error {
	switch {
	case l.header.Kind == "Status":
		return &FieldError{"kind", `is "Status", not a list`}
	case !l.items:
		return ErrNoItems
	}

	return io.EOF
}
