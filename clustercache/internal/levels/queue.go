// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package levels

import (
	"context"
	"sync"
)

// Queue holds the keys that one subscriber has yet to look at, in the order in
// which they were first put. Make one with [NewQueue].
type Queue[K comparable] struct {
	changed chan struct{} // one slot

	mu      sync.Mutex // protects the fields below; nothing else is locked under it
	order   []K
	initial map[K]bool // of those that wait: nothing has changed, they are only shown
	paused  bool
}

// NewQueue returns an empty queue.
func NewQueue[K comparable]() *Queue[K] {
	return &Queue[K]{changed: make(chan struct{}, 1), initial: map[K]bool{}}
}

// Put adds a key, unless it waits already. A key is initial if it was never put
// as a change since it was last taken.
func (q *Queue[K]) Put(key K, initial bool) {
	q.mu.Lock()
	before, waits := q.initial[key]
	q.initial[key] = initial && (before || !waits)
	if !waits {
		q.order = append(q.order, key)
	}
	q.mu.Unlock()

	q.wake()
}

// Pause makes Next wait, or ends the pause.
func (q *Queue[K]) Pause(paused bool) {
	q.mu.Lock()
	q.paused = paused
	q.mu.Unlock()

	q.wake()
}

func (q *Queue[K]) wake() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// Next waits for a key, and takes it. It returns false once ctx has ended.
func (q *Queue[K]) Next(ctx context.Context) (key K, initial, ok bool) {
	for ctx.Err() == nil {
		if key, initial, ok = q.take(); ok {
			return key, initial, true
		}
		select {
		case <-q.changed:
		case <-ctx.Done():
		}
	}
	return key, false, false
}

func (q *Queue[K]) take() (key K, initial, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if q.paused || len(q.order) == 0 {
		return key, false, false
	}
	key = q.order[0]
	if q.order = q.order[1:]; len(q.order) == 0 {
		q.order = nil
	}
	initial = q.initial[key]
	delete(q.initial, key)

	return key, initial, true
}
