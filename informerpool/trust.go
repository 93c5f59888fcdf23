// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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

// Trust returns nil if the lease's reads may be taken for the server's state,
// and otherwise the reason why not. Reads are served in either case: whether
// the last known state is good enough is the caller's decision.
//
// An informer is not trusted
//   - before its first list, after the release, and after the pool was closed;
//   - once the server refused its last attempt for good: it is forbidden, the
//     resource is not served, or its credentials were refused twice in a row;
//   - once its objects are known to be of another history than the server's,
//     until they are replaced;
//   - while any object may be one that it refused (for single objects and
//     lists, check [Lease.Unknown] as well);
//   - when it has followed no live watch for longer than grace, whatever the
//     reason. Within grace it is most likely about to resume. A watch that the
//     server accepts and ends at once does not count;
//   - when its server gave no sign of life for longer than both grace and the
//     stall time-out, although a watch is open.
//
// An informer that polls because its resource cannot be watched is trusted
// between two successful polls.
func (l *Lease) Trust(grace time.Duration) error {
	i := l.rlock().informer
	defer i.mu.RUnlock()

	if err := l.readableLocked(); err != nil {
		return err
	}
	if err := i.distrustLocked(grace); err != nil {
		return fmt.Errorf("%s: %w", l.Key(), err)
	}
	return nil
}

// distrustLocked returns why the store may differ from the server's state for
// longer than a resume takes, or nil.
func (i *informer) distrustLocked(grace time.Duration) error {
	switch {
	case i.mu.doubt != nil:
		return i.mu.doubt
	case i.mu.refused.all != nil:
		return refusedError(i.key, i.mu.refused.all)
	case i.mu.cause != nil:
		return i.mu.cause
	case i.mu.rejections > 1:
		return i.mu.lastErr
	}

	silent := i.silentFor() > max(grace, i.pool.options.StallTimeout)
	detached := !i.mu.detached.IsZero() && time.Since(i.mu.detached) > grace
	switch {
	case !silent && !detached:
		return nil
	case i.mu.lastErr != nil:
		return i.mu.lastErr
	case detached:
		return ErrDetached
	}

	return ErrStalled
}

// silentFor returns the time since the server's last sign of life.
func (i *informer) silentFor() time.Duration {
	return time.Since(i.pool.clock.At(i.signs.proof.Load()))
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

// note records an error that does not end the attempt.
func (i *informer) note(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.lastErr = err
	i.mu.waiters.wake()
}

// fail records a failed attempt, and reports whether its error differs from the
// last one.
func (i *informer) fail(err error) (changed bool) {
	i.mu.Lock()
	defer i.mu.Unlock()

	if i.mu.state == StateDying {
		return false
	}
	changed = i.mu.lastErr == nil || i.mu.lastErr.Error() != err.Error()
	i.mu.suspect(err)
	if i.mu.synced {
		i.mu.setState(StateDegraded)
	}
	i.mu.waiters.wake()

	return changed
}

// polled records a successful poll: until the next one is due, the list is as
// good as a watch.
func (i *informer) polled() {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.mu.polling = true
	i.mu.attach()
	i.mu.waiters.wake()
}
