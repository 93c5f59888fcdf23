// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"sync"
	"time"

	"github.com/fleetcache/fleetcache/internal/timetable"
)

// schedule holds when each key is due. Its lock is a leaf: it is taken under
// the collector's, never the other way round. At most one goroutine may be in
// wait.
type schedule[K comparable] struct {
	// sooner has one slot; it is filled when the earliest time has become
	// earlier.
	sooner chan struct{}

	// mu protects the fields below, entries included.
	mu    sync.Mutex
	dates map[K]*timetable.Entry[K]
	table timetable.Table[K]
}

func newSchedule[K comparable]() *schedule[K] {
	return &schedule[K]{sooner: make(chan struct{}, 1), dates: map[K]*timetable.Entry[K]{}}
}

// set makes key due at the given time, in place of any earlier setting.
func (t *schedule[K]) set(key K, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()

	d := t.dates[key]
	if d == nil {
		d = &timetable.Entry[K]{Value: key}
		t.dates[key] = d
	}
	t.table.Set(d, at)
	if t.table.First() == d {
		select {
		case t.sooner <- struct{}{}:
		default:
		}
	}
}

// remove removes key.
func (t *schedule[K]) remove(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.dates[key]; d != nil {
		t.table.Remove(d)
		delete(t.dates, key)
	}
}

// at returns when key is due; ok is false if it is not scheduled.
func (t *schedule[K]) at(key K) (at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.dates[key]; d != nil {
		return d.At(), true
	}
	return time.Time{}, false
}

// pop removes the key that has been due longest; ok is false if none is due.
func (t *schedule[K]) pop(now time.Time) (key K, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	d := t.table.PopDue(now)
	if d == nil {
		return key, false
	}
	delete(t.dates, d.Value)

	return d.Value, true
}

// wait blocks until a key is due, or until ctx ends, when it returns false.
func (t *schedule[K]) wait(ctx context.Context) bool {
	for {
		var ring <-chan time.Time
		if at, ok := t.first(); ok {
			ring = time.After(time.Until(at))
		}

		// The first due time may have moved or vanished while the timer ran, so
		// a timer that fires only causes another check.
		select {
		case <-ctx.Done():
			return false
		case <-t.sooner:
		case now := <-ring:
			if at, ok := t.first(); ok && !at.After(now) {
				return true
			}
		}
	}
}

func (t *schedule[K]) first() (at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	first := t.table.First()
	if first == nil {
		return time.Time{}, false
	}
	return first.At(), true
}
