// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// reads is the read loop of a connection.
type reads struct {
	c       *conn
	br      *bufio.Reader
	fr      *http2.Framer
	block   block
	arrived int32 // bytes received since the connection's window was last opened
	fault   error // the error from reading the connection
}

func (r *reads) init(c *conn) {
	r.c = c
	r.br = bufio.NewReaderSize(r, readBuffer)
	r.fr = http2.NewFramer(nil, r.br)
	r.fr.SetMaxReadFrameSize(maxFrame)
	r.block.init(c.t.opts.MaxHeaderBytes)
}

// Read implements io.Reader: it reads from the connection and records when data
// arrived.
func (r *reads) Read(p []byte) (int, error) {
	n, err := r.c.nc.Read(p)
	if n > 0 {
		r.c.heard.Store(int64(time.Since(r.c.born)))
	}
	if err != nil {
		r.fault = err
	}
	return n, err
}

// run reads until the connection ends.
func (r *reads) run() { r.c.fail(r.readFrames()) }

func (r *reads) readFrames() error {
	if err := r.readFirst(); err != nil {
		return err
	}
	for {
		fh, err := r.fr.ReadFrameHeader()
		if err == nil {
			err = r.readFrame(fh)
		}
		if err = r.excuse(fh, err); err != nil {
			return err
		}
	}
}

// readFirst reads the frame with which every server has to begin.
func (r *reads) readFirst() error {
	fh, err := r.fr.ReadFrameHeader()
	switch {
	case err != nil && strings.Contains(err.Error(), "HTTP/1.1 header"):
		return ErrNotHTTP2
	case err != nil:
		return r.excuse(fh, err)
	case fh.Type != http2.FrameSettings || fh.Flags.Has(http2.FlagSettingsAck):
		return &ProtocolError{http2.ErrCodeProtocol, "the first frame is not SETTINGS"}
	}

	return r.excuse(fh, r.readFrame(fh))
}

// excuse decides what err ends: if only a stream, it resets that stream and
// returns nil; otherwise it returns the error with which the connection ends.
func (r *reads) excuse(fh http2.FrameHeader, err error) error {
	if err == nil {
		return nil
	}
	if fault := r.fault; fault != nil {
		return fault
	}
	if code, ok := errors.AsType[http2.ConnectionError](err); ok { // a violation found by the framer
		return &ProtocolError{http2.ErrCode(code), "bad " + fh.Type.String() + " frame"}
	}
	if bad, ok := errors.AsType[http2.StreamError](err); ok { // also found by the framer
		if fh.Type == http2.FrameHeaders {
			return &ProtocolError{http2.ErrCodeProtocol, "bad padding"} // the header block has not been read
		}
		return r.resetStream(&StreamError{bad.StreamID, bad.Code, errMalformed})
	}

	if bad, ok := errors.AsType[*StreamError](err); ok {
		return r.resetStream(bad)
	}
	if _, ok := errors.AsType[*ProtocolError](err); ok {
		return err
	}
	// The frame's payload was shorter than the framer expected, or its length
	// was wrong.
	return &ProtocolError{http2.ErrCodeFrameSize, "bad length of " + fh.Type.String() + " frame"}
}

// readFrame reads and applies a frame.
func (r *reads) readFrame(fh http2.FrameHeader) error {
	switch fh.Type {
	case http2.FrameData:
		return r.readData(fh)
	case http2.FrameHeaders:
		return r.readHeaders(fh)
	case http2.FramePushPromise, http2.FramePriorityUpdate:
		return &ProtocolError{http2.ErrCodeProtocol, fh.Type.String() + " from a server without push"}
	case http2.FramePriority, http2.FrameRSTStream, http2.FrameSettings, http2.FramePing, http2.FrameGoAway,
		http2.FrameWindowUpdate:
		f, err := r.fr.ReadFrameForHeader(fh)
		if err != nil {
			return err
		}
		return r.apply(f)
	default: // unknown frames are ignored; the framer has refused stray CONTINUATIONs
		if _, err := r.br.Discard(int(fh.Length)); err != nil {
			return err
		}
		return r.c.spend()
	}
}

// apply applies a frame that is not part of a response.
func (r *reads) apply(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.RSTStreamFrame:
		return r.c.onReset(f)
	case *http2.GoAwayFrame:
		return r.c.onGoAway(f)
	}

	if err := r.c.spend(); err != nil {
		return err
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		return r.c.onSettings(f)
	case *http2.PingFrame:
		return r.c.onPing(f)
	case *http2.WindowUpdateFrame:
		return r.c.onWindowUpdate(f)
	}

	return nil // PRIORITY has no meaning for a client
}

// spend charges the peer's budget for a useless frame.
func (c *conn) spend() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.spendLocked()
}

func (c *conn) spendLocked() error {
	if !c.mu.budget.spendLocked(time.Since(c.born)) {
		return &ProtocolError{http2.ErrCodeEnhanceYourCalm, "too many frames that bring nothing"}
	}
	return nil
}

// lookupLocked returns the stream that a frame is for. If the stream has ended,
// lookupLocked returns nil and charges the budget.
func (c *conn) lookupLocked(id uint32) (*stream, error) {
	if s := c.mu.places.streams[id]; s != nil {
		return s, nil
	}
	if id%2 == 0 || id >= c.mu.places.nextID {
		return nil, &ProtocolError{http2.ErrCodeProtocol,
			fmt.Sprintf("frame for stream %d, which was never opened", id)}
	}
	return nil, c.spendLocked()
}

// resetStream ends a stream because of something the peer sent on it.
func (r *reads) resetStream(why *StreamError) error {
	r.c.mu.Lock()
	s, err := r.c.lookupLocked(why.StreamID)
	if s != nil {
		r.c.resetLocked(s, why.Code, why)
	}
	r.c.mu.Unlock()

	if s != nil {
		r.c.finish(s)
	}

	return err
}

// readData reads a DATA frame. It always reads the payload, outside the lock,
// so that the next frame can be found.
func (r *reads) readData(fh http2.FrameHeader) error {
	n, padding := int(fh.Length), 0
	if fh.StreamID == 0 {
		return &ProtocolError{http2.ErrCodeProtocol, "DATA on stream 0"}
	}
	if fh.Flags.Has(http2.FlagDataPadded) {
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		length, err := r.br.ReadByte()
		if err != nil {
			return err
		}
		padding = int(length)
		if n -= 1 + padding; n < 0 {
			return &ProtocolError{http2.ErrCodeProtocol, "DATA with more padding than payload"}
		}
	}

	k := newChunk(n)
	err := k.fill(r.br, n)
	if err == nil {
		_, err = r.br.Discard(padding)
	}
	if err != nil {
		k.free()
		return err
	}

	return r.deliver(fh, k)
}

// deliver passes a DATA frame's payload to its stream.
func (r *reads) deliver(fh http2.FrameHeader, k *chunk) error {
	r.c.mu.Lock()
	r.openLocked(int32(fh.Length))
	s, err := r.c.lookupLocked(fh.StreamID)
	if s != nil {
		err = s.receiveLocked(fh, k)
	}
	ended := s != nil && s.err != nil
	r.c.mu.Unlock()

	if s == nil || err != nil {
		k.free()
	}
	if ended {
		r.c.finish(s)
	}

	return err
}

// openLocked opens the connection's window by what has arrived, a quarter of it
// at a time. The connection's window is therefore never exceeded, and memory is
// bounded by the windows of the streams.
func (r *reads) openLocked(n int32) {
	r.arrived += n
	if int(r.arrived) < r.c.t.opts.ConnWindow/4 || r.c.mu.broken != nil {
		return
	}
	_ = r.c.mu.out.fr.WriteWindowUpdate(0, uint32(r.arrived))
	r.c.flushLocked()
	r.arrived = 0
}

// receiveLocked takes ownership of k unless it returns an error.
func (s *stream) receiveLocked(fh http2.FrameHeader, k *chunk) error {
	n := len(k.data)
	switch {
	case !s.answered:
		return &StreamError{s.id, http2.ErrCodeProtocol, errDataFirst}
	case int64(fh.Length) > int64(s.window):
		return &StreamError{s.id, http2.ErrCodeFlowControl, errWindow}
	case s.left != unknown && int64(n) > s.left:
		return &StreamError{s.id, http2.ErrCodeProtocol, errTooLong}
	}

	last := fh.Flags.Has(http2.FlagDataEndStream)
	if n == 0 && !last {
		if err := s.c.spendLocked(); err != nil {
			return err
		}
	}
	s.window -= int32(fh.Length)
	if s.left != unknown {
		s.left -= int64(n)
	}
	if n > 0 {
		s.data.push(k)
		s.cond.Broadcast()
	} else {
		k.free()
	}

	if last {
		s.c.endLocked(s, s.endOfData())
	}
	s.openLocked(int(fh.Length) - n) // padding is never read, so its window is opened at once

	return nil
}

// endOfData returns the error for the reader at the end of the data.
func (s *stream) endOfData() error {
	if s.left > 0 {
		return io.ErrUnexpectedEOF // shorter than declared
	}
	return io.EOF
}
