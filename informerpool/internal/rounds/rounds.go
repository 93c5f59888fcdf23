// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package rounds visits each of many members once per interval.
//
// # Tests
//
// The leading test is TestEachMemberIsVisitedOncePerInterval.
// TestHazardVisitsHang covers visits that do not end.
package rounds

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fleetcache/fleetcache/internal/timetable"
	"github.com/fleetcache/fleetcache/internal/workpool"
)

// maxVisits is how many visits run at once. One that takes longer than a second
// continues without being counted: members that hang do not delay others.
const maxVisits = 32

// Rounds visits its members, spread over time. It has one timer, whatever the
// number of members, and a goroutine for each visit that is due.
type Rounds[T any] struct {
	interval time.Duration
	visit    func(T) (again bool)
	spawn    func(func())
	visits   *workpool.Queue

	mu     sync.Mutex // protects what follows, and every Member
	due    timetable.Table[*Member[T]]
	timer  *time.Timer
	closed bool
}

// Member is what is visited. The zero value with a Value is ready for Join.
type Member[T any] struct {
	Value T

	next   timetable.Entry[*Member[T]]
	joined bool
}

// New returns rounds without members. visit is called for each member about
// once per interval, never later than one interval after the end of the last
// call, apart from the wait for a goroutine; again requests the next visit
// within a quarter of the interval. spawn starts the goroutines, to which it
// passes a function that returns once ctx ends and the visit returns.
func New[T any](
	ctx context.Context, interval time.Duration, spawn func(func()), visit func(T) (again bool),
) *Rounds[T] {
	r := &Rounds[T]{interval: interval, spawn: spawn, visits: workpool.New(maxVisits)}
	r.timer = time.AfterFunc(time.Hour, r.fire)
	r.timer.Stop() // until a member joins
	r.visit = func(member T) (again bool) {
		end, err := r.visits.Take(ctx)
		if err != nil {
			return false
		}
		defer end()
		return visit(member)
	}

	return r
}

// Join adds a member, which is visited for the first time within an interval.
func (r *Rounds[T]) Join(m *Member[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()

	m.joined = true
	r.planLocked(m, r.interval/4+rand.N(r.interval*7/10)) // members that join at once are visited one by one
}

// Leave removes a member. A visit that has begun continues.
func (r *Rounds[T]) Leave(m *Member[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()

	m.joined = false
	r.due.Remove(&m.next)
}

// Stop ends the rounds: no visit begins any more, and spawn is not called.
// Visits that have begun continue.
func (r *Rounds[T]) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.closed = true
	r.timer.Stop()
}

// planLocked sets when a member is visited next.
func (r *Rounds[T]) planLocked(m *Member[T], wait time.Duration) {
	m.next.Value = m
	r.due.Set(&m.next, time.Now().Add(wait))
	if r.due.First() == &m.next {
		r.wakeLocked()
	}
}

func (r *Rounds[T]) wakeLocked() {
	if first := r.due.First(); first != nil && !r.closed {
		r.timer.Reset(time.Until(first.At()))
	}
}

// fire begins the visits that are due.
func (r *Rounds[T]) fire() {
	r.mu.Lock()
	defer r.mu.Unlock()

	for !r.closed {
		due := r.due.PopDue(time.Now())
		if due == nil {
			break
		}
		r.spawn(func() { r.call(due.Value) })
	}
	r.wakeLocked()
}

func (r *Rounds[T]) call(m *Member[T]) {
	again := r.visit(m.Value)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !m.joined || m.next.Listed() {
		return
	}
	wait := r.interval*3/4 + rand.N(r.interval/5)
	if again {
		wait = r.interval/8 + rand.N(r.interval/8)
	}
	r.planLocked(m, wait)
}
