// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package timetable

import (
	"context"
	"sync"
	"time"
)

// pause is how long after timers have fired the next ones do. A thousand
// clusters have a hundred timers per second. What costs most of a timer is that
// it wakes a process at rest, and several that fire together wake it once: for
// each other, and for the answers of their servers.
const pause = 50 * time.Millisecond

// Timers calls functions when they are due, all on the goroutine of Run: at
// their time, or up to 50 ms later if others have just fired. It is safe for
// concurrent use.
type Timers struct {
	wake chan struct{}

	mu     sync.Mutex // protects the fields below, and every timer
	due    Table[func()]
	firing time.Time // when the currently firing timer began; zero if none is firing
}

// Timer is a function and the time at which to call it. The function must not
// block. A new Timer is at rest until it is set.
type Timer = Entry[func()]

// NewTimers returns Timers that call nothing until Run.
func NewTimers() *Timers { return &Timers{wake: make(chan struct{}, 1)} }

// NewTimer returns a timer at rest. Its function must not block.
func NewTimer(fire func()) *Timer { return &Timer{Value: fire} }

// Set makes t fire once at the given time, or never if that is zero. It
// replaces an earlier setting.
func (q *Timers) Set(t *Timer, at time.Time) {
	q.mu.Lock()
	if at.IsZero() {
		q.due.Remove(t)
	} else {
		q.due.Set(t, at)
	}
	q.unlock(q.due.First() == t)
}

// SetSooner is like Set, but does nothing if t already fires sooner.
func (q *Timers) SetSooner(t *Timer, at time.Time) {
	q.mu.Lock()
	sooner := !t.Listed() || at.Before(t.At())
	if sooner {
		q.due.Set(t, at)
	}
	q.unlock(sooner && q.due.First() == t)
}

// unlock unlocks, and makes Run look again if the first timer was set.
func (q *Timers) unlock(first bool) {
	q.mu.Unlock()
	if first {
		Wake(q.wake)
	}
}

// Run fires timers until ctx ends.
func (q *Timers) Run(ctx context.Context) {
	clock := time.NewTimer(time.Hour)
	defer clock.Stop()
	var next time.Time // the earliest time to fire again by the clock
	for {
		now := time.Now()
		wait, fired := q.fireDue(now)
		if fired {
			next = now.Add(pause)
		}
		clock.Reset(max(wait, time.Until(next)))
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		case <-clock.C:
		}
	}
}

// fireDue fires the timers that are due, and returns how long to wait for the
// next one and whether there were any.
func (q *Timers) fireDue(now time.Time) (wait time.Duration, fired bool) {
	for ; ; fired = true {
		q.mu.Lock()
		q.firing = time.Time{}
		t := q.due.PopDue(now)
		if t == nil {
			wait = time.Hour
			if first := q.due.First(); first != nil {
				wait = first.At().Sub(now)
			}
			q.mu.Unlock()
			return wait, fired
		}

		q.firing = time.Now()
		q.mu.Unlock()

		t.Value()
	}
}

// Late returns how far the timers are behind: how long one has been due without
// firing, or has been firing.
func (q *Timers) Late(now time.Time) time.Duration {
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
