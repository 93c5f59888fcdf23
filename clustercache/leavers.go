// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fleetcache/fleetcache/internal/timetable"
)

// How owners are remembered that have left what they had declared.
const (
	// leaverFor is how long an owner is remembered that leaves nothing more.
	leaverFor = 10 * time.Minute
	// flipBurst and flipEvery are how often an owner may come back to what it has
	// left, in a burst and in the long run, before that is a mistake.
	flipBurst, flipEvery = 10, time.Minute
	// slowFor is how long an owner is slowed down after a mistake that called it,
	// and slowCalls the time between two of its calls meanwhile.
	slowFor, slowCalls = time.Minute, 10 * time.Second
)

// needState is when a need changed: when reads of it could be answered
// differently, so that its owners were called.
type needState struct {
	changed  uint64 // by leavers.changes
	changing int    // calls of concerned that have yet to set changed
}

// leaver is an owner that has left needs. If it comes back to one that did not
// change meanwhile, then its reads are answered as before, and it is not called:
// a reconciler that declares in two steps, or drops and declares, would otherwise
// call itself for ever.
type leaver struct {
	left map[need]uint64 // and when, by leavers.changes
	last time.Time       // it has left something

	flips, calls *rate.Limiter // of its returns, and of those that call it; nil before the first
	named        bool          // in the log
	slowUntil    time.Time
}

// leaving is a call that may make an owner leave needs.
type leaving struct {
	at     uint64          // when it began, by leavers.changes
	called map[need]uint64 // and the last change since for which the owner is called
}

// leavers remember who has left what, and what has changed since.
type leavers struct {
	timers     *timetable.Timers
	forgetting *timetable.Timer
	owners     func(need) []Owner // of a need
	heard      func() bool        // someone listens to whom is called

	mu      sync.Mutex // protects the fields below; nothing else is locked under it
	changes uint64     // counts the changes of all needs
	states  map[need]*needState
	leaving map[Owner][]*leaving
	of      map[Owner]*leaver
}

// began makes a need that was acquired known, and ended makes it forgotten.
func (l *leavers) began(n need) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	l.states[n] = &needState{changed: l.changes}
}

func (l *leavers) ended(n need) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.states, n)
}

// concerned returns the owners of needs whose reads may be answered differently
// from now on; the caller calls them. One that is not among them because it has
// left a need, and comes back, finds the need changed.
func (l *leavers) concerned(needs ...need) (owners []Owner) {
	if len(needs) == 0 {
		return nil
	}
	states := make([]*needState, len(needs))
	l.mu.Lock()
	for i, n := range needs {
		if s := l.states[n]; s != nil {
			s.changing++ // until the owners are known, no owner that comes back relies on changed
			states[i] = s
		}
	}
	l.mu.Unlock()

	of := make([][]Owner, len(needs))
	for i, n := range needs {
		of[i] = l.owners(n)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	for i, n := range needs {
		if s := states[i]; s != nil {
			s.changing--
			s.changed = l.changes
		}
		for _, owner := range of[i] {
			for _, call := range l.leaving[owner] {
				call.called[n] = l.changes
			}
		}
		owners = append(owners, of[i]...)
	}

	return owners
}

// leave is called before a call that may make an owner leave needs. The returned
// function remembers which it has left, and has to be called.
func (l *leavers) leave(owner Owner) (left func(needs []need)) {
	l.mu.Lock()
	defer l.mu.Unlock()

	call := &leaving{at: l.changes, called: map[need]uint64{}}
	l.leaving[owner] = append(l.leaving[owner], call)

	return func(needs []need) { l.left(owner, call, needs) }
}

func (l *leavers) left(owner Owner, call *leaving, needs []need) {
	called := l.heard() && len(needs) > 0 // or no owner is called anyway
	l.mu.Lock()
	rest := slices.DeleteFunc(l.leaving[owner], func(other *leaving) bool { return other == call })
	if l.leaving[owner] = rest; len(rest) == 0 {
		delete(l.leaving, owner)
	}
	first := called && len(l.of) == 0
	if called {
		of := l.of[owner]
		if of == nil {
			of = &leaver{left: map[need]uint64{}}
			l.of[owner] = of
		}
		of.last = time.Now()
		for _, n := range needs {
			of.left[n] = max(call.at, call.called[n])
		}
	}
	l.mu.Unlock()

	if first {
		l.timers.Set(l.forgetting, time.Now().Add(leaverFor))
	}
}

// forget forgets the leavers of long ago. The timers call it.
func (l *leavers) forget() {
	now := time.Now()
	l.mu.Lock()
	for owner, of := range l.of {
		if now.Sub(of.last) >= leaverFor {
			delete(l.of, owner)
		}
	}
	rest := len(l.of)
	l.mu.Unlock()

	if rest > 0 {
		l.timers.Set(l.forgetting, now.Add(leaverFor))
	}
}

// forgetAll forgets all leavers: a listener begins that was called for nothing
// before.
func (l *leavers) forgetAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.of)
}

// back records that an owner uses a need that it did not use before. known means
// that it had left the need a while ago, unchanged that reads of it are answered
// as then, and named that this is one return too many.
func (l *leavers) back(owner Owner, n need) (known, unchanged, named bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	of := l.of[owner]
	if of == nil {
		return false, false, false
	}
	at, known := of.left[n]
	if !known {
		return false, false, false
	}
	delete(of.left, n)
	if s := l.states[n]; s != nil && s.changing == 0 && s.changed <= at {
		unchanged = true
	}
	if of.flips == nil {
		of.flips = rate.NewLimiter(rate.Every(flipEvery), flipBurst)
		of.calls = rate.NewLimiter(rate.Every(flipEvery), flipBurst)
	}
	if !of.flips.Allow() {
		named = !of.named
		of.named = true
	}
	if !unchanged && !of.calls.Allow() {
		of.slowUntil = time.Now().Add(slowFor)
	}

	return true, unchanged, named
}

// isSlow reports whether an owner is slowed down: it calls itself by what it
// declares.
func (l *leavers) isSlow(owner Owner) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of[owner]
	return of != nil && time.Now().Before(of.slowUntil)
}
