// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"io"
)

// ListReader streams the items of one list page. It holds one buffer no larger
// than twice the largest item. It is not safe for concurrent use; a blocked
// Next ends when the underlying reader does.
type ListReader struct {
	w      window
	max    int
	pass   int64 // how much of an item is read on for; 0 if none is passed
	state  func(*ListReader) ([]byte, error)
	header ListHeader
	items  bool // the key was seen
	kept   *[]byte
	err    error
	ahead  ahead
}

// NewListReader reads one list page from r.
func NewListReader(r io.Reader, l Limits) *ListReader {
	return &ListReader{w: window{r: r, limit: l.response()}, max: l.object(), pass: l.passing(), state: (*ListReader).begin}
}

// Next returns the next item's raw JSON, not yet validated (see Scan) and valid
// until the next call. It blocks in the underlying reader. After the end of the
// document it returns io.EOF; a document that is not a list, not JSON, cut off,
// too large or followed by something is an error. The underlying reader's own
// errors are returned as they are. After an error every call returns that
// error.
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

// Object returns the item that Next returned last.
func (l *ListReader) Object() []byte { return l.ahead.raw }

// Scan is the package's Scan of the item that Next returned last. A reader on
// which it is called finds and validates later items in one pass, which takes
// half the time of both.
func (l *ListReader) Scan() (Item, error) { return l.ahead.scan(&l.w) }

// Header returns what has been read of the list's header so far: lists of
// custom resources write it behind the items, so it is complete after io.EOF.
func (l *ListReader) Header() ListHeader { return l.header }

// KeepMembers makes the reader keep the other members of the list, up to
// MaxKept bytes, for [ListReader.Members].
func (l *ListReader) KeepMembers() { l.kept = new([]byte) }

// Members returns the members of the list other than apiVersion, kind and items
// as they were sent, each behind a comma. They are complete after io.EOF.
func (l *ListReader) Members() []byte {
	if l.kept == nil {
		return nil
	}
	return *l.kept
}

// keepMember keeps a member for Members.
func (l *ListReader) keepMember(key string, raw []byte) error {
	quoted, err := json.Marshal(key)
	if err != nil {
		return err
	}
	if len(*l.kept)+len(quoted)+len(raw) > MaxKept {
		return &LimitError{What: "bytes beside the items", Limit: MaxKept}
	}
	*l.kept = append(append(append(append(*l.kept, ','), quoted...), ':'), raw...)
	return nil
}

// Close gives the buffer back; later calls of Next fail. It does not close the
// underlying reader. The item returned last is void.
func (l *ListReader) Close() {
	l.w.close()
	if l.err == nil {
		l.err = errClosed
	}
}

// begin enters the document.
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
		return nil, cmpErr(err, l.fail("expected a key"))
	}
	quotedKey, err := l.value()
	if err != nil {
		return nil, err
	}
	p := parser{b: quotedKey}
	if p.str(0) < 0 {
		return nil, l.locate(p.err, len(quotedKey))
	}
	key := unquote(quotedKey)
	if c, err := l.peek(); err != nil || c != ':' {
		return nil, cmpErr(err, l.fail("expected a colon"))
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

// cmpErr returns the first error that is not nil.
func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// enterItems goes to the first item.
func (l *ListReader) enterItems() error {
	if l.items {
		// The earlier items have been handed out already, and the last of equal
		// keys would count.
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
	item, err := l.itemValue()
	if err == nil && len(item) == 0 {
		return nil, l.fail("expected an item")
	}
	return item, err
}

// scanAhead reads an item that is well-formed and there to its end. It waits
// for a quarter more than the last item took, since cut-off items cost a second
// look; a list comes to an end, so that waiting does too.
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

// afterItem goes to the next item or behind the last.
func (l *ListReader) afterItem() ([]byte, error) {
	c, err := l.peek()
	if err != nil {
		return nil, err
	}
	switch c {
	case ',':
		l.state = (*ListReader).item
	case ']':
		l.state = (*ListReader).afterMember
	default:
		return nil, l.fail("expected a comma or the end of the items")
	}
	l.w.pos++
	return nil, nil
}

// afterMember goes to the next member or to the document's end.
func (l *ListReader) afterMember() ([]byte, error) {
	c, err := l.peek()
	if err != nil {
		return nil, err
	}
	switch c {
	case ',':
		l.state = (*ListReader).member
	case '}':
		l.state = (*ListReader).finish
	default:
		return nil, l.fail("expected a comma or the end of the list")
	}
	l.w.pos++
	return nil, nil
}

// finish reads to the end of the body, where only white space may be.
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

// verdict says what the document was.
func (l *ListReader) verdict() error {
	switch {
	case l.header.Kind == "Status":
		return &FieldError{"kind", `is "Status", not a list`}
	case !l.items:
		return ErrNoItems
	}
	return io.EOF
}
