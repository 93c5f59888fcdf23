// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package workpool

import (
	"sync"
	"time"
)

const (
	// Hold is the longest time for which a job counts by default.
	Hold = time.Second
	// Patience is how long the first job of a burst may wait for one that
	// hangs: the whole burst has begun by then.
	Patience = 400 * time.Millisecond

	// ticks is in how many steps a burst is started within Patience.
	ticks = 40
	// minHold is the shortest time for which a job of a Queue that learns
	// counts.
	minHold = 50 * time.Millisecond
)

// Queue lets jobs begin in order, at most limit at once. Nothing is known of a
// job but whether it has ended, and one that hangs cannot be told from one that
// is slow. So a job counts only for a while (Hold), and goes on without being
// counted; and the queue moves on at a pace at which all that wait have begun
// within Patience, even if every job before them hangs.
//
// A Queue that learns keeps to its limit more strictly, for work that costs
// memory: it moves on at that pace only once a job took much longer than those
// that succeeded lately.
type Queue struct {
	limit int
	hold  time.Duration
	learn bool

	mu      sync.Mutex // protects what follows, and the fields of every Slot
	waiting []*Slot    // in order, with those given up meanwhile
	length  int        // of waiting, without those
	running []*Slot    // that count, oldest first, with those that ended meanwhile
	counted int        // of running, without those
	peak    int        // the most that waited since nobody did
	natural int        // begun in their turn since the last tick
	hung    bool       // since nobody waited, a job of a Queue that learns was let go
	ticking bool       // a timer is set

	// mean and deviation of what jobs took that succeeded; as TCP does for its
	// time-outs. Only if learn is set.
	known           bool
	mean, deviation time.Duration
}

// New returns a queue that lets limit jobs run at once.
func New(limit int) *Queue { return &Queue{limit: limit, hold: Hold} }

// NewLearning returns a queue that learns from Succeeded what is slow. A job
// counts for no longer than hold.
func NewLearning(limit int, hold time.Duration) *Queue {
	return &Queue{limit: limit, hold: hold, learn: true}
}

// Slot is the place of one job, in the queue or among those that run.
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

// Submit queues a job. start is called once when its turn comes, maybe before
// Submit returns, without locks; it must not block. Free has to be called when
// the job has ended, or is given up.
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

// Free gives the slot back, or leaves the queue. It is idempotent.
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

// Succeeded notes how long a job took that did what it should.
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

// boundLocked returns for how long a job counts.
func (q *Queue) boundLocked() time.Duration {
	if !q.learn || !q.known {
		return q.hold
	}
	return min(max(2*q.mean+4*q.deviation, minHold), q.hold)
}

// advanceLocked returns what is to begin now: what there is room for, and so
// many that have waited long enough. While jobs wait, a timer looks again.
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
	case q.length == 0: // a burst must not keep its memory
		q.waiting, q.peak, q.natural, q.hung = nil, 0, 0, false
	case !q.ticking:
		q.ticking = true
		time.AfterFunc(Patience/ticks, q.tick)
	}
	return begin
}

// letGoLocked stops counting the jobs that have run for too long.
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
