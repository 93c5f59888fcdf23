// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/fleetcache/fleetcache/internal/timetable"
)

// spool holds requests back until what leads to them pauses for a window, or
// the first waits for too long. It has one timer for all of them. A request
// that is there is queued later than any event that it was added for, so that
// whoever takes it from the queue sees the state after the last one.
type spool[request comparable] struct {
	cc          *ClusterCache
	queue       workqueue.TypedRateLimitingInterface[request]
	window, max time.Duration
	timer       *timer

	mu      sync.Mutex // protects what follows; taken before the lock of the timers
	waiting map[request]*spooled[request]
	due     timetable.Table[*spooled[request]]
	paused  bool
	closed  bool
}

// spooled is a request that waits.
type spooled[request comparable] struct {
	request request
	first   time.Time // when it was first added
	last    time.Time // when it was last added
	low     bool      // of low priority

	// entry is set to when it is due, or earlier: only until it is looked at.
	entry timetable.Entry[*spooled[request]]
}

func newSpool[request comparable](
	cc *ClusterCache, queue workqueue.TypedRateLimitingInterface[request], window, limit time.Duration,
) (*spool[request], error) {
	if window < 0 {
		return nil, &OptionError{Field: "Debounce", Err: errors.New("negative")}
	}
	if limit < 0 {
		return nil, &OptionError{Field: "MaxDelay", Err: errors.New("negative")}
	}
	if limit == 0 {
		limit = 10 * window
	}
	s := &spool[request]{cc: cc, queue: queue, window: window, max: limit, waiting: map[request]*spooled[request]{}}
	s.timer = newTimer(func() { cc.spawn(s.flushDue) }) // the timers must not be held up by somebody's queue
	return s, nil
}

// add queues a request, at once if there is no window.
func (s *spool[request]) add(r request, low bool) {
	s.mu.Lock()
	if (s.window == 0 && !s.paused) || s.closed {
		s.mu.Unlock()
		enqueue(s.queue, r, low)
		return
	}
	defer s.mu.Unlock()
	now := time.Now()
	if w := s.waiting[r]; w != nil {
		w.last, w.low = now, w.low && low // its place in the heap is put right when it comes to the top
		return
	}
	w := &spooled[request]{request: r, first: now, last: now, low: low}
	w.entry.Value = w
	s.due.Set(&w.entry, s.dueAt(w))
	s.waiting[r] = w
	if s.due.First() == &w.entry {
		s.setTimerLocked()
	}
}

// dueAt returns when a request is to be queued.
func (s *spool[request]) dueAt(w *spooled[request]) time.Time {
	at, latest := w.last.Add(s.window), w.first.Add(s.max)
	if latest.Before(at) {
		return latest
	}
	return at
}

func (s *spool[request]) setTimerLocked() {
	at := time.Time{}
	if first := s.due.First(); first != nil && !s.paused && !s.closed {
		at = first.At()
	}
	s.cc.timers.set(s.timer, at)
}

// flushDue queues what is due.
func (s *spool[request]) flushDue() {
	s.flush(s.takeDue(time.Now()))
}

func (s *spool[request]) takeDue(now time.Time) []*spooled[request] {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ready []*spooled[request]
	for !s.paused {
		e := s.due.PopDue(now)
		if e == nil {
			break
		}
		w := e.Value
		if at := s.dueAt(w); at.After(now) {
			s.due.Set(e, at)
			continue
		}
		delete(s.waiting, w.request)
		ready = append(ready, w)
	}
	s.setTimerLocked()
	if s.due.Len() == 0 {
		s.due = timetable.Table[*spooled[request]]{}
		s.waiting = map[request]*spooled[request]{} // a burst must not keep its memory
	}
	return ready
}

// flush queues without the lock. What is added meanwhile waits anew, and is
// queued after this.
func (s *spool[request]) flush(ready []*spooled[request]) {
	for _, w := range ready {
		enqueue(s.queue, w.request, w.low)
	}
}

// pause keeps everything back until proceed.
func (s *spool[request]) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
	s.setTimerLocked()
}

func (s *spool[request]) proceed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
	s.setTimerLocked()
}

// close queues everything that waits, and has what is still added queued at
// once.
func (s *spool[request]) close() {
	s.mu.Lock()
	var ready []*spooled[request]
	for e := s.due.First(); e != nil; e = s.due.First() {
		s.due.Remove(e)
		ready = append(ready, e.Value)
	}
	s.closed = true
	clear(s.waiting)
	s.setTimerLocked()
	s.mu.Unlock()
	s.flush(ready)
}

// enqueue adds a request, behind those of real changes if it comes from a
// replay.
func enqueue[request comparable](queue workqueue.TypedRateLimitingInterface[request], r request, replay bool) {
	if q, ok := queue.(priorityqueue.PriorityQueue[request]); ok && replay {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, r)
		return
	}
	queue.Add(r)
}
