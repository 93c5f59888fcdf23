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
func (i *informer) accepted(rv string) {
	i.mu.Lock()
	t := &trial{before: i.standing, accepted: time.Now()}
	if i.misled {
		t.settle = time.AfterFunc(settling, func() { i.settled(t) })
		i.trial = t
		i.mu.Unlock()
		return
	}

	ask := i.advanceLocked(rv)
	i.trial = t
	i.mu.Unlock()

	i.advanced(ask)
}

// settled records that a stream has lasted.
func (i *informer) settled(t *trial) {
	i.mu.Lock()
	if i.trial != t || i.state == StateDying {
		i.mu.Unlock()
		return
	}
	ask := i.advanceLocked(i.rv)
	i.mu.Unlock()

	i.advanced(ask)
}

// endTrialLocked is called when an attempt ends. It reports whether a stream
// was still on trial: that stream does not count.
func (i *informer) endTrialLocked() (misled bool) {
	t := i.trial
	i.trial = nil
	switch {
	case t == nil:
		return false
	case t.settle != nil:
		t.settle.Stop()
		return true
	case time.Since(t.accepted) >= settling:
		return false
	}

	i.misled = true
	if i.state == StateSynced { // it may be dying
		i.standing = t.before
	}

	return true
}

// endsAtOnce returns an error if the server ends one accepted stream after
// another, each in the regular way.
func (i *informer) endsAtOnce() error {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if i.trial == nil || i.trial.settle == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: the server ends each as soon as it has begun", i.key, ErrDetached)
}

// provenLocked returns when the informer last had a sign of life of the stream
// it follows. A server's responses while it is not followed, such as to the
// history question, prove nothing about the cache.
func (i *informer) provenLocked() time.Time {
	at := i.pool.clock.at(i.lastProof.Load())
	if d := i.detached; i.synced && !d.IsZero() && d.Before(at) {
		return d
	}
	return at
}
