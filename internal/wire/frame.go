// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"io"
)

// The types of watch frames.
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
	// Object is the object's raw JSON, not yet validated (see Scan): for Error
	// a Status.
	Object []byte
}

// tinyRead is what a reader waits with while it holds no buffer.
const tinyRead = 128

// FrameReader reads the frames of a watch. Frames may be separated by newlines,
// other white space or nothing, may be pretty-printed, and may arrive in any
// pieces. While it waits for a frame to begin it holds no buffer. It is not
// safe for concurrent use; a blocked Next ends when the underlying reader does.
type FrameReader struct {
	w     window
	max   int
	pass  int64 // how much of an object is read on for; 0 if none is passed
	split splitter
	fed   int // bytes of the pending frame that the splitter has seen
	err   error
	ahead ahead
	tiny  [tinyRead]byte
}

// NewFrameReader reads frames from r, which may return any amounts.
func NewFrameReader(r io.Reader, l Limits) *FrameReader {
	return &FrameReader{w: window{r: r}, max: l.object(), pass: l.passing()}
}

// Next returns the next frame, valid until the next call. It blocks in the
// underlying reader. At the end it returns io.EOF between frames and
// io.ErrUnexpectedEOF inside one; the underlying reader's other errors are
// returned as they are. After an error every call returns that error.
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

// Object returns the object in the frame that Next returned last.
func (f *FrameReader) Object() []byte { return f.ahead.raw }

// Scan is the package's Scan of the object in the frame that Next returned
// last. A reader on which it is called finds and validates later frames in one
// pass, which takes half the time of both.
func (f *FrameReader) Scan() (Item, error) { return f.ahead.scan(&f.w) }

// Close gives the buffer back; later calls of Next fail. It does not close the
// underlying reader. The frame returned last is void.
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
		if f.ahead.on && !tried && len(pending) >= f.ahead.size*7/8 { // else it is most likely cut off
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

// scanAhead reads a compact frame that is there to its end.
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

// splitOff consumes the frame with which pending begins and returns its bytes,
// or nil if it goes on.
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

// passBy reads on to the end of a frame that is too large, and returns one that
// holds the identity of its object alone.
func (f *FrameReader) passBy(end int, done bool) ([]byte, error) {
	c := capture{base: 2}
	if err := f.w.pass(&f.split, done, end, f.pass, &c); errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return nil, err
	}
	f.split, f.fed, f.ahead.over = splitter{}, 0, f.tooLarge()
	stub := appendJSON([]byte(`{"type":`), c.kind)
	return append(c.identity().appendStub(append(stub, `,"object":`...)), '}'), nil
}

func (f *FrameReader) tooLarge() error {
	return &LimitError{What: "object bytes", Limit: int64(f.max)}
}

// wait reads the first bytes of a frame into the tiny array: there are as many
// idle watches as informers in the fleet, and none of them may hold a buffer.
func (f *FrameReader) wait() error {
	f.w.drop()
	if err := f.w.checkSpace(f.w.space); err != nil {
		return err
	}
	n, err := readSome(f.w.r, f.tiny[:])
	f.w.readEr = err
	if n == 0 {
		return err
	}
	f.w.makeRoom()
	f.w.end += copy(f.w.buf.b, f.tiny[:n])
	return nil
}

// parse finds the type and the object in a frame.
func (f *FrameReader) parse(raw []byte) (Frame, error) {
	split := f.split
	f.split = splitter{}
	fr, ok := parseCompact(raw, &split)
	if !ok {
		var err error
		if fr, err = parseFrame(raw); err != nil {
			return Frame{}, f.locate(err, len(raw))
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

// locate turns an offset inside a frame of n bytes into one in the stream.
func (f *FrameReader) locate(err error, n int) error {
	if syntax, ok := errors.AsType[*SyntaxError](err); ok {
		syntax.Offset += f.w.offset() - int64(n)
	}
	return err
}
