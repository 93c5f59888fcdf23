// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"fmt"

	"golang.org/x/net/http2"
)

// onPing answers a ping, or processes the answer to one of ours.
func (c *conn) onPing(f *http2.PingFrame) error {
	c.mu.Lock()
	if c.mu.broken != nil {
		c.mu.Unlock()
		return nil
	}
	if f.IsAck() {
		c.mu.alive.pongLocked(c, f.Data)
	} else {
		_ = c.mu.out.fr.WritePing(true, f.Data)
		c.flushLocked()
	}

	c.mu.Unlock()

	c.pool.serve() // the answer may confirm the end of streams

	return nil
}

// onWindowUpdate tracks windows that are never used, only to enforce the limits
// on the peer.
func (c *conn) onWindowUpdate(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if f.StreamID == 0 {
		if c.mu.allowed.connWindow += int64(f.Increment); c.mu.allowed.connWindow > maxWindow {
			return &ProtocolError{http2.ErrCodeFlowControl, "the connection's window overflows"}
		}
		return nil
	}

	s, err := c.lookupLocked(f.StreamID)
	if s == nil {
		return err
	}
	if s.sendable += int64(f.Increment); s.sendable > maxWindow {
		return &StreamError{s.id, http2.ErrCodeFlowControl, errOverflow}
	}
	return nil
}

// onReset ends a stream that the peer has reset. Data received before can still
// be read.
func (c *conn) onReset(f *http2.RSTStreamFrame) error {
	c.mu.Lock()
	s, err := c.lookupLocked(f.StreamID)
	if s != nil {
		c.endLocked(s, &StreamError{StreamID: s.id, Code: f.ErrCode})
		if f.ErrCode == http2.ErrCodeRefusedStream {
			c.refusedLocked()
		}
	}

	c.mu.Unlock()

	if s != nil {
		c.finish(s)
	}

	return err
}

// refusedLocked lowers the stream limit to the current number after the peer
// refused a stream: the request will be sent again, but not here.
func (c *conn) refusedLocked() {
	c.mu.allowed.streams = min(c.mu.allowed.streams, int64(len(c.mu.places.streams)))
	c.mu.places.retired = c.mu.places.retired || c.mu.allowed.streams == 0
}

// onGoAway lets the streams that the peer is willing to serve continue, and
// fails the others.
func (c *conn) onGoAway(f *http2.GoAwayFrame) error {
	c.mu.Lock()
	c.mu.goAway = &GoAwayError{LastStreamID: f.LastStreamID, Code: f.ErrCode}
	c.mu.places.retired = true
	var ended []*stream
	for id, s := range c.mu.places.streams {
		if id > f.LastStreamID {
			ended = append(ended, s)
			c.endLocked(s, fmt.Errorf("%w: %w", ErrUnprocessed, c.mu.goAway))
		}
	}

	err := c.spendLocked()
	c.mu.Unlock()

	c.finish(ended...)

	return err
}
