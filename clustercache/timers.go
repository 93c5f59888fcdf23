// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"sync"
	"time"

	"github.com/fleetcache/fleetcache/internal/timetable"
)

// timers is one queue of due times for all clusters, served by one goroutine.
type timers struct {
	wake chan struct{}

	mu     sync.Mutex // protects what follows, and every timer
	due    timetable.Table[func()]
	firing time.Time // when the timer that fires now began to; zero: none does
}

// timer is a function that must not block, and when to call it. It is at rest
// until set.
type timer = timetable.Entry[func()]

func newTimers() *timers { return &timers{wake: make(chan struct{}, 1)} }

func newTimer(fire func()) *timer { return &timer{Value: fire} }

// set makes t fire once at the given time instead of what was set before;
// never, if that is zero.
func (q *timers) set(t *timer, at time.Time) {
	q.mu.Lock()
	if at.IsZero() {
		q.due.Remove(t)
	} else {
		q.due.Set(t, at)
	}
	first := q.due.First() == t
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
	later := !t.Listed() || at.Before(t.At())
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
		t := q.due.PopDue(now)
		if t == nil {
			wait := time.Hour
			if first := q.due.First(); first != nil {
				wait = first.At().Sub(now)
			}
			q.mu.Unlock()
			return wait
		}
		q.firing = time.Now()
		q.mu.Unlock()

		t.Value()
	}
}

// late returns how long the queue is behind: for how long a timer has been due,
// or has been firing.
func (q *timers) late(now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	var late time.Duration
	if first := q.due.First(); first != nil {
		late = now.Sub(first.At())
	}
	if !q.firing.IsZero() {
		late = max(late, now.Sub(q.firing))
	}
	return max(late, 0)
}
