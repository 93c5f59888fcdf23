// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

const (
	readBuffer    = 512      // larger payloads bypass it; under TLS, the record is a buffer as well
	maxFrame      = 16 << 10 // in both directions: the minimum that every peer must accept, and the most we accept
	maxTable      = 4 << 10  // of header compression, in either direction
	initialWindow = 65535    // HTTP/2's default until a setting changes it
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
	reads reads        // is the read loop, and owned by it

	// mu is never held over I/O.
	mu struct {
		sync.Mutex

		broken  error        // why the connection is no longer used; nil while it is
		goAway  *GoAwayError // the last one received
		places  places
		allowed allowed
		out     outbox
		alive   keepalive
		budget  budget
	}
}

// newConn starts a connection. When it returns, the preface is being sent. The
// caller must be a dial that is registered in Transport.running.
func newConn(p *pool, nc net.Conn) *conn {
	c := &conn{
		t:     p.t,
		pool:  p,
		nc:    nc,
		born:  time.Now(),
		ready: make(chan struct{}),
	}
	c.mu.places = newPlaces(c.born)
	c.mu.allowed = defaultAllowed()
	if over, ok := nc.(interface{ ConnectionState() tls.ConnectionState }); ok {
		c.tls = new(over.ConnectionState())
	}
	c.mu.out.init()
	c.reads.init(c)

	c.mu.Lock()
	c.introduceLocked()
	c.mu.alive.startLocked(c)
	c.mu.Unlock()

	c.t.running.Go(c.reads.run)

	return c
}

// introduceLocked sends the preface, settings and window update that open an
// HTTP/2 connection.
func (c *conn) introduceLocked() {
	opts := &c.t.opts
	_, _ = c.mu.out.Write([]byte(http2.ClientPreface)) // the outbox never fails
	_ = c.mu.out.fr.WriteSettings(
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(opts.StreamWindow)},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(opts.MaxHeaderBytes)},
	)
	_ = c.mu.out.fr.WriteWindowUpdate(0, uint32(opts.ConnWindow-initialWindow))
	c.flushLocked()
}

// cause returns why the connection is no longer used, or nil.
func (c *conn) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.mu.broken
}

// close sends a GOAWAY and ends the connection. Its streams end with err.
func (c *conn) close(err error) { c.closeWith(err, http2.ErrCodeNo, true) }

// closeNow ends the connection without sending anything.
func (c *conn) closeNow(err error) { c.closeWith(err, 0, false) }

// fail ends the connection because of something the peer sent, or because
// reading failed.
func (c *conn) fail(err error) {
	if wrong, ok := errors.AsType[*ProtocolError](err); ok {
		c.closeWith(fmt.Errorf("%w: %w", ErrConnectionLost, err), wrong.Code, true)
		return
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // io.EOF would look like the end of a body
	}
	c.closeNow(fmt.Errorf("%w: %w", ErrConnectionLost, err))
}

// closeWith ends the connection and its streams, once. Data that streams have
// already received can still be read.
func (c *conn) closeWith(err error, code http2.ErrCode, polite bool) {
	c.mu.Lock()
	if c.mu.broken != nil {
		c.mu.Unlock()
		return
	}
	if c.mu.goAway != nil && errors.Is(err, ErrConnectionLost) {
		err = fmt.Errorf("%w: %w", err, c.mu.goAway)
	}
	c.mu.broken = err
	// A server that completes the handshake with every connection and drops it
	// before it carries a stream must not be dialed in a loop.
	var useless error
	if c.mu.places.fresh() && errors.Is(err, ErrConnectionLost) {
		useless = err
	}
	var ended []*stream
	for _, s := range c.mu.places.streams {
		ended = append(ended, s)
		c.endLocked(s, err)
	}
	if !c.mu.allowed.known {
		close(c.ready)
	}
	c.mu.alive.stopLocked(c)
	if polite {
		_ = c.mu.out.fr.WriteGoAway(0, code, nil)
		c.flushLocked()
	}
	c.mu.Unlock()

	c.hangUp(polite)
	c.pool.remove(c, useless)
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
