// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"fmt"
	"time"

	"golang.org/x/net/http2"
)

// onSettings applies the peer's settings and acknowledges them.
func (c *conn) onSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	window := c.streamWindow
	for i := range f.NumSettings() {
		if err := c.settingLocked(f.Setting(i)); err != nil {
			c.mu.Unlock()
			return err
		}
	}

	// One adjustment for all changes in the frame, so that their number does
	// not matter.
	err := c.adjustLocked(c.streamWindow - window)
	if err == nil && c.broken == nil {
		_ = c.out.fr.WriteSettingsAck()
		c.flushLocked()
	}
	if err == nil && !c.settled && c.broken == nil {
		c.settled = true
		close(c.ready)
	}
	c.mu.Unlock()

	c.pool.serve() // the peer may have raised the limit

	return err
}

// settingLocked applies one setting. It ignores the peer's maximum frame size,
// because our frames are never larger than the minimum that every peer must
// accept.
func (c *conn) settingLocked(s http2.Setting) error {
	if err := s.Valid(); err != nil || s.ID == http2.SettingEnablePush && s.Val != 0 {
		code := http2.ErrCodeProtocol
		if s.ID == http2.SettingInitialWindowSize {
			code = http2.ErrCodeFlowControl
		}
		return &ProtocolError{code, fmt.Sprintf("invalid setting %v", s)}
	}

	switch s.ID {
	case http2.SettingHeaderTableSize:
		c.out.enc.SetMaxDynamicTableSize(s.Val)
	case http2.SettingMaxConcurrentStreams:
		if s.Val == 0 && c.limit != 0 {
			c.barred = time.Since(c.born)
		}
		c.limit = int64(s.Val)
	case http2.SettingInitialWindowSize:
		c.streamWindow = int64(s.Val)
	case http2.SettingMaxHeaderListSize:
		c.maxHeader = int64(s.Val)
	}

	return nil
}

// adjustLocked applies a change of the initial window to all streams. Their
// windows may become negative.
func (c *conn) adjustLocked(by int64) error {
	if by == 0 {
		return nil
	}
	for _, s := range c.streams {
		if s.sendable += by; s.sendable > maxWindow {
			return &ProtocolError{http2.ErrCodeFlowControl, "the setting overflows a stream's window"}
		}
	}
	return nil
}

// onPing answers a ping, or processes the answer to one of ours.
func (c *conn) onPing(f *http2.PingFrame) error {
	c.mu.Lock()
	if c.broken != nil {
		c.mu.Unlock()
		return nil
	}
	if f.IsAck() {
		c.alive.pongLocked(c, f.Data)
	} else {
		_ = c.out.fr.WritePing(true, f.Data)
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
		if c.peerWindow += int64(f.Increment); c.peerWindow > maxWindow {
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
	c.limit = min(c.limit, int64(len(c.streams)))
	c.retired = c.retired || c.limit == 0
}

// onGoAway lets the streams that the peer is willing to serve continue, and
// fails the others.
func (c *conn) onGoAway(f *http2.GoAwayFrame) error {
	c.mu.Lock()
	c.goAway = &GoAwayError{LastStreamID: f.LastStreamID, Code: f.ErrCode}
	c.retired = true
	var ended []*stream
	for id, s := range c.streams {
		if id > f.LastStreamID {
			ended = append(ended, s)
			c.endLocked(s, fmt.Errorf("%w: %w", ErrUnprocessed, c.goAway))
		}
	}

	err := c.spendLocked()
	c.mu.Unlock()

	c.finish(ended...)

	return err
}
