// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"context"
	"errors"
	"net"
	"net/http"
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

	// unwatched means that watches have been ended. It is set before the
	// connections are searched for them, and a watch that is opened looks at it
	// under its connection's lock, so that none is missed.
	unwatched atomic.Bool
}

var _ http.RoundTripper = (*Transport)(nil)

// New returns a Transport. It does not connect yet.
func New(opts Options) *Transport {
	return &Transport{opts: opts.withDefaults(), pools: map[string]*pool{}}
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
	return t.roundTrip(req, false)
}

// Watch is like RoundTrip, for a request that EndWatches ends.
func (t *Transport) Watch(req *http.Request) (*http.Response, error) { return t.roundTrip(req, true) }

func (t *Transport) roundTrip(req *http.Request, watch bool) (*http.Response, error) {
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

	out.watch = watch

	for attempt := 1; ; attempt++ {
		resp, err := t.try(req, out)
		if err == nil || !errors.Is(err, ErrUnprocessed) || attempt == maxAttempts {
			return resp, err
		}
	}
}

// try sends the request on one connection.
func (t *Transport) try(req *http.Request, out request) (*http.Response, error) {
	ctx := req.Context()
	c, err := t.acquire(ctx, out.addr)
	if err != nil {
		return nil, err
	}
	if err := t.check(ctx, c); err != nil {
		c.release()
		return nil, err
	}
	s, err := c.open(ctx, out)
	if err != nil {
		return nil, err
	}
	h, err := s.await()
	if err != nil {
		return nil, err
	}
	return h.response(req, s), nil
}

// check calls Options.Check. A context that has ended meanwhile is noticed here,
// because its callback would run concurrently with the sending of the request.
func (t *Transport) check(ctx context.Context, c *conn) error {
	if t.opts.Check == nil {
		return nil
	}
	if err := t.opts.Check(ctx, c.nc); err != nil {
		return err
	}
	return ctx.Err()
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

// Leave sends no more requests over the connections for which over returns
// true. Requests that have been sent go on; each connection is closed with its
// last stream. over is called with what Options.Dial returned. Leave does not
// block.
func (t *Transport) Leave(over func(net.Conn) bool) {
	for _, c := range t.conns() {
		if over(c.nc) {
			c.retire()
		}
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

// EndWatches ends all requests and streams of Watch with ErrWatchEnded. Watches
// that were not sent yet fail with ErrRetired. It does not block.
func (t *Transport) EndWatches() {
	t.unwatched.Store(true)
	for _, c := range t.conns() {
		c.endWatches()
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
		for _, d := range p.dials {
			d.cancel()
		}
	}
}

func (t *Transport) conns() []*conn {
	t.mu.Lock()
	defer t.mu.Unlock()

	var all []*conn
	for _, p := range t.pools {
		all = append(all, p.conns...)
	}
	return all
}
