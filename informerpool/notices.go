// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"sync"

	"github.com/fleetcache/fleetcache/informerpool/internal/calls"
)

// notices are the changes that Options.OnChanged has yet to be called with. A
// goroutine calls it, which exists only while there are any.
type notices struct {
	ctx     context.Context           //nolint:containedctx // the pool's lifetime
	changed func(key Key, reads bool) // Options.OnChanged, or nil
	calls   *calls.Caller
	spawn   func(func())

	mu      sync.Mutex // protects the fields below; nothing else is locked under it
	queue   []Key
	pending map[Key]bool // whether reads are concerned
	running bool
}

// add adds a notice. The pool is not closed, or one of its reflectors is
// running, and that is so until add returns.
func (n *notices) add(key Key, reads bool) {
	if n.changed == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.pending == nil {
		n.pending = map[Key]bool{}
	}
	before, queued := n.pending[key]
	n.pending[key] = before || reads
	if !queued {
		n.queue = append(n.queue, key)
	}
	if !n.running {
		n.running = true
		n.spawn(n.deliver)
	}
}

// deliver calls OnChanged until there is no notice.
func (n *notices) deliver() {
	for {
		key, reads, ok := n.take()
		if !ok || n.ctx.Err() != nil {
			return
		}
		n.calls.Tell("OnChanged", &key, func() { n.changed(key, reads) })
	}
}

func (n *notices) take() (key Key, reads, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if len(n.queue) == 0 {
		n.queue, n.running = nil, false
		return Key{}, false, false
	}
	key, n.queue = n.queue[0], n.queue[1:]
	reads = n.pending[key]
	delete(n.pending, key)

	return key, reads, true
}
