// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// timers is one queue of due times for all clusters, served by one goroutine.
type timers struct {
	wake chan struct{}

	mu     sync.Mutex // protects what follows, and at and index of every timer
	due    dueHeap
	firing time.Time // when the timer that fires now began to; zero: none does
}

// timer is one entry. It is at rest until set.
type timer struct {
	fire  func() // must not block
	at    time.Time
	index int // in the heap; -1 at rest
}

func newTimers() *timers { return &timers{wake: make(chan struct{}, 1)} }

func newTimer(fire func()) *timer { return &timer{fire: fire, index: -1} }

// set makes t fire once at the given time instead of what was set before;
// never, if that is zero.
func (q *timers) set(t *timer, at time.Time) {
	q.mu.Lock()
	t.at = at
	switch {
	case at.IsZero() && t.index >= 0:
		heap.Remove(&q.due, t.index)
	case at.IsZero():
	case t.index >= 0:
		heap.Fix(&q.due, t.index)
	default:
		heap.Push(&q.due, t)
	}
	first := t.index == 0
	q.mu.Unlock()
	if first {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// setSooner is set, unless t fires sooner than that anyhow.
func (q *timers) setSooner(t *timer, at time.Time) {
	q.mu.Lock()
	later := t.index < 0 || at.Before(t.at)
	q.mu.Unlock()
	if later {
		q.set(t, at)
	}
}

// run fires timers until ctx ends.
func (q *timers) run(ctx context.Context) {
	clock := time.NewTimer(time.Hour)
	defer clock.Stop()
	for {
		clock.Reset(q.fireDue(time.Now()))
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		case <-clock.C:
		}
	}
}

// fireDue fires what is due and returns how long to wait for the next.
func (q *timers) fireDue(now time.Time) time.Duration {
	for {
		q.mu.Lock()
		q.firing = time.Time{}
		if len(q.due) == 0 {
			q.mu.Unlock()
			return time.Hour
		}
		t := q.due[0]
		if wait := t.at.Sub(now); wait > 0 {
			q.mu.Unlock()
			return wait
		}
		heap.Pop(&q.due)
		q.firing = time.Now()
		q.mu.Unlock()
		t.fire()
	}
}

// late returns how long the queue is behind: for how long a timer has been due,
// or has been firing.
func (q *timers) late(now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	var late time.Duration
	if len(q.due) > 0 {
		late = now.Sub(q.due[0].at)
	}
	if !q.firing.IsZero() {
		late = max(late, now.Sub(q.firing))
	}
	return max(late, 0)
}

// dueHeap orders timers by their time.
type dueHeap []*timer

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = -1
	return t
}
