// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// timetable says which key is due when. Its lock is a leaf: it is taken under
// the collector's, never the other way round. One goroutine at most may be in
// wait.
type timetable[K comparable] struct {
	// sooner has one slot and says that the earliest time has become earlier.
	sooner chan struct{}

	// mu protects the fields below.
	mu    sync.Mutex
	dates map[K]*date[K]
	queue queue[K]
}

// date is one key's place in a timetable.
type date[K comparable] struct {
	key   K
	at    time.Time
	index int
}

func newTimetable[K comparable]() *timetable[K] {
	return &timetable[K]{sooner: make(chan struct{}, 1), dates: map[K]*date[K]{}}
}

// set makes key due at the given time, in place of any earlier setting.
func (t *timetable[K]) set(key K, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.dates[key]
	if d == nil {
		d = &date[K]{key: key, at: at}
		t.dates[key] = d
		heap.Push(&t.queue, d)
	} else {
		d.at = at
		heap.Fix(&t.queue, d.index)
	}
	if d.index == 0 {
		select {
		case t.sooner <- struct{}{}:
		default:
		}
	}
}

// remove takes key out.
func (t *timetable[K]) remove(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.dates[key]; d != nil {
		heap.Remove(&t.queue, d.index)
		delete(t.dates, key)
	}
}

// at returns when key is due; ok is false if it is not in the timetable.
func (t *timetable[K]) at(key K) (at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.dates[key]; d != nil {
		return d.at, true
	}
	return time.Time{}, false
}

// pop takes out the key that has been due longest; ok is false if none is due.
func (t *timetable[K]) pop(now time.Time) (key K, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 || t.queue[0].at.After(now) {
		return key, false
	}
	d := heap.Pop(&t.queue).(*date[K])
	delete(t.dates, d.key)
	return d.key, true
}

// wait blocks until a key is due, or until ctx ends, when it returns false.
func (t *timetable[K]) wait(ctx context.Context) bool {
	for {
		var ring <-chan time.Time
		stop := func() bool { return true }
		if at, ok := t.first(); ok {
			timer := time.NewTimer(time.Until(at))
			ring, stop = timer.C, timer.Stop
		}
		// The first date may have moved or gone while the timer ran, so a ring
		// only makes us look again.
		select {
		case <-ctx.Done():
			stop()
			return false
		case <-t.sooner:
			stop()
		case now := <-ring:
			if at, ok := t.first(); ok && !at.After(now) {
				return true
			}
		}
	}
}

func (t *timetable[K]) first() (at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		return time.Time{}, false
	}
	return t.queue[0].at, true
}

// queue is a heap of dates, earliest first.
type queue[K comparable] []*date[K]

var _ heap.Interface = (*queue[int])(nil)

func (q queue[K]) Len() int           { return len(q) }
func (q queue[K]) Less(i, j int) bool { return q[i].at.Before(q[j].at) }

func (q queue[K]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue[K]) Push(x any) {
	d := x.(*date[K])
	d.index = len(*q)
	*q = append(*q, d)
}

func (q *queue[K]) Pop() any {
	last := len(*q) - 1
	d := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return d
}
