// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"io"
)

// Types of watch frames.
const (
	Added    = "ADDED"
	Modified = "MODIFIED"
	Deleted  = "DELETED"
	Bookmark = "BOOKMARK"
	Error    = "ERROR"
)

// errClosed indicates a read after Close.
var errClosed = errors.New("wire: read after close")

// Frame is one watch event.
type Frame struct {
	// Type is Added, Modified, Deleted, Bookmark or Error.
	Type string
	// Object is the object's raw JSON, not yet validated (see Scan). For Error
	// it is a Status.
	Object []byte
}

// tinyRead is the size of the array with which a reader waits while it holds no
// buffer.
const tinyRead = 128

// FrameReader reads the frames of a watch. Frames may be separated by newlines,
// other white space or nothing, may be pretty-printed, and may arrive in pieces
// of any size. While it waits for a frame to begin, a FrameReader holds no
// buffer. It is not safe for concurrent use. A blocked Next ends when the
// underlying reader does.
type FrameReader struct {
	w     window
	max   int
	pass  int64 // how many bytes of an object are read at most to pass it; 0 if none is passed
	split splitter
	fed   int // bytes of the pending frame that the splitter has seen
	err   error
	ahead ahead
	tiny  [tinyRead]byte
}

// NewFrameReader returns a reader of the frames in r, which may return data in
// pieces of any size.
func NewFrameReader(r io.Reader, l Limits) *FrameReader {
	return &FrameReader{w: window{r: r}, max: l.object(), pass: l.passing()}
}

// Next returns the next frame, which is valid until the next call. It blocks in
// the underlying reader. At the end it returns io.EOF between frames and
// io.ErrUnexpectedEOF inside one; other errors of the underlying reader are
// returned unchanged. After an error, every call returns that error.
func (f *FrameReader) Next() (Frame, error) {
	if f.err != nil {
		return Frame{}, f.err
	}
	f.ahead.begin()
	fr, err := f.next()
	if err != nil {
		f.err = err
		f.w.close()
		return Frame{}, err
	}
	f.ahead.raw = fr.Object

	return fr, nil
}

// Object returns the object in the frame last returned by Next.
func (f *FrameReader) Object() []byte { return f.ahead.raw }

// Scan calls the package's Scan on the object in the frame last returned by
// Next. Once Scan has been called, the reader finds and validates later frames
// in a single pass, which takes half the time.
func (f *FrameReader) Scan() (Item, error) { return f.ahead.scan(&f.w) }

// Close releases the buffer. Later calls of Next fail, and the frame last
// returned becomes invalid. Close does not close the underlying reader.
func (f *FrameReader) Close() {
	f.w.close()
	if f.err == nil {
		f.err = errClosed
	}
}

// next reads and consumes the next frame.
func (f *FrameReader) next() (Frame, error) {
	for !f.w.skipSpace() {
		if err := f.wait(); err != nil {
			return Frame{}, err
		}
	}
	for tried := false; ; {
		pending := f.w.pending()
		if f.ahead.on && !tried && len(pending) >= f.ahead.size*7/8 { // a shorter one is most likely cut off
			if fr, ok := f.scanAhead(pending); ok {
				return fr, nil
			}
			tried = true
		}

		raw, err := f.splitOff(pending)
		if err != nil {
			return Frame{}, err
		}
		if raw != nil {
			f.ahead.size = len(raw)
			return f.parse(raw)
		}
		if err := f.w.fill(); errors.Is(err, io.EOF) {
			return Frame{}, io.ErrUnexpectedEOF
		} else if err != nil {
			return Frame{}, err
		}
	}
}

// scanAhead reads a compact frame that is completely pending.
func (f *FrameReader) scanAhead(pending []byte) (Frame, bool) {
	kind, from := compactStart(pending)
	if kind == "" {
		return Frame{}, false
	}
	n := f.ahead.read(&f.w, pending[from:], f.max)
	end := from + n
	if n < 0 || end == len(pending) || pending[end] != '}' {
		f.ahead.begin()
		return Frame{}, false
	}
	f.w.pos += end + 1
	f.ahead.size = end + 1
	f.split, f.fed = splitter{}, 0

	return Frame{Type: kind, Object: pending[from:end:end]}, true
}

// splitOff consumes the frame at the beginning of pending and returns its
// bytes, or nil if the frame is not complete yet.
func (f *FrameReader) splitOff(pending []byte) ([]byte, error) {
	if pending[0] != '{' {
		return nil, &SyntaxError{Offset: f.w.offset(), Reason: "expected a watch frame"}
	}
	end, done := f.split.scan(pending, f.fed)
	if end > f.max+frameOverhead {
		if f.pass == 0 {
			return nil, f.tooLarge()
		}
		return f.passBy(end, done)
	}

	if !done {
		f.fed = end
		return nil, nil
	}
	f.w.pos += end
	f.fed = 0

	return pending[:end:end], nil
}

// passBy reads to the end of a frame that is too large, and returns a frame
// that contains only the identity of its object.
func (f *FrameReader) passBy(end int, done bool) ([]byte, error) {
	c := capture{base: 2}
	if err := f.w.pass(&f.split, done, end, f.pass, &c); errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return nil, err
	}
	f.split, f.fed, f.ahead.over = splitter{}, 0, f.tooLarge()
	stub := appendJSON([]byte(`{"type":`), c.kind)
	return append(c.found.appendStub(append(stub, `,"object":`...)), '}'), nil
}

func (f *FrameReader) tooLarge() error {
	return &LimitError{What: "object bytes", Limit: int64(f.max)}
}

// wait reads the first bytes of a frame into the tiny array. There are as many
// idle watches as informers in the fleet, so none of them may hold a buffer, or
// much stack below the read that blocks.
func (f *FrameReader) wait() error {
	f.w.drop()
	if err := f.w.checkSpace(f.w.space); err != nil {
		return err
	}
	for range emptyReads {
		n, err := f.w.r.Read(f.tiny[:])
		if n == 0 && err == nil {
			continue
		}
		f.w.readEr = err
		if n == 0 {
			return err
		}
		f.w.take(f.tiny[:n])
		return nil
	}

	return io.ErrNoProgress
}

// parse finds the type and the object in a frame.
func (f *FrameReader) parse(raw []byte) (Frame, error) {
	split := f.split
	f.split = splitter{}
	fr, ok := parseCompact(raw, &split)
	if !ok {
		var err error
		if fr, err = parseFrame(raw); err != nil {
			return Frame{}, f.w.locate(err, len(raw))
		}
	}

	if len(fr.Object) > f.max {
		if f.pass == 0 {
			return Frame{}, f.tooLarge()
		}
		f.ahead.over = f.tooLarge()
		fr.Object = Identify(fr.Object).appendStub(nil)
	}

	return fr, nil
}
