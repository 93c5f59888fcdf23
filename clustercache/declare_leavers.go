// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/fleetcache/fleetcache/clustercache/status"
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
	changed  uint64 // by declared.mu.changes
	changing int    // calls of concerned that have yet to set changed
}

// leaver is an owner that has left needs. If it comes back to one that did not
// change meanwhile, then its reads are answered as before, and it is not called:
// a reconciler that declares in two steps, or drops and declares, would otherwise
// call itself for ever.
type leaver struct {
	left map[need]uint64 // and when, by declared.mu.changes
	last time.Time       // it has left something

	flips, calls *rate.Limiter // of its returns, and of those that call it; nil before the first
	named        bool          // in the log
	slowUntil    time.Time
}

// leaving is a call that may make an owner leave needs.
type leaving struct {
	at     uint64          // when it began, by declared.mu.changes
	called map[need]uint64 // and the last change since for which the owner is called
}

func (l *leaving) call(n need, change uint64) {
	if l.called == nil {
		l.called = map[need]uint64{}
	}
	l.called[n] = change
}

// began makes a need that was acquired known, and ended makes it forgotten.
func (d *declared) began(n need) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.changes++
	d.mu.states[n] = &needState{changed: d.mu.changes}
}

func (d *declared) ended(n need) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.states, n)
}

// concerned returns the owners of needs whose reads may be answered differently
// from now on; the caller calls them. One that is not among them because it has
// left a need, and comes back, finds the need changed.
func (d *declared) concerned(needs ...need) (owners []Owner) {
	if len(needs) == 0 {
		return nil
	}
	states := make([]*needState, len(needs))
	d.mu.Lock()
	for i, n := range needs {
		if s := d.mu.states[n]; s != nil {
			s.changing++ // until the owners are known, no owner that comes back relies on changed
			states[i] = s
		}
	}
	d.mu.Unlock()

	of := make([][]Owner, len(needs))
	for i, n := range needs {
		of[i] = d.collector.Owners(n)
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.changes++
	for i, n := range needs {
		if s := states[i]; s != nil {
			s.changing--
			s.changed = d.mu.changes
		}
		for _, owner := range of[i] {
			for _, l := range d.mu.leaving[owner] {
				l.call(n, d.mu.changes)
			}
		}
		owners = append(owners, of[i]...)
	}

	return owners
}

// leave is called before a call that may make an owner leave needs. The returned
// function remembers which it has left, and has to be called.
func (d *declared) leave(owner Owner) (left func(needs []need)) {
	d.mu.Lock()
	defer d.mu.Unlock()

	l := &leaving{at: d.mu.changes}
	d.mu.leaving[owner] = append(d.mu.leaving[owner], l)

	return func(needs []need) { d.left(owner, l, needs) }
}

func (d *declared) left(owner Owner, call *leaving, needs []need) {
	called := d.fleet.owners.any() && len(needs) > 0 // or no owner is called anyway
	d.mu.Lock()
	rest := slices.DeleteFunc(d.mu.leaving[owner], func(l *leaving) bool { return l == call })
	if d.mu.leaving[owner] = rest; len(rest) == 0 {
		delete(d.mu.leaving, owner)
	}
	first := called && len(d.mu.leavers) == 0
	if called {
		l := d.mu.leavers[owner]
		if l == nil {
			l = &leaver{left: map[need]uint64{}}
			d.mu.leavers[owner] = l
		}
		l.last = time.Now()
		for _, n := range needs {
			l.left[n] = max(call.at, call.called[n])
		}
	}
	d.mu.Unlock()

	if first {
		d.fleet.timers.Set(d.forgetting, time.Now().Add(leaverFor))
	}
}

// forget forgets the leavers of long ago. The timers call it.
func (d *declared) forget() {
	now := time.Now()
	d.mu.Lock()
	for owner, l := range d.mu.leavers {
		if now.Sub(l.last) >= leaverFor {
			delete(d.mu.leavers, owner)
		}
	}
	rest := len(d.mu.leavers)
	d.mu.Unlock()

	if rest > 0 {
		d.fleet.timers.Set(d.forgetting, now.Add(leaverFor))
	}
}

// forgetAll forgets all leavers: a listener begins that was called for nothing
// before.
func (d *declared) forgetAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.mu.leavers)
}

// comeback is how an owner comes to a need.
type comeback struct {
	known     bool // it had left the need a while ago
	unchanged bool // and reads of it are answered as then
	named     bool // this is one return too many
}

// back records that an owner uses a need that it did not use before.
func (d *declared) back(owner Owner, n need) (c comeback) {
	d.mu.Lock()
	defer d.mu.Unlock()

	l := d.mu.leavers[owner]
	if l == nil {
		return c
	}
	at, known := l.left[n]
	if !known {
		return c
	}
	delete(l.left, n)
	c.known = true
	if s := d.mu.states[n]; s != nil && s.changing == 0 && s.changed <= at {
		c.unchanged = true
	}
	if l.flips == nil {
		l.flips = rate.NewLimiter(rate.Every(flipEvery), flipBurst)
		l.calls = rate.NewLimiter(rate.Every(flipEvery), flipBurst)
	}
	if !l.flips.Allow() {
		c.named = !l.named
		l.named = true
	}
	if !c.unchanged && !l.calls.Allow() {
		l.slowUntil = time.Now().Add(slowFor)
	}

	return c
}

// joined calls an owner that has begun to use needs, if one of them was in
// effect before, and reads of it may be answered differently than when the owner
// left it, if ever it did: the owner was not called for what had happened by
// then, and may have read before it declared. added are the keys that are new to
// it.
func (d *declared) joined(owner Owner, needs []need, added []status.WatchKey) {
	if !d.fleet.owners.any() {
		return
	}
	call := false
	for _, n := range needs {
		c := d.back(owner, n)
		if c.named {
			d.fleet.log.Info("An owner leaves targets and comes back to them again and again: declare all that it needs "+
				"in one call, and let each controller that declares for it set Owner.Controller",
				"owner", owner, "target", n)
		}
		switch {
		case c.unchanged:
		case c.known && n.many:
			call = true // perhaps for a cluster that is selected no more
		default:
			call = call || slices.ContainsFunc(d.keys(n), func(key status.WatchKey) bool {
				w := d.watch(key)
				return w != nil && !w.waits() && slices.Contains(added, key)
			})
		}
	}
	if call {
		d.fleet.owners.publish(owner)
	}
}

// isSlow reports whether an owner is slowed down: it calls itself by what it
// declares.
func (d *declared) isSlow(owner Owner) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.mu.leavers[owner]
	return l != nil && time.Now().Before(l.slowUntil)
}
