// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fleetcache/fleetcache/internal/timetable"
)

// queue calls work with keys, one call at a time for each key, in the order in
// which the keys were added. A key whose call fails is tried again with
// back-off, or as soon as it is added again. There are goroutines only while
// there is work.
type queue[K comparable] struct {
	work       func(K) error
	workers    int // the most goroutines
	minBackoff time.Duration
	maxBackoff time.Duration
	running    sync.WaitGroup

	mu struct {
		sync.Mutex

		places map[K]*place[K]
		ready  []*place[K]
		due    timetable.Table[*place[K]] // those that wait for their next attempt
		timer  *time.Timer
		active int // goroutines
		closed bool
	}
}

// place is the place of a key in the queue, until a call succeeds.
type place[K comparable] struct {
	key      K
	ready    bool // it is in mu.ready
	busy     bool // work is being called with the key
	again    bool // the key was added meanwhile
	failures int  // calls that failed, one after the other
	retry    timetable.Entry[*place[K]]
}

func newQueue[K comparable](workers int, minBackoff, maxBackoff time.Duration, work func(K) error) *queue[K] {
	q := &queue[K]{
		work:       work,
		workers:    workers,
		minBackoff: minBackoff,
		maxBackoff: maxBackoff,
	}
	q.mu.places = map[K]*place[K]{}
	return q
}

// add has work called with a key, after the call that is under way.
func (q *queue[K]) add(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if q.mu.closed {
		return
	}
	p := q.mu.places[key]
	if p == nil {
		p = &place[K]{key: key}
		p.retry.Value = p
		q.mu.places[key] = p
	}
	switch {
	case p.busy:
		p.again = true
	case !p.ready:
		q.mu.due.Remove(&p.retry)
		q.readyLocked(p)
	}
}

// readyLocked queues a place, and starts a goroutine for it if there may be
// another one.
func (q *queue[K]) readyLocked(p *place[K]) {
	p.ready = true
	q.mu.ready = append(q.mu.ready, p)
	if q.mu.active < q.workers {
		q.mu.active++
		q.running.Go(q.run)
	}
}

// run calls work until nothing is ready.
func (q *queue[K]) run() {
	q.mu.Lock()
	defer q.mu.Unlock()

	for len(q.mu.ready) > 0 {
		p := q.mu.ready[0]
		q.mu.ready[0] = nil
		if q.mu.ready = q.mu.ready[1:]; len(q.mu.ready) == 0 {
			q.mu.ready = nil // a burst must not keep its memory
		}
		p.ready, p.busy = false, true
		q.mu.Unlock()

		err := q.work(p.key)

		q.mu.Lock()
		q.doneLocked(p, err)
	}

	q.mu.active--
	if len(q.mu.places) == 0 {
		q.mu.places = map[K]*place[K]{}
	}
}

// doneLocked decides what follows a call.
func (q *queue[K]) doneLocked(p *place[K], err error) {
	p.busy = false
	if err == nil {
		p.failures = 0
	} else {
		p.failures++
	}

	switch {
	case q.mu.closed:
	case p.again:
		p.again = false
		q.readyLocked(p)
	case err != nil:
		q.mu.due.Set(&p.retry, time.Now().Add(q.backoff(p.failures)))
		q.setTimerLocked()
	default:
		delete(q.mu.places, p.key)
	}
}

// backoff returns how long to wait after a number of failures. It doubles with
// each of them, and is shortened by up to a fifth, at random.
func (q *queue[K]) backoff(failures int) time.Duration {
	wait := q.minBackoff
	for i := 1; i < failures && wait < q.maxBackoff; i++ {
		wait *= 2
	}
	wait = min(wait, q.maxBackoff)
	return wait - rand.N(wait/5+1)
}

func (q *queue[K]) setTimerLocked() {
	first := q.mu.due.First()
	switch {
	case first == nil:
	case q.mu.timer == nil:
		q.mu.timer = time.AfterFunc(time.Until(first.At()), q.retryDue)
	default:
		q.mu.timer.Reset(time.Until(first.At()))
	}
}

// retryDue queues the keys whose back-off is over. The timer calls it.
func (q *queue[K]) retryDue() {
	q.mu.Lock()
	defer q.mu.Unlock()

	for now := time.Now(); !q.mu.closed; {
		e := q.mu.due.PopDue(now)
		if e == nil {
			break
		}
		q.readyLocked(e.Value)
	}
	q.setTimerLocked()
}

// stop ends the queue: no call begins any more. It does not wait.
func (q *queue[K]) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()

	q.mu.closed = true
	q.mu.ready = nil
	q.mu.due = timetable.Table[*place[K]]{}
	if q.mu.timer != nil {
		q.mu.timer.Stop()
	}
}

// wait waits until the goroutines of a stopped queue have ended, or until ctx
// ends.
func (q *queue[K]) wait(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { // ends with the last call
		q.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
