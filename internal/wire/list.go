// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"io"
)

// ListHeader is what a list says about itself.
type ListHeader struct {
	// APIVersion and Kind of the list, such as "v1" and "PodList".
	APIVersion, Kind string
	// ResourceVersion of the list.
	ResourceVersion string
	// Continue asks for the next page; "" means there is none.
	Continue string
	// Remaining is how many items follow this page, 0 if the server did not say.
	Remaining int64
}

// ListReader streams the items of one list page. It holds one buffer no larger
// than twice the largest item. It is not safe for concurrent use; a blocked Next
// ends when the underlying reader does.
type ListReader struct {
	w      window
	max    int
	state  func(*ListReader) ([]byte, error)
	header ListHeader
	items  bool // the key was seen
	err    error
	ahead  ahead
}

// NewListReader reads one list page from r.
func NewListReader(r io.Reader, l Limits) *ListReader {
	return &ListReader{w: window{r: r, limit: l.response()}, max: l.object(), state: (*ListReader).begin}
}

// Next returns the next item's raw JSON, not yet validated (see Scan) and valid
// until the next call. It blocks in the underlying reader. After the end of the
// document it returns io.EOF; a document that is not a list, not JSON, cut off,
// too large or followed by something is an error. The underlying reader's own
// errors are returned as they are. After an error every call returns that error.
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

// Scan is the package's Scan (or the Scan of strip, if not nil) of the item that
// Next returned last. A reader on which it is called finds and validates later
// items in one pass, which takes half the time of both.
func (l *ListReader) Scan(strip *Strip) (Item, error) { return l.ahead.scan(&l.w, strip) }

// Header returns what has been read of the list's header so far: lists of
// custom resources write it behind the items, so it is complete after io.EOF.
func (l *ListReader) Header() ListHeader { return l.header }

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
		// The earlier items have been handed out already, and the last of equal keys would count.
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
	item, err := l.value()
	if err == nil && len(item) == 0 {
		return nil, l.fail("expected an item")
	}
	return item, err
}

// scanAhead reads an item that is well-formed and there to its end. It waits for
// a quarter more than the last item took, since cut-off items cost a second
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
		return &FieldError{"items", "is missing: not a list"}
	}
	return io.EOF
}

// readMember reads the value of a key other than the items' array.
func (l *ListReader) readMember(key string) error {
	raw, err := l.value()
	if err != nil {
		return err
	}
	s := scanner{parser: parser{b: raw}}
	var end int
	switch key {
	case "apiVersion":
		end = s.header(key, &l.header.APIVersion)
	case "kind":
		end = s.header(key, &l.header.Kind)
	case "metadata":
		l.header.ResourceVersion, l.header.Continue, l.header.Remaining = "", "", 0
		end = s.listMeta(&l.header)
	case "items":
		var null quoted
		if end = s.text(0, key, &null); end > 0 && null.to > 0 {
			end = s.refuse(key, "is not an array")
		}
		if l.items {
			end = s.refuse(key, "appears twice")
		}
		l.items = true
	default:
		end = s.value(0)
	}
	if end >= 0 && end != len(raw) {
		s.fail(end, "more after a value")
	}
	return l.locate(s.err, len(raw))
}

// header reads a string or null of a list.
func (s *scanner) header(field string, into *string) int {
	var q quoted
	end := s.text(0, field, &q)
	*into = stringOrNull(q.of(s.b))
	return end
}

// listMeta reads the metadata of a list.
func (s *scanner) listMeta(into *ListHeader) int {
	var q quoted
	switch s.at(0) {
	case '{':
	case 'n':
		return s.literal(0, "null")
	default:
		return s.wrongType(0, "metadata", "is not an object")
	}
	for i, more := s.open(0); ; i, more = s.next(i) {
		if !more {
			return i
		}
		key, from := s.name(i)
		if from < 0 {
			return -1
		}
		switch unquote(key.of(s.b)) {
		case "resourceVersion":
			i = s.text(from, "metadata.resourceVersion", &q)
			into.ResourceVersion = stringOrNull(q.of(s.b))
		case "continue":
			i = s.text(from, "metadata.continue", &q)
			into.Continue = stringOrNull(q.of(s.b))
		case "remainingItemCount":
			i = s.integer(from, "metadata.remainingItemCount", &into.Remaining)
		default:
			i = s.value(from)
		}
		if i < 0 {
			return -1
		}
	}
}

// value consumes one JSON value, which need not be well-formed.
func (l *ListReader) value() ([]byte, error) {
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

// scalarEnd finds what ends a number or literal.
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

// more is fill where the document cannot end yet.
func (l *ListReader) more() error {
	err := l.w.fill()
	if errors.Is(err, io.EOF) {
		return &SyntaxError{Offset: l.w.base + int64(l.w.end), Reason: "unexpected end", Err: io.ErrUnexpectedEOF}
	}
	return err
}

func (l *ListReader) fail(reason string) error {
	return &SyntaxError{Offset: l.w.offset(), Reason: reason}
}

// locate turns an offset inside the value of n bytes that was consumed last into
// one in the body.
func (l *ListReader) locate(err error, n int) error {
	if syntax, ok := errors.AsType[*SyntaxError](err); ok {
		syntax.Offset += l.w.offset() - int64(n)
	}
	return err
}
