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
	t := &trial{before: i.mu.standing, accepted: time.Now()}
	if i.mu.misled {
		t.settle = time.AfterFunc(settling, func() { i.settled(t) })
		i.mu.trial = t
		i.mu.Unlock()
		return
	}

	ask := i.advanceLocked(rv)
	i.mu.trial = t
	i.mu.Unlock()

	i.advanced(ask)
}

// settled records that a stream has lasted.
func (i *informer) settled(t *trial) {
	i.mu.Lock()
	if i.mu.trial != t || i.mu.state == StateDying {
		i.mu.Unlock()
		return
	}
	ask := i.advanceLocked(i.mu.rv)
	i.mu.Unlock()

	i.advanced(ask)
}

// endTrial is called when an attempt ends. It reports whether a stream was
// still on trial: that stream does not count.
func (t *trust) endTrial() (misled bool) {
	trial := t.trial
	t.trial = nil
	switch {
	case trial == nil:
		return false
	case trial.settle != nil:
		trial.settle.Stop()
		return true
	case time.Since(trial.accepted) >= settling:
		return false
	}

	t.misled = true
	if t.state == StateSynced { // it may be dying
		t.standing = trial.before
	}

	return true
}

// endsAtOnce returns an error if the server ends one accepted stream after
// another, each in the regular way.
func (i *informer) endsAtOnce() error {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if i.mu.trial == nil || i.mu.trial.settle == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: the server ends each as soon as it has begun", i.key, ErrDetached)
}

// provenLocked returns when the informer last had a sign of life of the stream
// it follows. A server's responses while it is not followed, such as to the
// history question, prove nothing about the cache.
func (i *informer) provenLocked() time.Time {
	at := i.pool.clock.At(i.signs.proof.Load())
	if d := i.mu.detached; i.mu.synced && !d.IsZero() && d.Before(at) {
		return d
	}
	return at
}
