// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// patience is how many times PingTimeout the answer to a ping may take while
// other frames arrive. A peer that keeps sending is alive, but the ends of
// streams that the ping confirms must not stay unconfirmed forever.
const patience = 4

// keepalive detects dead and idle connections, with one timer per connection.
// It is protected by the connection's lock.
type keepalive struct {
	// timer runs conn.watch. Each time it is set counts in Transport.running.
	timer *time.Timer

	pinging bool          // a ping is unanswered
	pinged  time.Duration // when it was sent, since the connection was born
	pings   uint64        // the payload of the last one

	// resets counts streams that we have reset without confirmation that the
	// peer has seen it. They count against the peer's limit. That prevents
	// requests that are canceled at once from flooding the peer, and a dead
	// connection from swallowing an unlimited number of requests. A ping is
	// sent with the first reset; its answer confirms all resets that were sent
	// before it.
	resets int
	before int // how many of them were sent before the ping
}

func (k *keepalive) startLocked(c *conn) {
	c.t.running.Add(1)
	k.timer = time.AfterFunc(min(c.t.opts.PingAfter, c.t.opts.IdleTimeout, dialTimeout), c.watch)
}

func (k *keepalive) stopLocked(c *conn) {
	if k.timer.Stop() {
		c.t.running.Done()
	}
}

func (k *keepalive) armLocked(c *conn, d time.Duration) {
	if !k.timer.Reset(d) {
		c.t.running.Add(1) // called by watch, or while watch waits for the lock: watch will run once more
	}
}

// resetLocked records that a stream was reset.
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
	_ = c.mu.out.fr.WritePing(false, payload)
	c.flushLocked()
	k.armLocked(c, c.t.opts.PingTimeout)
}

// pongLocked processes the answer to a ping, if the ping was ours.
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

// watch runs when the timer fires. It pings, gives up or closes the connection,
// or sets the timer again.
func (c *conn) watch() {
	defer c.t.running.Done()
	if end := c.look(); end != nil {
		if errors.Is(end, ErrSilent) {
			c.closeNow(end)
		} else {
			c.close(end)
		}
	}
}

// look returns the error with which the connection has to end, or sets the
// timer and returns nil.
func (c *conn) look() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.mu.broken != nil {
		return nil
	}
	opts, k := &c.t.opts, &c.mu.alive
	now, heard := time.Since(c.born), time.Duration(c.heard.Load())
	var next time.Duration // when there may be something to do
	switch {
	case k.pinging:
		next = min(max(heard, k.pinged)+opts.PingTimeout, k.pinged+patience*opts.PingTimeout)
		if now >= next {
			return fmt.Errorf("%w: %w in %v", ErrConnectionLost, ErrSilent, now-k.pinged)
		}
	case now >= heard+opts.PingAfter:
		k.pingLocked(c)
		next = now + opts.PingTimeout
	default:
		next = heard + opts.PingAfter
	}

	switch {
	case c.barredLocked(): // requests may be waiting for it, so it is not idle
		end := c.mu.allowed.barred + dialTimeout
		if now >= end {
			return fmt.Errorf("%w: %w", ErrConnectionLost, ErrNoStreams)
		}
		next = min(next, end)
	case c.mu.places.used() == 0 && time.Since(c.mu.places.idle) >= opts.IdleTimeout:
		c.mu.places.retired = true // prevents a new stream in between
		return errIdle
	}

	k.armLocked(c, min(next-now, opts.IdleTimeout))

	return nil
}
