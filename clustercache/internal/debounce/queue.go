// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package debounce holds requests back until a burst of them is over.
package debounce

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/fleetcache/fleetcache/internal/timetable"
)

// Config says for how long a queue holds requests back, and what it works with.
type Config struct {
	// Window is for how long requests must pause before one is passed on. Zero
	// passes each on at once.
	Window time.Duration
	// MaxDelay bounds how long one waits, however steadily it is added again.
	// Default ten times Window.
	MaxDelay time.Duration
	// Timers has the queue's one timer. Spawn runs a function on a goroutine
	// that the owner waits for: the timers must not be held up by a workqueue.
	Timers *timetable.Timers
	Spawn  func(func())
}

// Queue holds requests back until what leads to them pauses for a window, or
// the first waits for too long. It has one timer for all of them. A request
// that is there is queued later than any event that it was added for, so that
// the worker that takes it from the workqueue sees the state after the last
// one. It is safe for concurrent use.
type Queue[request comparable] struct {
	config Config
	queue  workqueue.TypedRateLimitingInterface[request]
	timer  *timetable.Timer

	mu      sync.Mutex // protects what follows; taken before the lock of the timers
	pending map[request]*pending[request]
	due     timetable.Table[*pending[request]]
	paused  bool
	closed  bool
}

// pending is a request that waits.
type pending[request comparable] struct {
	request request
	first   time.Time // when it was first added
	last    time.Time // when it was last added
	low     bool      // of low priority

	// entry is set to when it is due, or earlier: only until it is looked at.
	entry timetable.Entry[*pending[request]]
}

// New returns a queue in front of a workqueue.
func New[request comparable](queue workqueue.TypedRateLimitingInterface[request], config Config) *Queue[request] {
	if config.MaxDelay == 0 {
		config.MaxDelay = 10 * config.Window
	}
	q := &Queue[request]{config: config, queue: queue, pending: map[request]*pending[request]{}}
	q.timer = timetable.NewTimer(func() { config.Spawn(q.flushDue) })

	return q
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
		w.last, w.low = now, w.low && low // its place in the heap is put right when it comes to the top
		return
	}
	w := &pending[request]{request: r, first: now, last: now, low: low}
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
	at := time.Time{}
	if first := q.due.First(); first != nil && !q.paused && !q.closed {
		at = first.At()
	}
	q.config.Timers.Set(q.timer, at)
}

// flushDue queues what is due.
func (q *Queue[request]) flushDue() {
	q.flush(q.takeDue(time.Now()))
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
	q.setTimerLocked()
	if q.due.Len() == 0 {
		q.due = timetable.Table[*pending[request]]{}
		q.pending = map[request]*pending[request]{} // a burst must not keep its memory
	}
	return ready
}

// flush queues without the lock. What is added meanwhile waits anew, and is
// queued after this.
func (q *Queue[request]) flush(ready []*pending[request]) {
	for _, w := range ready {
		enqueue(q.queue, w.request, w.low)
	}
}

// Pause keeps everything back until Proceed.
func (q *Queue[request]) Pause() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = true
	q.setTimerLocked()
}

// Proceed ends what Pause began.
func (q *Queue[request]) Proceed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = false
	q.setTimerLocked()
}

// Close queues everything that waits, and has what is still added queued at
// once.
func (q *Queue[request]) Close() {
	q.mu.Lock()
	var ready []*pending[request]
	for e := q.due.First(); e != nil; e = q.due.First() {
		q.due.Remove(e)
		ready = append(ready, e.Value)
	}
	q.closed = true
	clear(q.pending)
	q.setTimerLocked()
	q.mu.Unlock()
	q.flush(ready)
}

// enqueue adds a request, behind those of real changes if it comes from a
// replay.
func enqueue[request comparable](queue workqueue.TypedRateLimitingInterface[request], r request, replay bool) {
	if prioritized, ok := queue.(priorityqueue.PriorityQueue[request]); ok && replay {
		prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, r)
		return
	}
	queue.Add(r)
}
