// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	readBuffer    = 4 << 10  // larger bodies bypass it
	maxFrame      = 16 << 10 // in both directions: the minimum that every peer must accept, and the most we accept
	maxStreamID   = 1<<31 - 1
	maxTable      = 4 << 10 // of header compression, in either direction
	initialWindow = 65535   // HTTP/2's default until a setting changes it
	defaultLimit  = 1000    // of streams, for a server that sets no limit
)

// conn is one connection. Its read loop is its only long-lived goroutine.
type conn struct {
	t     *Transport
	pool  *pool
	nc    net.Conn
	tls   *tls.ConnectionState // nil without TLS
	born  time.Time
	ready chan struct{} // closed when the peer's settings are known, or the connection is broken

	heard atomic.Int64 // when something was last read, as a duration since born
	reads reads        // owned by the read loop

	// mu protects the fields below. It is never held over I/O.
	mu       sync.Mutex
	broken   error              // why the connection is no longer used; nil while it is
	goAway   *GoAwayError       // the last one received
	retired  bool               // accepts no new streams
	settled  bool               // the peer's settings are known
	streams  map[uint32]*stream // those that have not ended
	nextID   uint32
	reserved int           // places granted to requests that have not opened their stream yet
	limit    int64         // of streams, set by the peer
	barred   time.Duration // when the peer set limit to 0, since born
	idle     time.Time
	out      outbox
	alive    keepalive
	budget   budget

	peerWindow   int64 // what we may send on the connection; nothing is ever sent, but the peer must not exceed 2³¹-1
	streamWindow int64 // what we may send on a new stream
	maxHeader    int64 // the largest header list that the peer accepts
}

// reads is the state of the read loop.
type reads struct {
	br      *bufio.Reader
	fr      *http2.Framer
	block   block
	arrived int32 // bytes received since the connection's window was last opened
	fault   error // the error from reading the connection
}

// newConn starts a connection. When it returns, the preface is being sent. The
// caller must be a dial that is registered in Transport.running.
func newConn(p *pool, nc net.Conn) *conn {
	c := &conn{
		t:       p.t,
		pool:    p,
		nc:      nc,
		born:    time.Now(),
		ready:   make(chan struct{}),
		streams: map[uint32]*stream{},
		nextID:  1,

		peerWindow:   initialWindow,
		streamWindow: initialWindow,
		maxHeader:    maxWindow,
		limit:        defaultLimit,
	}
	c.idle = c.born
	if over, ok := nc.(interface{ ConnectionState() tls.ConnectionState }); ok {
		c.tls = new(over.ConnectionState())
	}
	c.out.init()
	c.reads.init(c)

	c.mu.Lock()
	c.introduceLocked()
	c.alive.startLocked(c)
	c.mu.Unlock()

	c.t.running.Go(c.readLoop)

	return c
}

// introduceLocked sends the preface, settings and window update that open an
// HTTP/2 connection.
func (c *conn) introduceLocked() {
	opts := &c.t.opts
	_, _ = c.out.Write([]byte(http2.ClientPreface)) // the outbox never fails
	_ = c.out.fr.WriteSettings(
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(opts.StreamWindow)},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(opts.MaxHeaderBytes)},
	)
	_ = c.out.fr.WriteWindowUpdate(0, uint32(opts.ConnWindow-initialWindow))
	c.flushLocked()
}

// reserve reserves a place for a stream. It reports whether there was one.
func (c *conn) reserve() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !c.usableLocked() || c.usedLocked()+int64(c.alive.resets) >= c.limit || c.out.full() {
		return false
	}
	c.reserved++
	return true
}

// promising reports whether waiting for room on c is better than dialing:
// either the server has yet to confirm the end of some streams, or it currently
// allows no streams on a new connection. The keepalive bounds both.
func (c *conn) promising() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.usableLocked() && (c.barredLocked() || c.usedLocked() < c.limit && !c.out.full())
}

func (c *conn) usableLocked() bool {
	return c.broken == nil && c.settled && !c.retired
}

// barredLocked reports whether the peer allows no streams on a new connection.
func (c *conn) barredLocked() bool { return c.limit == 0 && c.freshLocked() }

// freshLocked reports whether the connection has never opened a stream.
func (c *conn) freshLocked() bool { return c.nextID == 1 }

func (c *conn) usedLocked() int64 { return int64(len(c.streams) + c.reserved) }

// unreserve gives up a reserved place.
func (c *conn) unreserve() {
	c.mu.Lock()
	c.reserved--
	c.idleLocked()
	c.mu.Unlock()

	c.finish()
}

// open sends a request in a reserved place and returns its stream, which ends
// with ctx.
func (c *conn) open(ctx context.Context, fields []hpack.HeaderField) (*stream, error) {
	s := &stream{c: c, left: unknown}
	s.cond.L = &c.mu
	// The callback is registered before the connection knows the stream,
	// because the code that ends the stream has to find the callback. If ctx
	// ends first, the callback finds a stream without a number.
	if ctx.Done() != nil {
		c.t.running.Add(1) // RoundTrip registers itself
		s.stop = context.AfterFunc(ctx, func() {
			defer c.t.running.Done()
			s.cancel(ctx.Err())
		})
	}

	if err := c.start(s, fields); err != nil {
		c.finish(s)
		return nil, err
	}
	return s, nil
}

// start assigns s its number and sends its headers.
func (c *conn) start(s *stream, fields []hpack.HeaderField) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.reserved--
	c.idleLocked()

	switch {
	case s.err != nil: // the context has ended
		return s.err
	case c.broken != nil:
		return fmt.Errorf("%w: %w", ErrUnprocessed, c.broken)
	case c.retired:
		return fmt.Errorf("%w: %w", ErrUnprocessed, errRetired)
	case listSize(fields) > c.maxHeader:
		return fmt.Errorf("%w: the server accepts %d bytes", ErrHeaderTooLarge, c.maxHeader)
	}

	s.id = c.nextID
	s.window = int32(c.t.opts.StreamWindow)
	s.sendable = c.streamWindow
	c.streams[s.id] = s
	c.nextID += 2
	c.retired = c.nextID > maxStreamID
	c.out.headers(s.id, fields)
	c.flushLocked()

	return nil
}

// endLocked removes s from the connection and ends it with err. The caller must
// call finish for it after unlocking.
func (c *conn) endLocked(s *stream, err error) {
	s.err = err
	delete(c.streams, s.id)
	c.idleLocked()
	s.cond.Broadcast()
}

// resetLocked ends s on both sides.
func (c *conn) resetLocked(s *stream, code http2.ErrCode, err error) {
	c.endLocked(s, err)
	c.budget.forgiveLocked(c.t.opts.StreamWindow / smallFrame)
	_ = c.out.fr.WriteRSTStream(s.id, code)
	c.alive.resetLocked(c)
	c.flushLocked()
}

// finish does the rest of the work when streams have ended, or a reserved place
// was given up, that must not be done under a lock.
func (c *conn) finish(ended ...*stream) {
	for _, s := range ended {
		// A context's method is foreign code. If the callback is already
		// running, it unregisters itself.
		if s.stop != nil && s.stop() {
			c.t.running.Done()
		}
	}

	c.mu.Lock()
	over := c.overLocked()
	c.mu.Unlock()

	if over != nil {
		c.bye(over)
	}
	c.pool.serve()
}

// overLocked returns the error with which the connection must end, if it has
// served its last stream, or else nil.
func (c *conn) overLocked() error {
	switch {
	case !c.retired || c.usedLocked() > 0 || c.broken != nil:
		return nil
	case c.goAway != nil:
		return ErrConnectionLost // shut adds the details
	}

	return errRetired
}

// idleLocked records since when the connection has been idle, if it is.
func (c *conn) idleLocked() {
	if c.usedLocked() == 0 {
		c.idle = time.Now()
	}
}

// active returns the number of streams.
func (c *conn) active() int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return len(c.streams)
}

// cause returns why the connection is no longer used, or nil.
func (c *conn) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.broken
}

// retire admits no more streams, and closes the connection once it has none.
func (c *conn) retire() {
	c.mu.Lock()
	c.retired = true
	c.mu.Unlock()

	c.finish()
}

// closeIdle closes the connection if it has no streams.
func (c *conn) closeIdle() {
	c.mu.Lock()
	idle := c.usedLocked() == 0
	c.retired = c.retired || idle // prevents a new stream in between
	c.mu.Unlock()

	if idle {
		c.bye(errIdle)
	}
}

// bye sends a GOAWAY and ends the connection. Its streams end with err.
func (c *conn) bye(err error) { c.shut(err, http2.ErrCodeNo, true) }

// abort ends the connection without sending anything.
func (c *conn) abort(err error) { c.shut(err, 0, false) }

// fail ends the connection because of something the peer sent, or because
// reading failed.
func (c *conn) fail(err error) {
	if wrong, ok := errors.AsType[*ProtocolError](err); ok {
		c.shut(fmt.Errorf("%w: %w", ErrConnectionLost, err), wrong.Code, true)
		return
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // io.EOF would look like the end of a body
	}
	c.abort(fmt.Errorf("%w: %w", ErrConnectionLost, err))
}

// shut ends the connection and its streams, once. Data that streams have
// already received can still be read.
func (c *conn) shut(err error, code http2.ErrCode, polite bool) {
	c.mu.Lock()
	if c.broken != nil {
		c.mu.Unlock()
		return
	}
	if c.goAway != nil && errors.Is(err, ErrConnectionLost) {
		err = fmt.Errorf("%w: %w", err, c.goAway)
	}
	c.broken = err
	// A server that completes the handshake with every connection and drops it
	// before it carries a stream must not be dialed in a loop.
	var useless error
	if c.freshLocked() && errors.Is(err, ErrConnectionLost) {
		useless = err
	}
	var ended []*stream
	for _, s := range c.streams {
		ended = append(ended, s)
		c.endLocked(s, err)
	}
	if !c.settled {
		close(c.ready)
	}
	c.alive.stopLocked(c)
	if polite {
		_ = c.out.fr.WriteGoAway(0, code, nil)
		c.flushLocked()
	}
	c.mu.Unlock()

	c.hangUp(polite)
	c.pool.leave(c, useless)
	c.finish(ended...)
}

// hangUp closes the connection to the peer. If polite, it lets the writer do so
// soon, after its last frame.
func (c *conn) hangUp(polite bool) {
	if polite {
		_ = c.nc.SetWriteDeadline(time.Now().Add(farewell))
		return
	}
	// Under TLS, Close would send an alert and wait for a peer that may not
	// read.
	if over, ok := c.nc.(interface{ NetConn() net.Conn }); ok {
		_ = over.NetConn().Close()
	}
	_ = c.nc.Close()
}
