// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"encoding/binary"
	"fmt"
	"time"
)

// patience is how many times PingTimeout a pong may be overtaken by other
// frames. A peer that goes on sending is alive, but the ends of streams that
// the ping confirms must not stay in doubt for ever.
const patience = 4

// keepalive notices dead and idle connections, with one timer per connection.
// It is protected by the connection's lock.
type keepalive struct {
	// timer runs conn.watch. Transport.running counts each time that it is set.
	timer *time.Timer

	pinging bool          // a ping is not answered
	pinged  time.Duration // when it was sent, since the connection was born
	pings   uint64        // the payload of the last one

	// resets counts streams that we have reset without knowing that the peer
	// has seen it. They count against the peer's limit, which keeps requests
	// that are cancelled at once from flooding the peer, and a dead connection
	// from swallowing any number of them. A ping goes with the first; its
	// answer confirms all that were sent before it.
	resets int
	before int // of those, sent before the ping
}

func (k *keepalive) startLocked(c *conn) {
	c.t.running.Add(1)
	k.timer = time.AfterFunc(min(c.t.opts.PingAfter, c.t.opts.IdleTimeout), c.watch)
}

func (k *keepalive) stopLocked(c *conn) {
	if k.timer.Stop() {
		c.t.running.Done()
	}
}

func (k *keepalive) armLocked(c *conn, d time.Duration) {
	if !k.timer.Reset(d) {
		c.t.running.Add(1) // in watch, or with watch waiting for the lock: it is going to run once more
	}
}

// resetLocked notes that a stream was reset.
func (k *keepalive) resetLocked(c *conn) {
	k.resets++
	if !k.pinging {
		k.pingLocked(c)
	}
}

func (k *keepalive) pingLocked(c *conn) {
	k.pinging, k.pinged, k.before = true, time.Since(c.born), k.resets
	k.pings++
	var payload [8]byte
	binary.BigEndian.PutUint64(payload[:], k.pings)
	_ = c.out.fr.WritePing(false, payload)
	c.flushLocked()
	k.armLocked(c, c.t.opts.PingTimeout)
}

// pongLocked takes note of an answer to a ping, if it is one to ours.
func (k *keepalive) pongLocked(c *conn, payload [8]byte) {
	if !k.pinging || binary.BigEndian.Uint64(payload[:]) != k.pings {
		return
	}
	k.pinging = false
	k.resets -= k.before
	if k.resets > 0 {
		k.pingLocked(c)
	}
}

// watch runs when the timer fires: it pings, gives up, closes, or looks again
// later.
func (c *conn) watch() {
	defer c.t.running.Done()
	if end := c.look(); end != nil {
		if end == errIdle { //nolint:errorlint // look returns it as it is
			c.bye(end)
		} else {
			c.abort(end)
		}
	}
}

// look returns why the connection has to end, or sets the timer.
func (c *conn) look() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.broken != nil {
		return nil
	}
	opts, k := &c.t.opts, &c.alive
	now, heard := time.Since(c.born), time.Duration(c.heard.Load())
	var next time.Duration // when there may be something to do
	switch {
	case k.pinging:
		next = min(max(heard, k.pinged)+opts.PingTimeout, k.pinged+patience*opts.PingTimeout)
		if now >= next {
			return fmt.Errorf("%w: %w in %v", ErrConnectionLost, errPingTimeout, now-k.pinged)
		}
	case now >= heard+opts.PingAfter:
		k.pingLocked(c)
		next = now + opts.PingTimeout
	default:
		next = heard + opts.PingAfter
	}
	if c.usedLocked() == 0 {
		if time.Since(c.idle) >= opts.IdleTimeout {
			c.retired = true // no stream may come in between
			return errIdle
		}
	}
	k.armLocked(c, min(next-now, opts.IdleTimeout))
	return nil
}
