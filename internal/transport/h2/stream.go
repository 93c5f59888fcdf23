// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"io"
	"net/http"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// unknown is the length of a body that the server did not declare.
const unknown = -1

// stream is one request in progress and, once its headers have been delivered,
// the body of its response. There are as many streams as watches, so a stream
// is small and retains nothing else of its request or response.
type stream struct {
	c *conn
	// stop unregisters the callback of the request's context; it is nil if
	// there is none. It is set before the connection knows the stream.
	stop func() bool
	id   uint32 // set under the lock when the connection learns of the stream

	// The fields below are protected by the connection's lock, which is also
	// cond's.
	cond     sync.Cond // broadcast when there are headers, data, or an end
	err      error     // set when the stream has ended; io.EOF for a complete body
	head     *head     // until it is delivered
	trailer  *trailer  // nil unless the response announced trailers
	data     chunkQueue
	left     int64 // how much of the declared length is still to come, or unknown
	window   int32 // what the peer may still send
	consumed int32 // bytes read since the window was last opened
	sendable int64 // what we may send; see allowed
	answered bool  // the headers of the response have been received
	watch    bool  // never changes
}

var _ io.ReadCloser = (*stream)(nil)

// trailer collects an announced trailer.
type trailer struct {
	header http.Header // Response.Trailer; owned by the reader
	fields []hpack.HeaderField
}

// await waits for the headers of the response. It is the only place where a
// request waits for its peer. The stream's context ends the wait.
func (s *stream) await() (*head, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()

	for s.head == nil && s.err == nil {
		s.cond.Wait()
	}
	h := s.head
	s.head = nil
	if h == nil {
		return nil, s.err
	}
	return h, nil // even if the stream has ended: reading the body returns the error
}

// Read implements io.Reader. Its stack frame is kept small: this is where the
// goroutines of idle watches wait.
func (s *stream) Read(p []byte) (n int, err error) {
	s.c.mu.Lock()
	for s.data.first == nil && s.err == nil && len(p) > 0 {
		s.cond.Wait()
	}
	n, err = s.takeLocked(p)
	s.c.mu.Unlock()

	return n, err
}

// takeLocked moves received data to p.
func (s *stream) takeLocked(p []byte) (int, error) {
	switch {
	case s.data.first != nil:
		n := s.data.read(p)
		s.openLocked(n)
		return n, nil
	case s.err != nil:
		return 0, s.endOfBodyLocked()
	}

	return 0, nil
}

// endOfBodyLocked returns the error for a reader that has read everything.
func (s *stream) endOfBodyLocked() error {
	if t := s.trailer; t != nil && s.err == io.EOF { //nolint:errorlint // it is ours, and never wrapped
		for _, f := range t.fields {
			t.header.Add(f.Name, f.Value)
		}
		t.fields = nil
	}

	return s.err
}

// openLocked opens the peer's window by n consumed bytes, a quarter of the
// window at a time.
func (s *stream) openLocked(n int) {
	s.consumed += int32(n)
	if s.err != nil || int(s.consumed) < s.c.t.opts.StreamWindow/4 {
		return
	}
	_ = s.c.mu.out.fr.WriteWindowUpdate(s.id, uint32(s.consumed))
	s.c.flushLocked()
	s.window += s.consumed
	s.consumed = 0
}

// Close implements io.Closer: it resets a stream that has not ended, and makes
// Read fail.
func (s *stream) Close() error {
	if s.closeWith(http.ErrBodyReadAfterClose) {
		s.c.finish(s)
	}
	return nil
}

// cancel ends the stream because its context has ended. It is the context's
// callback, so it needs no unregistering, and it may run before open has stored
// stop.
func (s *stream) cancel(err error) {
	if s.closeWith(err) {
		s.c.finish()
	}
}

// closeWith ends the stream from our side; readers get err. It reports whether
// the stream was still running.
func (s *stream) closeWith(err error) bool {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()

	ended := s.err == nil
	if ended && s.id != 0 {
		c.resetLocked(s, http2.ErrCodeCancel, err)
	}
	s.err = err
	s.data.clear()

	return ended
}
