// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"fmt"
	"time"
)

// settling is how long a stream that has carried nothing has to last to count
// as followed. A server that owes changes, or refuses the version by a 410 in
// the stream, sends them at once; a stream of a resource that does not change
// may carry nothing for hours.
const settling = 5 * time.Second

// standing is the relation of an informer to its server.
type standing struct {
	state      State
	since      time.Time
	cause      error     // why waiting does not help; nil once an attempt makes progress
	lastErr    error     // what interrupted it; nil once it makes progress
	rejections int       // attempts in a row that failed with 401
	detached   time.Time // since when no live watch is followed; zero while one is
}

// trial is a stream that was accepted and has not proved itself yet: it has
// carried nothing new, and is younger than settling. If every accepted stream
// counted, a server or proxy that ends them all at once would keep an informer
// followed for ever, and the changes it misses would go unnoticed.
//
// The first stream after an interruption is trusted during its trial, since
// nearly all of them last: cached reads are available at once. If it ends
// early, the informer's standing reverts. From then on no stream is trusted
// before it has shown something.
type trial struct {
	before   standing
	accepted time.Time
	settle   *time.Timer // nil if the stream is trusted
}

// accepted records that the server has accepted a watch from a version.
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

// settled records that a stream has lasted.
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

// endTrialLocked is called when an attempt ends. It reports whether a stream
// was still on trial: that stream does not count.
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

// endsAtOnce returns an error if the server ends one accepted stream after
// another, each in the regular way.
func (e *entry) endsAtOnce() error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.trial == nil || e.trial.settle == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: the server ends each as soon as it has begun", e.key, ErrDetached)
}

// provenLocked returns when the informer last had a sign of life of the stream
// it follows. A server's responses while it is not followed, such as to the
// history question, prove nothing about the cache.
func (e *entry) provenLocked() time.Time {
	at := e.pool.clock.at(e.lastProof.Load())
	if d := e.detached; e.synced && !d.IsZero() && d.Before(at) {
		return d
	}
	return at
}
