// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"fmt"
	"time"
)

// settling is how long a stream has to last to count as followed though it has
// carried nothing. A server that owes changes, or refuses the version by a 410
// in the stream, does so at once; one of a resource that nobody changes may
// have nothing to say for hours.
const settling = 5 * time.Second

// standing is how an informer stands with its server.
type standing struct {
	state      State
	since      time.Time
	cause      error     // why waiting does not help; nil once an attempt got further
	lastErr    error     // what interrupted it; nil once it got further
	rejections int       // attempts in a row that were answered with 401
	detached   time.Time // since when no live watch is followed; zero while one is
}

// trial is a stream that was accepted and has not shown yet that it is one: it
// has carried nothing new, and is younger than settling. Were each accepted
// stream taken for one, a server or proxy that ends them all at once would keep
// an informer followed for ever, and nothing would be said of what it misses.
//
// The first one after an interruption is believed meanwhile, since nearly all
// go on: cached reads are back at once. If it ends, the informer stands as it
// did before. From then on none is believed before it has shown something.
type trial struct {
	before   standing
	accepted time.Time
	settle   *time.Timer // nil if the stream is believed
}

// accepted notes that the server has accepted a watch from a version.
func (e *entry) accepted(rv string) {
	e.mu.Lock()
	t := &trial{before: e.standing, accepted: time.Now()}
	if e.misled {
		t.settle = time.AfterFunc(settling, func() { e.settled(t) })
		e.trial = t
		e.mu.Unlock()
		return
	}
	ask := e.advanceLocked(rv)
	e.trial = t
	e.mu.Unlock()
	e.advanced(ask)
}

// settled notes that a stream has lasted.
func (e *entry) settled(t *trial) {
	e.mu.Lock()
	if e.trial != t || e.state == StateDying {
		e.mu.Unlock()
		return
	}
	ask := e.advanceLocked(e.rv)
	e.mu.Unlock()
	e.advanced(ask)
}

// endTrialLocked is called when an attempt ends. It reports whether there was a
// stream that was still on trial: that was none.
func (e *entry) endTrialLocked() (misled bool) {
	t := e.trial
	e.trial = nil
	switch {
	case t == nil:
		return false
	case t.settle != nil:
		t.settle.Stop()
		return true
	case time.Since(t.accepted) >= settling:
		return false
	}
	e.misled = true
	if e.state == StateSynced { // it may be dying
		e.standing = t.before
	}
	return true
}

// endsAtOnce returns an error where the server ends one stream after another
// that it has accepted, each in the regular way.
func (e *entry) endsAtOnce() error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.trial == nil || e.trial.settle == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: the server ends each as soon as it has begun", e.key, ErrDetached)
}

// provenLocked is when the informer last had a sign of life of what it follows.
// What a server says while it is not followed, as to a question where its
// history is, says nothing of the cache.
func (e *entry) provenLocked() time.Time {
	at := e.pool.clock.at(e.lastProof.Load())
	if d := e.detached; e.synced && !d.IsZero() && d.Before(at) {
		return d
	}
	return at
}
