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
	readBuffer    = 4 << 10  // bodies larger than that bypass it
	maxFrame      = 16 << 10 // in both directions: the least that every peer has to accept, and what we let peers send
	maxStreamID   = 1<<31 - 1
	maxTable      = 4 << 10 // of header compression, either direction
	initialWindow = 65535   // as HTTP/2 has it before anything was said
	defaultLimit  = 1000    // of streams, for a server that sets none
)

// conn is one connection. Its read loop is the only goroutine that lasts.
type conn struct {
	t     *Transport
	pool  *pool
	nc    net.Conn
	tls   *tls.ConnectionState // nil without TLS
	born  time.Time
	ready chan struct{} // closed when the peer's settings are known, or there is a cause

	heard atomic.Int64 // when something was read, as a duration since born
	reads reads        // belongs to the read loop

	// mu protects what follows. It is never held over I/O.
	mu       sync.Mutex
	broken   error              // why the connection takes no part in anything any more
	goAway   *GoAwayError       // the peer's last one
	retired  bool               // no new streams
	settled  bool               // the peer's settings are known
	streams  map[uint32]*stream // those that have not ended
	nextID   uint32
	reserved int   // places that requests are about to use
	limit    int64 // of streams, by the peer
	idle     time.Time
	out      outbox
	alive    keepalive
	budget   budget

	peerWindow   int64 // what we might send on the connection; nothing is ever sent, but the peer must not exceed 2³¹-1
	streamWindow int64 // what we might send on a new stream
	maxHeader    int64 // the largest header list that the peer accepts
}

// reads is the state of the read loop.
type reads struct {
	br      *bufio.Reader
	fr      *http2.Framer
	block   block
	arrived int32 // what was received since the connection's window was opened
	fault   error // of reading from the connection
}

// newConn starts a connection: its preface is on the way when it returns. It
// counts on a dial being registered in Transport.running.
func newConn(p *pool, nc net.Conn) *conn {
	c := &conn{
		t: p.t, pool: p, nc: nc,
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

// introduceLocked sends what every HTTP/2 connection begins with.
func (c *conn) introduceLocked() {
	opts := &c.t.opts
	_, _ = c.out.Write([]byte(http2.ClientPreface)) // the outbox does not fail
	_ = c.out.fr.WriteSettings(
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(opts.StreamWindow)},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(opts.MaxHeaderBytes)},
	)
	_ = c.out.fr.WriteWindowUpdate(0, uint32(opts.ConnWindow-initialWindow))
	c.flushLocked()
}

// reserve reserves a place for a stream, if there is one.
func (c *conn) reserve() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !c.usableLocked() || c.usedLocked()+int64(c.alive.resets) >= c.limit || c.out.full() {
		return false
	}
	c.reserved++
	return true
}

// promising reports whether it is better to wait for room on c than to dial:
// the server has yet to confirm the end of some streams, or allows none on a
// new connection for the time being. Both end, at the latest, with the
// connection.
func (c *conn) promising() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.usableLocked() && (c.limit == 0 && c.freshLocked() || c.usedLocked() < c.limit && !c.out.full())
}

func (c *conn) usableLocked() bool {
	return c.broken == nil && c.settled && !c.retired
}

// freshLocked reports whether no stream was ever opened.
func (c *conn) freshLocked() bool { return c.nextID == 1 }

func (c *conn) usedLocked() int64 { return int64(len(c.streams) + c.reserved) }

// unreserve gives a place back.
func (c *conn) unreserve() {
	c.mu.Lock()
	c.reserved--
	c.idleLocked()
	c.mu.Unlock()

	c.finish()
}

// open sends a request in a place that was reserved, and returns its stream,
// which ends with ctx.
func (c *conn) open(ctx context.Context, fields []hpack.HeaderField) (*stream, error) {
	s := &stream{c: c, left: unknown}
	s.cond.L = &c.mu
	// Before the stream is known to the connection: what ends it must find the
	// callback. If the context ends first, the callback finds a stream without
	// a number.
	if ctx.Done() != nil {
		c.t.running.Add(1) // RoundTrip is registered itself
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

// start gives s its number and sends its headers.
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

// endLocked takes s off the connection with err as its end. The caller calls
// finish for it after unlocking.
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

// finish does what the end of streams, or of a wish for one, calls for and
// cannot be done under a lock.
func (c *conn) finish(ended ...*stream) {
	for _, s := range ended {
		// A context's method is foreign code. If the callback runs already, it
		// unregisters itself.
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

// overLocked returns why the connection has to end, if it has served its last
// stream.
func (c *conn) overLocked() error {
	switch {
	case !c.retired || c.usedLocked() > 0 || c.broken != nil:
		return nil
	case c.goAway != nil:
		return ErrConnectionLost // shut says more
	}
	return errRetired
}

// idleLocked notes since when there is nothing to do.
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

// closeIdle closes the connection if it has no streams.
func (c *conn) closeIdle() {
	c.mu.Lock()
	idle := c.usedLocked() == 0
	c.retired = c.retired || idle // no stream may come in between
	c.mu.Unlock()

	if idle {
		c.bye(errIdle)
	}
}

// bye ends the connection with err as the end of its streams, after telling the
// peer.
func (c *conn) bye(err error) { c.shut(err, http2.ErrCodeNo, true) }

// abort ends the connection without a word.
func (c *conn) abort(err error) { c.shut(err, 0, false) }

// fail ends the connection because of what the peer sent, or because reading
// failed.
func (c *conn) fail(err error) {
	if wrong, ok := errors.AsType[*ProtocolError](err); ok {
		c.shut(fmt.Errorf("%w: %w", ErrConnectionLost, err), wrong.Code, true)
		return
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // nobody must take it for the end of a body
	}
	c.abort(fmt.Errorf("%w: %w", ErrConnectionLost, err))
}

// shut ends the connection and its streams, once. What streams have received
// can still be read.
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
	// A server that greets every connection and drops it before it carries
	// anything is not to be dialed in a loop.
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

// hangUp closes the connection to the peer, or sees to it that the writer does
// so, soon, after its last frame.
func (c *conn) hangUp(polite bool) {
	if polite {
		_ = c.nc.SetWriteDeadline(time.Now().Add(farewell))
		return
	}
	// Under TLS, Close would send an alert, and wait for a peer that does not
	// read.
	if over, ok := c.nc.(interface{ NetConn() net.Conn }); ok {
		_ = over.NetConn().Close()
	}
	_ = c.nc.Close()
}
