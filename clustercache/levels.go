// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fleetcache/fleetcache/internal/timetable"
)

// Levels coalesce changed keys for level-triggered subscribers: a subscriber
// learns which keys have changed, and reads their current state itself. A key
// waits at most once in the queue of a subscriber, however often it changes, so
// a slow subscriber costs no more memory than there are keys:
//
//	publish ──► levelHub ──► levelQueue of each subscriber ──► next
//	                         put: for this one alone
//
// The leading test is TestSlowSubscriberGetsAlternatingEventsAndTheLastState
// (test/watching).

// levelHub passes changes on to the queues of its subscribers. The zero value
// has none. Its methods do not block, and can be called with other locks held.
type levelHub[K comparable] struct {
	count atomic.Int32 // of queues

	mu     sync.Mutex // protects queues; taken before the lock of a queue
	queues map[*levelQueue[K]]struct{}
}

// any reports whether there is a subscriber.
func (h *levelHub[K]) any() bool { return h.count.Load() > 0 }

// subscribe adds a queue. Changes that are published from now on are put into
// it.
func (h *levelHub[K]) subscribe(q *levelQueue[K]) {
	h.mu.Lock()
	defer h.mu.Unlock()

	if h.queues == nil {
		h.queues = map[*levelQueue[K]]struct{}{}
	}
	h.queues[q] = struct{}{}
	h.count.Store(int32(len(h.queues)))
}

// unsubscribe removes a queue.
func (h *levelHub[K]) unsubscribe(q *levelQueue[K]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.queues, q)
	h.count.Store(int32(len(h.queues)))
}

// publish puts keys into every queue.
func (h *levelHub[K]) publish(keys ...K) {
	if !h.any() || len(keys) == 0 {
		return
	}
	h.mu.Lock()
	queues := slices.Collect(maps.Keys(h.queues))
	h.mu.Unlock()

	for _, q := range queues {
		for _, key := range keys {
			q.put(key, false)
		}
	}
}

// levelQueue holds the keys that one subscriber has yet to look at, in the order
// in which they were first put. Make one with newLevelQueue.
type levelQueue[K comparable] struct {
	changed chan struct{} // one slot

	mu      sync.Mutex // protects the fields below; nothing else is locked under it
	order   []K
	initial map[K]bool // of those that wait: nothing has changed, they are only shown
	paused  bool
}

func newLevelQueue[K comparable]() *levelQueue[K] {
	return &levelQueue[K]{changed: make(chan struct{}, 1), initial: map[K]bool{}}
}

// put adds a key, unless it waits already. A key is initial if it was never put
// as a change since it was last taken.
func (q *levelQueue[K]) put(key K, initial bool) {
	q.mu.Lock()
	before, waits := q.initial[key]
	q.initial[key] = initial && (before || !waits)
	if !waits {
		q.order = append(q.order, key)
	}
	q.mu.Unlock()

	timetable.Wake(q.changed)
}

// pause makes next wait, or ends the pause.
func (q *levelQueue[K]) pause(paused bool) {
	q.mu.Lock()
	q.paused = paused
	q.mu.Unlock()

	timetable.Wake(q.changed)
}

// level is a key that a subscriber has to look at.
type level[K comparable] struct {
	key     K
	initial bool
}

// take returns the next key, if there is one.
func (q *levelQueue[K]) take() (out level[K], ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if q.paused || len(q.order) == 0 {
		return out, false
	}
	out.key = q.order[0]
	if q.order = q.order[1:]; len(q.order) == 0 {
		q.order = nil
	}
	out.initial = q.initial[out.key]
	delete(q.initial, out.key)

	return out, true
}

// next waits for what take returns next. It returns false once ctx has ended,
// or changed is closed and nothing is left.
func next[T any](ctx context.Context, changed <-chan struct{}, take func() (T, bool)) (out T, ok bool) {
	for ctx.Err() == nil {
		if out, ok = take(); ok {
			return out, true
		}
		select {
		case <-ctx.Done():
		case _, open := <-changed:
			if !open {
				return take()
			}
		}
	}
	return out, false
}
