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

// stream is one request under way and, once its headers were delivered, the
// body of its response. There are as many as there are watches, so it is small,
// and refers to nothing else that the request or the response consisted of.
type stream struct {
	c *conn
	// stop unregisters the callback of the request's context; nil if there is
	// none. It is set before the connection knows the stream.
	stop func() bool
	id   uint32 // set under the lock when the connection gets to know the stream

	// What follows is protected by the connection's lock, which is cond's.
	cond     sync.Cond // broadcast when there are headers, data, or an end
	err      error     // the end; io.EOF if it is the one of the body
	head     *head     // until it is delivered
	trailer  *trailer  // if the response announced any
	data     chunkQueue
	left     int64 // how much of the declared length is to come, or unknown
	window   int32 // what the peer may still send
	consumed int32 // what was read since the window was opened
	sendable int64 // what we might send; see conn.peerWindow
	answered bool  // the headers of the response were received
}

var _ io.ReadCloser = (*stream)(nil)

// trailer is what an announced trailer is kept for.
type trailer struct {
	header http.Header // Response.Trailer; the reader's
	fields []hpack.HeaderField
}

// await waits for the headers of the response. It is the only wait of a request
// for its peer, and the stream's context ends it.
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
	return h, nil // even if the stream has ended: the body tells
}

// Read implements io.Reader. Its frame is kept small: this is where the
// goroutines of idle watches wait.
func (s *stream) Read(p []byte) (int, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()

	for s.data.first == nil && s.err == nil {
		if len(p) == 0 {
			return 0, nil
		}
		s.cond.Wait()
	}
	if s.data.first == nil {
		return 0, s.endOfBodyLocked()
	}
	n := s.data.read(p)
	s.openLocked(n)
	return n, nil
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

// openLocked opens the peer's window by n bytes that were consumed, a quarter
// of it at a time.
func (s *stream) openLocked(n int) {
	s.consumed += int32(n)
	if s.err != nil || int(s.consumed) < s.c.t.opts.StreamWindow/4 {
		return
	}
	_ = s.c.out.fr.WriteWindowUpdate(s.id, uint32(s.consumed))
	s.c.flushLocked()
	s.window += s.consumed
	s.consumed = 0
}

// Close implements io.Closer: it resets a stream that has not ended, and makes
// Read fail.
func (s *stream) Close() error {
	if s.abandon(http.ErrBodyReadAfterClose) {
		s.c.finish(s)
	}
	return nil
}

// cancel ends the stream because its context has ended. It is the context's
// callback, which needs no unregistering, and may run before open has stored
// how to do that.
func (s *stream) cancel(err error) {
	if s.abandon(err) {
		s.c.finish()
	}
}

// abandon ends the stream from our side, with err for whoever reads it, and
// reports whether it had not ended before.
func (s *stream) abandon(err error) bool {
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
