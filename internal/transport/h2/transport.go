// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
)

// maxAttempts is how many times RoundTrip sends a request that servers did not
// begin to process.
const maxAttempts = 4

// Transport is an http.RoundTripper that sends GET requests as streams of a few
// HTTP/2 connections. It is safe for concurrent use. The caller must call Close
// when it no longer uses the Transport.
type Transport struct {
	opts Options
	// running counts everything that Close waits for: calls of RoundTrip,
	// dials, read loops, writers, and armed timers and context callbacks, which
	// may become goroutines.
	running sync.WaitGroup
	// waiting counts the waiters of all pools, so that a stream that ends does
	// not have to take the Transport's lock. It is written under mu before the
	// connections are searched for room, so no end of a stream is missed.
	waiting atomic.Int64

	mu    sync.Mutex // protects the fields below, and the contents of pools
	pools map[string]*pool
	over  error // ErrRetired or ErrClosed; nil while requests are admitted
}

var _ http.RoundTripper = (*Transport)(nil)

// New returns a Transport. It does not connect yet.
func New(opts Options) *Transport {
	opts = opts.withDefaults()
	opts.mustBeValid()
	return &Transport{opts: opts, pools: map[string]*pool{}}
}

// RoundTrip implements http.RoundTripper for GET requests over https without a
// body; other requests fail with ErrUnsupported before anything is sent. It
// blocks until the response's headers have arrived or req's context ends.
//
// The context governs the response's body as well: when it ends, the stream is
// reset, and Read returns the context's error at once, even if the peer is no
// longer reachable. After RoundTrip only the response refers to req.
//
// The body must be closed, or read to its end. Its Read and Close may be called
// concurrently. If the response announced trailers, Response.Trailer is filled
// in at the end of the body; other trailers are dropped. Responses are not
// decompressed. Redirects are left to http.Client.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := Check(req); err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // required by http.RoundTripper's contract
		}
		return nil, err
	}

	out, err := newRequest(req)
	if err != nil {
		return nil, err
	}
	if err := t.begin(); err != nil {
		return nil, err
	}
	defer t.running.Done()

	for attempt := 1; ; attempt++ {
		resp, err := t.try(req, out)
		if err == nil || !errors.Is(err, ErrUnprocessed) || attempt == maxAttempts {
			return resp, err
		}
	}
}

// Connect makes a connection to the host of u, unless there is one with room
// for a stream. It sends no request.
func (t *Transport) Connect(ctx context.Context, u *url.URL) error {
	addr, err := address(u)
	if err != nil {
		return err
	}
	if err := t.begin(); err != nil {
		return err
	}
	defer t.running.Done()

	c, err := t.acquire(ctx, addr)
	if err == nil {
		c.release()
	}

	return err
}

// try sends the request on one connection.
func (t *Transport) try(req *http.Request, out request) (*http.Response, error) {
	ctx := req.Context()
	c, err := t.acquire(ctx, out.addr)
	if err != nil {
		return nil, err
	}
	s, err := c.open(ctx, out.fields)
	if err != nil {
		return nil, err
	}
	h, err := s.await()
	if err != nil {
		return nil, err
	}
	return h.response(req, s), nil
}

// begin registers a call of RoundTrip, for which Close waits, unless the
// Transport was retired or closed.
func (t *Transport) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.over == nil {
		t.running.Add(1)
	}
	return t.over
}

// CloseIdleConnections closes the connections that have no streams. It does not
// block.
func (t *Transport) CloseIdleConnections() {
	for _, c := range t.conns() {
		c.closeIdle()
	}
}

// Retire makes new requests, and those that wait for a connection, fail with
// ErrRetired. Requests that have been sent go on; each connection is closed
// with its last stream. Retire does not block, and has no effect after Close.
func (t *Transport) Retire() {
	t.refuse(ErrRetired)
	for _, c := range t.conns() {
		c.retire()
	}
}

// Close ends all requests and streams with ErrClosed, closes all connections,
// and waits for all goroutines. It sends peers a GOAWAY, which takes at most a
// second. Close may be called more than once.
func (t *Transport) Close() {
	t.refuse(ErrClosed)
	for _, c := range t.conns() {
		c.close(ErrClosed)
	}
	t.running.Wait()
}

// refuse makes new requests, and those that wait for a connection, fail with
// err. It cancels the dials that no request waits for any longer.
func (t *Transport) refuse(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if !errors.Is(t.over, ErrClosed) {
		t.over = err
	}
	for _, p := range t.pools {
		p.failLocked(t.over)
		if p.dial != nil {
			p.dial.cancel()
		}
	}
}

// Streams returns the number of streams in use: responses whose body has
// neither ended nor been closed, and requests waiting for their response.
func (t *Transport) Streams() int {
	var n int
	for _, c := range t.conns() {
		n += c.active()
	}
	return n
}

// Connections returns the number of connections.
func (t *Transport) Connections() int { return len(t.conns()) }

func (t *Transport) conns() []*conn {
	t.mu.Lock()
	defer t.mu.Unlock()

	var all []*conn
	for _, p := range t.pools {
		all = append(all, p.conns...)
	}
	return all
}
