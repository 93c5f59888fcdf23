// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package workpool

import (
	"context"
	"sync"
	"time"
)

const (
	// Hold is the default for how long a job counts at most.
	Hold = time.Second
	// Patience is how long a burst of jobs may wait for earlier jobs that hang:
	// after Patience the whole burst has begun.
	Patience = 400 * time.Millisecond

	// ticks is the number of steps in which a burst is started within Patience.
	ticks = 40
	// minHold is how long at least a job of a learning Queue counts.
	minHold = 50 * time.Millisecond
)

// Queue starts jobs in order and runs at most limit at once. It knows nothing
// about a job except whether it has ended, so it cannot distinguish a job that
// hangs from a slow one. Therefore a job counts only for a while (Hold) and
// then continues without being counted. Also, the queue advances at a rate that
// starts all waiting jobs within Patience, even if every job before them hangs.
//
//	Submit ──► waiting ── room, or a tick ──► counted ── Hold ──► uncounted
//	              │                              │                    │
//	             Free                           Free                 Free
//
// A learning Queue is stricter about its limit and meant for work that costs
// memory: it advances at that rate only after a job has taken much longer than
// recent successful ones.
type Queue struct {
	limit int
	hold  time.Duration
	learn bool

	mu      sync.Mutex // protects the fields below, and the fields of every Slot
	waiting []*Slot    // in order, including those given up meanwhile
	length  int        // of waiting, without those given up
	running []*Slot    // counted jobs, oldest first, including those that ended meanwhile
	counted int        // of running, without those that ended
	peak    int        // the maximum length since the queue was last empty
	natural int        // started because there was room, since the last tick
	hung    bool       // a learning Queue stopped counting a job since the queue was last empty
	ticking bool       // a timer is set

	// Mean and deviation of the durations of successful jobs, estimated as TCP
	// does for its timeouts. Only used if learn is set.
	known           bool
	mean, deviation time.Duration
}

// New returns a queue that runs up to limit jobs at once.
func New(limit int) *Queue { return &Queue{limit: limit, hold: Hold} }

// NewLearning returns a queue that learns from Succeeded how long jobs usually
// take. A job counts for hold at most.
func NewLearning(limit int, hold time.Duration) *Queue {
	return &Queue{limit: limit, hold: hold, learn: true}
}

// Slot is one job's place in the queue or among the running jobs.
type Slot struct {
	q     *Queue
	start func()
	began time.Time
	state state
}

type state int

const (
	waiting state = iota
	counted
	uncounted
	ended
)

// Submit queues a job. It calls start once when the job's turn comes, possibly
// before Submit returns, without holding locks. start must not block. The
// caller must call Free when the job has ended or is given up.
func (q *Queue) Submit(start func()) *Slot {
	s := &Slot{q: q, start: start}
	q.mu.Lock()
	q.waiting = append(q.waiting, s)
	q.length++
	q.peak = max(q.peak, q.length)
	begin := q.advanceLocked(0)
	q.mu.Unlock()

	run(begin)

	return s
}

// Take waits for a turn. The function that it returns ends the turn, and may be
// called more than once.
func (q *Queue) Take(ctx context.Context) (free func(), err error) {
	turn := make(chan struct{})
	slot := q.Submit(func() { close(turn) })
	select {
	case <-turn:
		return slot.Free, nil
	case <-ctx.Done():
		slot.Free()
		return nil, context.Cause(ctx)
	}
}

// Free releases the slot or removes it from the queue. It is idempotent.
func (s *Slot) Free() {
	q := s.q
	q.mu.Lock()
	switch s.state {
	case waiting:
		q.length--
		s.start = nil
	case counted:
		q.counted--
	}

	s.state = ended
	begin := q.advanceLocked(0)
	q.mu.Unlock()

	run(begin)
}

// Waiting reports whether a job waits for its turn.
func (q *Queue) Waiting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.length > 0
}

// Succeeded records how long a successful job took.
func (q *Queue) Succeeded(took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if !q.known {
		q.known, q.mean, q.deviation = true, took, took/2
		return
	}
	q.deviation += ((took - q.mean).Abs() - q.deviation) / 4
	q.mean += (took - q.mean) / 8
}

// boundLocked returns how long a job counts.
func (q *Queue) boundLocked() time.Duration {
	if !q.learn || !q.known {
		return q.hold
	}
	return min(max(2*q.mean+4*q.deviation, minHold), q.hold)
}

// advanceLocked returns the jobs that start now: those for which there is room,
// and up to due further jobs that have waited long enough. While jobs wait, a
// timer checks again.
func (q *Queue) advanceLocked(due int) []*Slot {
	now := time.Now()
	q.letGoLocked(now)
	var begin []*Slot
	for len(q.waiting) > 0 && (q.counted < q.limit || due > 0) {
		s := q.waiting[0]
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
		if s.state != waiting {
			continue // given up
		}
		if q.counted < q.limit {
			q.natural++
		}
		due--
		q.length--
		q.counted++
		s.state, s.began = counted, now
		q.running = append(q.running, s)
		begin = append(begin, s)
	}

	switch {
	case q.length == 0: // a burst must not retain its memory
		q.waiting, q.peak, q.natural, q.hung = nil, 0, 0, false
	case !q.ticking:
		q.ticking = true
		time.AfterFunc(Patience/ticks, q.tick)
	}

	return begin
}

// letGoLocked stops counting jobs that have run for too long.
func (q *Queue) letGoLocked(now time.Time) {
	bound := q.boundLocked()
	for len(q.running) > 0 {
		s := q.running[0]
		if s.state == counted {
			if now.Sub(s.began) <= bound {
				break
			}
			s.state = uncounted
			q.counted--
			q.hung = q.hung || q.length > 0
		}

		q.running[0] = nil
		q.running = q.running[1:]
	}

	if len(q.running) == 0 {
		q.running = nil
	}
}

func (q *Queue) tick() {
	q.mu.Lock()
	q.ticking = false
	due := 0
	if q.letGoLocked(time.Now()); !q.learn || q.hung {
		due = max((q.peak+ticks-1)/ticks-q.natural, 0)
	}
	q.natural = 0
	begin := q.advanceLocked(due)
	q.natural = 0
	q.mu.Unlock()

	run(begin)
}

func run(begin []*Slot) {
	for _, s := range begin {
		s.start()
	}
}
