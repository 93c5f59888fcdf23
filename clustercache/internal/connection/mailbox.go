// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"net"
	"sync"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/identity"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// message is an event, with the result of an attempt if it has one.
type message struct {
	phase.Event
	found *result
	// labels are those that the resolver gave the running attempt (Resolved).
	labels map[string]string
}

// result is the result of a connect attempt.
type result struct {
	candidate *transport.Candidate // nil: the access already in use was proven
	access    resolver.Access
	uid       string
	version   string // not queried without a candidate
	path      string
	use       *identity.Access // of the candidate's connections; nil without a candidate
	moved     bool             // which lead to another address
	number    uint64           // number of the identity query
	sent      time.Time        // when that query was sent
	over      net.Conn         // the connection of that query
}

// drop closes the candidate of a result that is not adopted.
func (f *result) drop() {
	if f != nil && f.candidate != nil {
		f.candidate.Close()
	}
}

// mailbox holds messages until they are handled, one at a time.
type mailbox struct {
	done chan struct{} // closed with the mailbox

	mu       sync.Mutex // protects what follows; nothing else is locked under it
	messages []message
	handling bool
	closed   bool
}

// put adds a message. It returns false if the mailbox is closed.
func (b *mailbox) put(m message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	if !b.closed {
		b.messages = append(b.messages, m)
	}
	return !b.closed
}

// drain handles the messages, unless another caller is doing so: that caller
// sees every message that was put before it stops.
func (b *mailbox) drain(handle func(message)) {
	b.mu.Lock()
	if b.handling {
		b.mu.Unlock()
		return
	}
	b.handling = true
	for len(b.messages) > 0 && !b.closed {
		m := b.messages[0]
		b.messages = b.messages[1:]
		b.mu.Unlock()

		handle(m)
		b.mu.Lock()
	}

	rest := b.messages
	b.handling, b.messages = false, nil
	b.mu.Unlock()

	dropAll(rest)
}

// close drops the messages that wait, and all later ones. It reports whether
// messages were waiting or being handled.
func (b *mailbox) close() (pending bool) {
	b.mu.Lock()
	if !b.closed {
		close(b.done)
	}
	pending = b.handling || len(b.messages) > 0
	rest := b.messages
	b.closed, b.messages = true, nil
	b.mu.Unlock()

	dropAll(rest)
	return pending
}

func dropAll(messages []message) {
	for _, m := range messages {
		m.found.drop()
	}
}
