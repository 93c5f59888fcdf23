// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// trust is what the informer's relation to its server says about the objects.
// informer.mu protects it.
type trust struct {
	standing

	trial   *trial // of the current stream; nil if it is followed, or there is none
	misled  bool   // a stream was accepted but proved to be none, since one was last followed
	polling bool   // the resource can be listed, not watched
	doubt   error  // the store is known to be of another history than the server's
}

// standing is the relation of an informer to its server.
type standing struct {
	state      State
	since      time.Time
	cause      error     // why waiting does not help; nil once an attempt makes progress
	lastErr    error     // what interrupted it; nil once it makes progress
	rejections int       // attempts in a row that failed with 401
	detached   time.Time // since when no live watch is followed; zero while one is
}

// setState changes the state.
func (s *standing) setState(to State) {
	if s.state != to {
		s.state, s.since = to, time.Now()
	}
}

// detach records that no live watch is followed from now on.
func (t *trust) detach() {
	if t.detached.IsZero() {
		t.detached = time.Now()
	}
}

// attach records that a live watch is followed, or that a list or a poll
// succeeded: earlier faults are over.
func (t *trust) attach() {
	if t.trial != nil && t.trial.settle != nil {
		t.trial.settle.Stop()
	}
	t.trial, t.misled = nil, false
	t.detached, t.rejections = time.Time{}, 0
	t.cause, t.lastErr = nil, nil
}

// suspect records what a failed attempt reveals about the store.
func (t *trust) suspect(err error) {
	t.lastErr, t.cause = err, nil
	if permanent(err) {
		t.cause = err
	}
	if apierrors.IsUnauthorized(err) {
		t.rejections++ // the first may be a credential that is being replaced
	} else {
		t.rejections = 0
	}
	if errors.Is(err, ErrHistory) || errors.Is(err, ErrEpochChanged) {
		t.doubt = err
	}
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
