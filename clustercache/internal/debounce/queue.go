// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package debounce delays requests until a burst of them is over.
//
// # Tests
//
// The leading test is TestNoRequestIsLostBetweenAddPauseAndClose.
package debounce

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/fleetcache/fleetcache/internal/timetable"
)

// Config holds the delays of a queue.
type Config struct {
	// Window is how long a request must not be added again before it is passed
	// on. Zero passes on every request at once.
	Window time.Duration
	// MaxDelay bounds the delay of a request, however steadily it is added
	// again. Default ten times Window.
	MaxDelay time.Duration
}

// Queue delays each request until it has not been added for a window, or until
// it has waited for MaxDelay:
//
//	                 +- not added for Window --+
//	Add --> pending -+                         +-> workqueue
//	                 +- waited for MaxDelay ---+
//
// It has one timer for all requests. A pending request reaches the workqueue
// after every event that it was added for, so the worker that takes it sees the
// state after the last one. It is safe for concurrent use.
type Queue[request comparable] struct {
	config Config
	queue  workqueue.TypedRateLimitingInterface[request]

	mu       sync.Mutex // protects the fields below
	timer    *time.Timer
	pending  map[request]*pending[request]
	due      timetable.Table[*pending[request]]
	paused   bool
	closed   bool
	flushing int           // running calls of flush
	idle     chan struct{} // made by Wait; closed when flushing is zero
}

// pending is a delayed request.
type pending[request comparable] struct {
	request request
	first   time.Time // when it was first added
	last    time.Time // when it was last added
	low     bool      // of low priority

	// entry is due when the request is, or earlier: its time is corrected only
	// when it is reached.
	entry timetable.Entry[*pending[request]]
}

// New returns a queue in front of a workqueue.
func New[request comparable](queue workqueue.TypedRateLimitingInterface[request], config Config) *Queue[request] {
	if config.MaxDelay == 0 {
		config.MaxDelay = 10 * config.Window
	}
	return &Queue[request]{config: config, queue: queue, pending: map[request]*pending[request]{}}
}

// Add queues a request, at once if there is no window.
func (q *Queue[request]) Add(r request, low bool) {
	q.mu.Lock()
	if (q.config.Window == 0 && !q.paused) || q.closed {
		q.mu.Unlock()

		enqueue(q.queue, r, low)
		return
	}
	defer q.mu.Unlock()

	now := time.Now()
	if w := q.pending[r]; w != nil {
		w.last, w.low = now, w.low && low // its place in the heap is corrected when it reaches the top
		return
	}
	w := &pending[request]{
		request: r,
		first:   now,
		last:    now,
		low:     low,
	}
	w.entry.Value = w
	q.due.Set(&w.entry, q.dueAt(w))
	q.pending[r] = w
	if q.due.First() == &w.entry {
		q.setTimerLocked()
	}
}

// dueAt returns when a request is to be queued.
func (q *Queue[request]) dueAt(w *pending[request]) time.Time {
	at, latest := w.last.Add(q.config.Window), w.first.Add(q.config.MaxDelay)
	if latest.Before(at) {
		return latest
	}
	return at
}

func (q *Queue[request]) setTimerLocked() {
	first := q.due.First()
	switch idle := first == nil || q.paused || q.closed; {
	case idle && q.timer != nil:
		q.timer.Stop()
	case idle:
	case q.timer == nil:
		q.timer = time.AfterFunc(time.Until(first.At()), q.flushDue)
	default:
		q.timer.Reset(time.Until(first.At()))
	}
}

// flushDue queues the requests that are due. The timer calls it.
func (q *Queue[request]) flushDue() {
	if ready := q.takeDue(time.Now()); len(ready) > 0 {
		q.flush(ready)
	}
}

func (q *Queue[request]) takeDue(now time.Time) []*pending[request] {
	q.mu.Lock()
	defer q.mu.Unlock()

	var ready []*pending[request]
	for !q.paused {
		e := q.due.PopDue(now)
		if e == nil {
			break
		}
		w := e.Value
		if at := q.dueAt(w); at.After(now) {
			q.due.Set(e, at)
			continue
		}
		delete(q.pending, w.request)
		ready = append(ready, w)
	}

	if len(ready) > 0 {
		q.flushing++
	}
	q.setTimerLocked()
	if q.due.Len() == 0 {
		q.due = timetable.Table[*pending[request]]{}
		q.pending = map[request]*pending[request]{} // do not keep the memory of a burst
	}

	return ready
}

// flush queues requests, without holding the lock. Its caller has counted it in
// flushing. A request added meanwhile waits anew, and is queued after these.
func (q *Queue[request]) flush(ready []*pending[request]) {
	defer q.flushed()
	for _, w := range ready {
		enqueue(q.queue, w.request, w.low)
	}
}

func (q *Queue[request]) flushed() {
	q.mu.Lock()
	defer q.mu.Unlock()

	if q.flushing--; q.flushing == 0 && q.idle != nil {
		close(q.idle)
		q.idle = nil
	}
}

// Pause holds back all requests until Proceed.
func (q *Queue[request]) Pause() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = true
	q.setTimerLocked()
}

// Proceed ends a Pause.
func (q *Queue[request]) Proceed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = false
	q.setTimerLocked()
}

// Close queues all pending requests. Requests added later are queued at once.
// It is idempotent, and does not wait for the requests that other goroutines
// are queuing; Wait does.
func (q *Queue[request]) Close() {
	q.mu.Lock()
	var ready []*pending[request]
	for e := q.due.First(); e != nil; e = q.due.First() {
		q.due.Remove(e)
		ready = append(ready, e.Value)
	}
	q.closed = true
	q.flushing++
	clear(q.pending)
	q.setTimerLocked()
	q.mu.Unlock()

	q.flush(ready)
}

// Wait waits until no delayed request is being queued, or until ctx ends. After
// Close, none is queued once Wait has returned nil.
func (q *Queue[request]) Wait(ctx context.Context) error {
	q.mu.Lock()
	if q.flushing == 0 {
		q.mu.Unlock()
		return nil
	}
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	idle := q.idle
	q.mu.Unlock()

	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enqueue adds a request, with a lower priority than real changes if it comes
// from a replay.
func enqueue[request comparable](queue workqueue.TypedRateLimitingInterface[request], r request, replay bool) {
	if prioritized, ok := queue.(priorityqueue.PriorityQueue[request]); ok && replay {
		prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, r)
		return
	}
	queue.Add(r)
}
