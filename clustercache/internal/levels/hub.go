// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package levels

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Hub passes changes on to the queues of its subscribers. The zero value has
// none. Its methods do not block, and can be called with other locks held.
type Hub[K comparable] struct {
	count atomic.Int32 // of queues

	mu     sync.Mutex // protects queues; taken before the lock of a queue
	queues map[*Queue[K]]struct{}
}

// Any reports whether there is a subscriber.
func (h *Hub[K]) Any() bool { return h.count.Load() > 0 }

// Subscribe adds a queue. Changes that are published from now on are put into
// it.
func (h *Hub[K]) Subscribe(q *Queue[K]) {
	h.mu.Lock()
	defer h.mu.Unlock()

	if h.queues == nil {
		h.queues = map[*Queue[K]]struct{}{}
	}
	h.queues[q] = struct{}{}
	h.count.Store(int32(len(h.queues)))
}

// Unsubscribe removes a queue.
func (h *Hub[K]) Unsubscribe(q *Queue[K]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.queues, q)
	h.count.Store(int32(len(h.queues)))
}

// Publish puts keys into every queue.
func (h *Hub[K]) Publish(keys ...K) {
	if !h.Any() || len(keys) == 0 {
		return
	}
	h.mu.Lock()
	queues := slices.Collect(maps.Keys(h.queues))
	h.mu.Unlock()

	for _, q := range queues {
		for _, key := range keys {
			q.Put(key, false)
		}
	}
}
