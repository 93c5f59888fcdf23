// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package tenure follows which slots of a sharding this replica owns, and what
// work is under way in them.
//
//	sharding ──events──► Tenure ──changed slots──► Config.Changed
//	                       │
//	      Begin, Permit ───┘   work: ended by a loss, waited for by a drain
//
// What a Tenure reports as owned follows the events and the clock: a cluster is
// owned while the events say so and the sharding permits writes to it at that
// moment. Every beginning of an ownership is reported to Config.Changed, so
// whatever was left out while a cluster was not owned can be made up for then.
// That is also so if the clock alone ended it, and a renewal that came too late
// began it again: no event tells of that, so Run looks.
//
// # Tests
//
// The leading test is TestHazardLeaseEndsByTheClockWithoutAnEvent.
// TestEachChangeIsHandledByExactlyOneReplica (test/owning) covers whole
// replicas.
package tenure

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// Config configures a Tenure. All fields are required.
type Config struct {
	Sharding ownership.Sharding
	Timers   *timetable.Timers
	// Changed is called by Run with the slots that have changed, and whether
	// each was gained since the last call.
	Changed func(gained map[int]bool)
	// Unfilled is called by Run with slots that the replica keeps warm. It
	// returns those whose caches are still to be filled.
	Unfilled func(slots map[int]bool) map[int]bool
}

// Tenure is what a replica owns. A nil *Tenure is that of the only replica,
// which owns everything. It is safe for concurrent use.
type Tenure struct {
	config Config
	wake   chan struct{}    // capacity 1
	again  *timetable.Timer // wakes Run while caches are filled, or a slot has lapsed
	asked  time.Time        // when Run was last given a slot to fill; used by Run alone

	mu struct {
		sync.Mutex // nothing else is locked under it

		slots   map[int]*slot
		changed map[int]bool // slots for Config.Changed
		// lapsed are slots that events say are owned, and of which someone was
		// told that they are not, with the cluster that was asked about.
		lapsed map[int]client.ObjectKey
		moves  Moves
		closed bool
		// unsubscribe ends the subscription of a tenure that is closed, once
		// all work has ended.
		unsubscribe func()
	}
}

// Moves counts how often this replica has gained and lost a slot.
type Moves struct{ Gained, Lost int64 }

// slot is a slot that the replica owns or stands by for, or has work in.
type slot struct {
	token    int64 // 0 if the slot is not owned
	draining bool
	warm     bool
	since    time.Time // the last change of these
	work     map[*work]struct{}
	filled   func()           // reports that the caches are filled; nil once it was called
	done     func()           // ends the drain; nil if there is none, or it was called
	limit    *timetable.Timer // cancels the work of the drain
}

func (s *slot) owned() bool { return s != nil && s.token != 0 && !s.draining }

// New returns a Tenure that owns nothing until Run, or nil without a sharding.
func New(config Config) *Tenure {
	if config.Sharding == nil {
		return nil
	}
	t := &Tenure{config: config, wake: make(chan struct{}, 1)}
	t.again = timetable.NewTimer(func() { timetable.Wake(t.wake) })
	t.mu.slots, t.mu.changed, t.mu.lapsed = map[int]*slot{}, map[int]bool{}, map[int]client.ObjectKey{}
	return t
}

// Run follows the sharding until ctx ends. Then it closes the Tenure.
func (t *Tenure) Run(ctx context.Context) {
	unsubscribe := t.config.Sharding.Subscribe(t.handle)
	t.mu.Lock()
	t.mu.unsubscribe = unsubscribe
	t.mu.Unlock()

	defer func() { t.Close(context.Cause(ctx)) }()
	for {
		select {
		case <-t.wake:
		case <-ctx.Done():
			return
		}

		t.resume()
		t.mu.Lock()
		changed := t.mu.changed
		t.mu.changed = map[int]bool{}
		t.mu.Unlock()

		if len(changed) > 0 {
			t.config.Changed(changed)
			t.asked = time.Now()
		}
		t.fill()
	}
}

// fillInterval is the shortest time between two looks at caches that are to be
// filled. It grows with the time that they take.
const fillInterval = 200 * time.Millisecond

// fill reports the slots whose caches are filled, and looks at the others again
// later. Caches are looked at, because many kinds of events fill them, or show
// that they cannot be filled.
func (t *Tenure) fill() {
	filling := map[int]bool{}
	t.mu.Lock()
	for n, s := range t.mu.slots {
		if s.filled != nil {
			filling[n] = true
		}
	}
	t.mu.Unlock()

	if len(filling) == 0 {
		return
	}
	unfilled := t.config.Unfilled(filling)

	var reports []func()
	t.mu.Lock()
	for n := range filling {
		if s := t.mu.slots[n]; s != nil && s.filled != nil && !unfilled[n] {
			reports = append(reports, s.filled)
			s.filled = nil
		}
	}
	t.mu.Unlock()

	for _, report := range reports {
		report()
	}
	if len(unfilled) > 0 {
		t.config.Timers.SetSooner(t.again, time.Now().Add(max(fillInterval, time.Since(t.asked)/10)))
	}
}

// resumeInterval is the time between two looks at slots that have lapsed.
const resumeInterval = 500 * time.Millisecond

// resume has slots reported as gained that had lapsed and are owned again.
func (t *Tenure) resume() {
	t.mu.Lock()
	lapsed := maps.Clone(t.mu.lapsed)
	t.mu.Unlock()

	for n, cluster := range lapsed {
		if !t.permitted(cluster) {
			continue
		}
		t.mu.Lock()
		if _, still := t.mu.lapsed[n]; still {
			delete(t.mu.lapsed, n)
			t.mu.changed[n] = true
			t.mu.slots[n].since = time.Now()
			delete(lapsed, n)
		}
		t.mu.Unlock()
	}
	if len(lapsed) > 0 {
		t.config.Timers.SetSooner(t.again, time.Now().Add(resumeInterval))
	}
}

// permitted reports whether the sharding permits writes to a cluster now, by its
// clock.
func (t *Tenure) permitted(cluster client.ObjectKey) bool {
	_, cancel, err := t.config.Sharding.Context(context.Background(), cluster)
	if err != nil {
		return false
	}
	cancel()
	return true
}

// lapse notes that a caller learns that the slot of a cluster is not owned,
// while the events say that it is. Either its loss is about to be delivered, or
// Run finds it owned again.
func (t *Tenure) lapse(n int, cluster client.ObjectKey) {
	t.mu.Lock()
	s := t.mu.slots[n]
	_, known := t.mu.lapsed[n]
	news := s != nil && s.token != 0 && !known && !t.mu.closed
	if news {
		t.mu.lapsed[n] = cluster
		t.mu.changed[n] = false
	}
	t.mu.Unlock()

	if news {
		timetable.Wake(t.wake)
	}
}

// Close ends all ownership, and all work with a cause. It does not wait for the
// work, but drains still do: a replica that is stopped closes the Tenure while
// its sharding hands over the slots. Other events have no effect any more.
func (t *Tenure) Close(cause error) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.mu.closed = true
	var running []*work
	for n, s := range t.mu.slots {
		running = append(running, s.running()...)
		s.token, s.draining, s.warm, s.filled = 0, false, false, nil
		t.forgetLocked(n, s)
	}
	clear(t.mu.lapsed)
	unsubscribe := t.endedLocked()
	t.mu.Unlock()

	cancelAll(running, cause)
	unsubscribe()
}

// endedLocked returns what ends the subscription of a Tenure that is closed, if
// nothing is under way in any slot. It has to be called without the lock.
func (t *Tenure) endedLocked() (unsubscribe func()) {
	if t.mu.unsubscribe == nil || !t.mu.closed || len(t.mu.slots) > 0 {
		return func() {}
	}
	unsubscribe, t.mu.unsubscribe = t.mu.unsubscribe, nil
	return unsubscribe
}

// handle is called with each event, one at a time.
func (t *Tenure) handle(e ownership.Event) {
	t.mu.Lock()
	if t.mu.closed {
		done := e.Done
		if s := t.mu.slots[e.Slot]; s != nil && e.Type == ownership.Draining {
			s.done, done = e.Done, func() {} // its work has been canceled, but has not ended
		}
		t.mu.Unlock()

		done()
		return
	}
	s := t.slotLocked(e.Slot)
	var lost []*work
	switch e.Type {
	case ownership.Warm:
		s.warm, s.filled = true, e.Done
	case ownership.Cool:
		s.warm, s.filled = false, nil
	case ownership.Gained:
		s.token, s.draining = e.Token, false
		t.mu.moves.Gained++
	case ownership.Draining:
		s.draining, s.done = true, e.Done
	case ownership.Lost:
		s.token, s.draining, s.done = 0, false, nil
		delete(t.mu.lapsed, e.Slot)
		t.mu.moves.Lost++
		lost = s.running()
	}
	s.since = time.Now()
	t.mu.changed[e.Slot] = s.token != 0 && (t.mu.changed[e.Slot] || e.Type == ownership.Gained)
	done := s.drainedLocked()
	waits := s.done != nil
	t.forgetLocked(e.Slot, s)
	t.mu.Unlock()

	cancelAll(lost, ownership.ErrNotOwner)
	done()
	if e.Type == ownership.Draining && waits && !e.Until.IsZero() {
		// A quarter of the drain is left to the work to end.
		t.config.Timers.Set(s.limit, e.Until.Add(-time.Until(e.Until)/4))
	}
	timetable.Wake(t.wake)
}

// expire cancels the work of a slot that still drains.
func (t *Tenure) expire(s *slot) {
	t.mu.Lock()
	var late []*work
	if s.done != nil {
		late = s.running()
	}
	t.mu.Unlock()

	cancelAll(late, ownership.ErrNotOwner)
}

func cancelAll(running []*work, cause error) {
	for _, w := range running {
		w.cancel(cause)
	}
}

// slotLocked returns the state of a slot.
func (t *Tenure) slotLocked(n int) *slot {
	s := t.mu.slots[n]
	if s == nil {
		s = &slot{work: map[*work]struct{}{}}
		s.limit = timetable.NewTimer(func() { t.expire(s) })
		t.mu.slots[n] = s
	}
	return s
}

// forgetLocked drops a slot that the replica has nothing to do with.
func (t *Tenure) forgetLocked(n int, s *slot) {
	if t.mu.slots[n] == s && s.token == 0 && !s.warm && len(s.work) == 0 {
		delete(t.mu.slots, n)
	}
}

// running returns the work in a slot. The lock is held.
func (s *slot) running() []*work { return slices.Collect(maps.Keys(s.work)) }

// drainedLocked returns what ends the drain of a slot, if nothing is under way
// in it. It has to be called without the lock.
func (s *slot) drainedLocked() (done func()) {
	if s.done == nil || len(s.work) > 0 {
		return func() {}
	}
	done, s.done = s.done, nil
	return done
}

// Owns reports whether the replica owns a cluster at this moment, by the events
// and by the clock, and may begin work on it.
func (t *Tenure) Owns(cluster client.ObjectKey) bool {
	if t == nil {
		return true
	}
	n := t.config.Sharding.Slot(cluster)
	t.mu.Lock()
	owned := t.mu.slots[n].owned()
	t.mu.Unlock()

	return owned && t.holds(n, cluster)
}

// holds reports whether the clock, too, says that a slot is owned.
func (t *Tenure) holds(n int, cluster client.ObjectKey) bool {
	if t.permitted(cluster) {
		return true
	}
	t.lapse(n, cluster)
	return false
}

// Serves reports whether the replica owns a cluster or stands by for it.
func (t *Tenure) Serves(cluster client.ObjectKey) bool {
	if t == nil {
		return true
	}
	n := t.config.Sharding.Slot(cluster)
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.mu.slots[n]
	return s != nil && (s.warm || s.token != 0)
}

// State returns what the replica has to do with a cluster, or nil if it is the
// only one.
func (t *Tenure) State(cluster client.ObjectKey) *ownership.State {
	if t == nil {
		return nil
	}
	n := t.config.Sharding.Slot(cluster)
	state := &ownership.State{Slot: n}
	t.mu.Lock()
	if s := t.mu.slots[n]; s != nil {
		state.Owned = s.owned()
		state.Draining = s.draining
		state.StandsBy = s.token == 0 && s.warm
		state.Token = s.token
		state.Since = s.since
	}
	t.mu.Unlock()

	state.Owned = state.Owned && t.holds(n, cluster)
	return state
}

// Moves returns how often this replica has gained and lost a slot.
func (t *Tenure) Moves() Moves {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.moves
}

// Of reports whether the slot of a cluster is among those that have changed,
// and whether it was gained.
func (t *Tenure) Of(cluster client.ObjectKey, changed map[int]bool) (gained, ok bool) {
	gained, ok = changed[t.config.Sharding.Slot(cluster)]
	return gained, ok
}

// SetClusters passes on which clusters exist.
func (t *Tenure) SetClusters(clusters []client.ObjectKey) {
	if t != nil {
		t.config.Sharding.SetClusters(clusters)
	}
}
