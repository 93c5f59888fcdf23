// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"container/heap"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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
	due     spoolHeap[request]
	paused  bool
	closed  bool
}

// spooled is a request that waits.
type spooled[request comparable] struct {
	request request
	first   time.Time // when it was first added
	last    time.Time // when it was last added
	at      time.Time // its place in the heap: not later than it is due, and earlier only until it is looked at
	low     bool      // of low priority
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
	w.at = s.dueAt(w)
	s.waiting[r] = w
	heap.Push(&s.due, w)
	if s.due[0] == w {
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
	if len(s.due) > 0 && !s.paused && !s.closed {
		at = s.due[0].at
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
	for len(s.due) > 0 && !s.paused && !s.due[0].at.After(now) {
		w := s.due[0]
		if w.at = s.dueAt(w); w.at.After(now) {
			heap.Fix(&s.due, 0)
			continue
		}
		heap.Pop(&s.due)
		delete(s.waiting, w.request)
		ready = append(ready, w)
	}
	s.setTimerLocked()
	if len(s.due) == 0 {
		s.due, s.waiting = nil, map[request]*spooled[request]{} // a burst must not keep its memory
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
	ready := s.due
	s.due, s.closed = nil, true
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

// spoolHeap orders requests by their time.
type spoolHeap[request comparable] []*spooled[request]

func (h spoolHeap[request]) Len() int           { return len(h) }
func (h spoolHeap[request]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h spoolHeap[request]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *spoolHeap[request]) Push(x any) { *h = append(*h, x.(*spooled[request])) }

// Pop implements heap.Interface.
func (h *spoolHeap[request]) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return w
}
