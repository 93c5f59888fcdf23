// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"fmt"
	"time"

	"golang.org/x/net/http2"
)

const defaultStreams = 1000 // for a server that sets no limit

// allowed is what the peer allows us. It is protected by the connection's lock.
//
// No data is ever sent, so the windows serve only to detect a peer that opens
// them beyond 2³¹-1.
type allowed struct {
	known        bool          // the peer's settings have arrived
	streams      int64         // at a time
	barred       time.Duration // when streams became 0, since the connection was born
	connWindow   int64         // bytes that may be sent on the connection
	streamWindow int64         // bytes that may be sent on a new stream
	maxHeader    int64         // the largest header list, in bytes
}

// defaultAllowed returns what is allowed until the peer's settings arrive.
func defaultAllowed() allowed {
	return allowed{
		streams:      defaultStreams,
		connWindow:   initialWindow,
		streamWindow: initialWindow,
		maxHeader:    maxWindow,
	}
}

// onSettings applies the peer's settings and acknowledges them.
func (c *conn) onSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	window := c.mu.allowed.streamWindow
	for i := range f.NumSettings() {
		if err := c.settingLocked(f.Setting(i)); err != nil {
			c.mu.Unlock()
			return err
		}
	}

	// One adjustment for all changes in the frame, so that their number does
	// not matter.
	err := c.adjustLocked(c.mu.allowed.streamWindow - window)
	if err == nil && c.mu.broken == nil {
		_ = c.mu.out.fr.WriteSettingsAck()
		c.flushLocked()
	}
	if err == nil && !c.mu.allowed.known && c.mu.broken == nil {
		c.mu.allowed.known = true
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

	a := &c.mu.allowed
	switch s.ID {
	case http2.SettingHeaderTableSize:
		c.mu.out.enc.SetMaxDynamicTableSize(s.Val)
	case http2.SettingMaxConcurrentStreams:
		if s.Val == 0 && a.streams != 0 {
			a.barred = time.Since(c.born)
		}
		a.streams = int64(s.Val)
	case http2.SettingInitialWindowSize:
		a.streamWindow = int64(s.Val)
	case http2.SettingMaxHeaderListSize:
		a.maxHeader = int64(s.Val)
	}

	return nil
}

// adjustLocked applies a change of the initial window to all streams. Their
// windows may become negative.
func (c *conn) adjustLocked(by int64) error {
	if by == 0 {
		return nil
	}
	for _, s := range c.mu.places.streams {
		if s.sendable += by; s.sendable > maxWindow {
			return &ProtocolError{http2.ErrCodeFlowControl, "the setting overflows a stream's window"}
		}
	}
	return nil
}
