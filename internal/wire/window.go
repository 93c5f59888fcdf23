// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"io"
)

// emptyReads is how many times in a row a reader may return neither data nor an
// error.
const emptyReads = 100

// window is the part of a body that has been read and not consumed yet.
type window struct {
	r      io.Reader
	buf    *buffer // nil while nothing is pending
	pos    int     // first unconsumed byte
	end    int     // end of the bytes read
	base   int64   // offset of buf[0] in the body
	limit  int64   // how many bytes of the body may be read; 0 means all
	space  int     // consecutive white space up to pos
	readEr error   // the error that ended reading; returned when more is needed
}

// pending returns the bytes that have been read and not consumed.
func (w *window) pending() []byte {
	if w.buf == nil {
		return nil
	}
	return w.buf.b[w.pos:w.end]
}

// offset is the position of the first unconsumed byte in the body.
func (w *window) offset() int64 { return w.base + int64(w.pos) }

// locate turns an offset inside the bytes consumed last, of which there are n,
// into an offset in the body.
func (w *window) locate(err error, n int) error {
	if syntax, ok := errors.AsType[*SyntaxError](err); ok {
		syntax.Offset += w.offset() - int64(n)
	}
	return err
}

// skipSpace consumes insignificant white space that has already been read. It
// reports whether another byte follows.
func (w *window) skipSpace() bool {
	from := w.pos
	for w.pos < w.end {
		if !isSpace(w.buf.b[w.pos]) {
			w.space = 0
			return true
		}
		w.pos++
	}

	w.space += w.pos - from
	return false
}

// checkSpace returns an error if there was too much consecutive white space.
func (w *window) checkSpace(n int) error {
	if n > MaxSpace && w.readEr == nil {
		w.readEr = &LimitError{What: "bytes of white space", Limit: MaxSpace}
	}
	return w.readEr
}

// fill reads more bytes behind the pending ones. It moves or replaces the
// buffer, so slices taken before become invalid.
func (w *window) fill() error {
	if err := w.checkSpace(w.space); err != nil {
		return err
	}
	w.makeRoom()
	n, err := readSome(w.r, w.buf.b[w.end:])
	w.end += n
	w.readEr = err
	if w.limit > 0 && w.base+int64(w.end) > w.limit {
		w.readEr = &LimitError{What: ResponseBytes, Limit: w.limit}
	}
	if n > 0 {
		return nil
	}
	return err
}

// makeRoom leaves at least half of the buffer free behind the pending bytes.
func (w *window) makeRoom() {
	if w.buf == nil {
		w.buf = getBuffer(1)
		w.base += int64(w.pos)
		w.pos, w.end = 0, 0
	}
	if w.end < len(w.buf.b) {
		return
	}
	old, n := w.buf, w.end-w.pos
	if n > len(old.b)/2 {
		w.buf = getBuffer(2 * len(old.b))
	}
	copy(w.buf.b, old.b[w.pos:w.end])
	if w.buf != old {
		old.release()
	}
	w.base += int64(w.pos)
	w.pos, w.end = 0, n
}

// take appends bytes that were read apart, into an empty window.
func (w *window) take(b []byte) {
	w.makeRoom()
	w.end += copy(w.buf.b, b)
}

// drop releases the buffer when nothing is pending.
func (w *window) drop() {
	if w.buf != nil && w.pos == w.end {
		w.close()
	}
}

// close releases the buffer.
func (w *window) close() {
	if w.buf == nil {
		return
	}
	w.buf.release()
	w.base += int64(w.pos)
	w.buf, w.pos, w.end = nil, 0, 0
}

// readSome reads until it gets data or an error.
func readSome(r io.Reader, b []byte) (int, error) {
	for range emptyReads {
		n, err := r.Read(b)
		if n > 0 || err != nil {
			return n, err
		}
	}

	return 0, io.ErrNoProgress
}

// isSpace reports whether c is white space in JSON.
func isSpace(c byte) bool {
	return c == ' ' || c == '\n' || c == '\r' || c == '\t'
}
