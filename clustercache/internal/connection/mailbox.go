// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
)

// message is an event, with the result of an attempt if it has one.
type message struct {
	phase.Event
	found *result
	// labels are those that the resolver gave the running attempt (Resolved).
	labels map[string]string
}

// Ask reports that the cluster is to be used. It returns false if the
// connection is closed.
func (c *Connection) Ask() bool { return c.notify(phase.Asked) }

// Changed reports that the access to the cluster may have changed. It returns
// false if the connection is closed.
func (c *Connection) Changed() bool { return c.notify(phase.Changed) }

// Release ends the connection unless the cluster is wanted by then.
func (c *Connection) Release() {
	c.post(message{Event: phase.Event{Kind: phase.Removed, Reason: ReasonReleased}})
}

// RolledBack reports that the history of an API group went backwards. The
// informers of that group handle it alone, unless a resource of the core group
// went back, or resources of more than one group within a short time: an
// extension server that keeps its objects in memory begins a new history each
// time it starts.
func (c *Connection) RolledBack(group string) {
	if c.signs.rollbacks.spread(group, time.Now()) {
		c.notify(phase.RolledBack)
	}
}

// noteBroken reports an error of a request or a stream. A probe follows at once
// if the server refuses or breaks connections. No message is posted for streams
// that end normally.
func (c *Connection) noteBroken(err error) {
	if err == nil {
		return
	}
	if class, _ := classify(err); class == phase.Unreachable && c.view.Load().Connected {
		c.notify(phase.Broken)
	}
}

func (c *Connection) notify(kind phase.Kind) bool {
	return c.post(message{Event: phase.Event{Kind: kind}})
}

// post puts a message into the mailbox, and handles the mailbox unless another
// caller is doing so. It does not wait. It returns false if the cluster is
// closed.
func (c *Connection) post(m message) bool {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()

		m.found.drop()
		return false
	}
	c.mu.mailbox = append(c.mu.mailbox, m)
	c.mu.Unlock()

	c.Drain()

	return true
}

// Drain handles the mailbox, unless another caller is doing so: that caller
// sees every message that was posted before it stops.
func (c *Connection) Drain() {
	if !c.cfg.Started() {
		return // Start drains
	}
	c.mu.Lock()
	if c.mu.handling {
		c.mu.Unlock()
		return
	}
	c.mu.handling = true
	for len(c.mu.mailbox) > 0 && !c.mu.closed {
		m := c.mu.mailbox[0]
		c.mu.mailbox = c.mu.mailbox[1:]
		c.mu.Unlock()

		c.handle(m)
		c.mu.Lock()
	}

	rest := c.mu.mailbox
	c.mu.handling, c.mu.mailbox = false, nil
	c.mu.Unlock()

	for _, m := range rest {
		m.found.drop()
	}
}

// Close ends the connection for good, and waits for its work to end. Attempts
// may still run on the workers, but their messages are dropped. It reports
// whether a change may have been lost: messages were waiting or being handled,
// or the cluster had left the phase Gone.
func (c *Connection) Close() (pending bool) {
	c.mu.Lock()
	if !c.mu.closed {
		close(c.done)
	}
	c.mu.closed = true
	rest := c.mu.mailbox
	pending = c.mu.handling || len(rest) > 0 || c.view.Load().Phase != phase.Gone
	c.mu.mailbox = nil
	c.mu.Unlock()

	for _, m := range rest {
		m.found.drop()
	}
	c.cfg.Timers.Set(c.tick, time.Time{})
	c.cfg.Timers.Set(c.prover.tick, time.Time{})
	c.transport.Close()

	return pending
}
