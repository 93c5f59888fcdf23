// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const maxStreamID = 1<<31 - 1

// places are the streams of a connection, and the room reserved for more. They
// are protected by the connection's lock.
type places struct {
	streams  map[uint32]*stream // those that have not ended
	nextID   uint32             // of the next stream
	reserved int                // granted to requests that have not opened their stream yet
	retired  bool               // no more are granted
	idle     time.Time          // since when none has been in use, if none is
}

func newPlaces(now time.Time) places {
	return places{streams: map[uint32]*stream{}, nextID: 1, idle: now}
}

// used returns the number of places that are taken.
func (p *places) used() int64 { return int64(len(p.streams) + p.reserved) }

// fresh reports whether no stream has ever been opened.
func (p *places) fresh() bool { return p.nextID == 1 }

// noteIdle records since when the places have been idle, if they are.
func (p *places) noteIdle() {
	if p.used() == 0 {
		p.idle = time.Now()
	}
}

// add gives s its number. The number that would follow the last one retires the
// connection.
func (p *places) add(s *stream) {
	s.id = p.nextID
	p.streams[s.id] = s
	p.nextID += 2
	p.retired = p.nextID > maxStreamID
}

// reserve reserves a place for a stream. It reports whether there was one.
// preferred means that the request prefers c to other connections.
func (c *conn) reserve(preferred bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	limit := c.commonLocked()
	if preferred {
		limit = c.mu.allowed.streams
	}
	if !c.usableLocked() || c.mu.places.used()+int64(c.mu.alive.resets) >= limit || c.mu.out.full() {
		return false
	}
	c.mu.places.reserved++
	return true
}

// promising reports whether waiting for room on c is better than dialing:
// either the server has yet to confirm the end of some streams, or it currently
// allows no streams on a new connection. The keepalive bounds both.
func (c *conn) promising() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.usableLocked() && (c.barredLocked() || c.mu.places.used() < c.commonLocked() && !c.mu.out.full())
}

// commonLocked returns how many streams requests may use that do not prefer c.
func (c *conn) commonLocked() int64 {
	allowed := c.mu.allowed.streams
	if c.t.opts.Spare == nil {
		return allowed
	}
	return max(min(allowed, 1), allowed-int64(c.t.opts.Spare(c.nc)))
}

func (c *conn) usableLocked() bool {
	return c.mu.broken == nil && c.mu.allowed.known && !c.mu.places.retired
}

// barredLocked reports whether the peer allows no streams on a new connection.
func (c *conn) barredLocked() bool { return c.mu.allowed.streams == 0 && c.mu.places.fresh() }

// release gives up a reserved place.
func (c *conn) release() {
	c.mu.Lock()
	c.mu.places.reserved--
	c.mu.places.noteIdle()
	c.mu.Unlock()

	c.finish()
}

// open sends a request in a reserved place and returns its stream, which ends
// with ctx.
func (c *conn) open(ctx context.Context, out request) (*stream, error) {
	s := &stream{c: c, left: unknown, watch: out.watch}
	s.cond.L = &c.mu.Mutex
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

	if err := c.start(s, out.fields); err != nil {
		c.finish(s)
		return nil, err
	}
	return s, nil
}

// start moves s into its reserved place and sends its headers.
func (c *conn) start(s *stream, fields []hpack.HeaderField) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	p, allowed := &c.mu.places, &c.mu.allowed
	p.reserved--
	p.noteIdle()

	switch {
	case s.err != nil: // the context has ended
		return s.err
	case c.mu.broken != nil:
		return fmt.Errorf("%w: %w", ErrUnprocessed, c.mu.broken)
	case s.watch && c.t.unwatched.Load():
		return ErrRetired
	case p.retired:
		return fmt.Errorf("%w: %w", ErrUnprocessed, errRetired)
	case listSize(fields) > allowed.maxHeader:
		return fmt.Errorf("%w: the server accepts %d bytes", ErrHeaderTooLarge, allowed.maxHeader)
	}

	s.window = int32(c.t.opts.StreamWindow)
	s.sendable = allowed.streamWindow
	p.add(s)
	c.mu.out.headers(s.id, fields)
	c.flushLocked()

	return nil
}

// endLocked removes s from the connection and ends it with err. The caller must
// call finish for it after unlocking.
func (c *conn) endLocked(s *stream, err error) {
	s.err = err
	delete(c.mu.places.streams, s.id)
	c.mu.places.noteIdle()
	s.cond.Broadcast()
}

// resetLocked ends s on both sides.
func (c *conn) resetLocked(s *stream, code http2.ErrCode, err error) {
	c.endLocked(s, err)
	c.mu.budget.forgiveLocked(c.t.opts.StreamWindow / smallFrame)
	_ = c.mu.out.fr.WriteRSTStream(s.id, code)
	c.mu.alive.resetLocked(c)
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
		c.close(over)
	}
	c.pool.serve()
}

// overLocked returns the error with which the connection must end, if it has
// served its last stream, or else nil.
func (c *conn) overLocked() error {
	switch {
	case !c.mu.places.retired || c.mu.places.used() > 0 || c.mu.broken != nil:
		return nil
	case c.mu.goAway != nil:
		return ErrConnectionLost // closeWith adds the details
	}

	return errRetired
}

// retire admits no more streams, and closes the connection once it has none.
func (c *conn) retire() {
	c.mu.Lock()
	c.mu.places.retired = true
	c.mu.Unlock()

	c.finish()
}

// endWatches ends the streams of watches.
func (c *conn) endWatches() {
	c.mu.Lock()
	var ended []*stream
	for _, s := range c.mu.places.streams {
		if s.watch {
			ended = append(ended, s)
			c.resetLocked(s, http2.ErrCodeCancel, ErrWatchEnded)
		}
	}
	c.mu.Unlock()

	c.finish(ended...)
}
