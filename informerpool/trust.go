// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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
	e := l.rlock().entry
	defer e.mu.RUnlock()

	if err := l.readableLocked(); err != nil {
		return err
	}
	if err := e.distrustLocked(grace); err != nil {
		return fmt.Errorf("%s: %w", l.Key(), err)
	}
	return nil
}

// distrustLocked returns why the store may differ from the server's state for
// longer than a resume takes, or nil.
func (e *entry) distrustLocked(grace time.Duration) error {
	switch {
	case e.doubt != nil:
		return e.doubt
	case e.refused.all != nil:
		return refusedError(e.key, e.refused.all)
	case e.cause != nil:
		return e.cause
	case e.rejections > 1:
		return e.lastErr
	}

	silent := e.silentFor() > max(grace, e.pool.options.StallTimeout)
	detached := !e.detached.IsZero() && time.Since(e.detached) > grace
	switch {
	case !silent && !detached:
		return nil
	case e.lastErr != nil:
		return e.lastErr
	case detached:
		return ErrDetached
	}

	return ErrStalled
}

// silentFor returns the time since the server's last sign of life.
func (e *entry) silentFor() time.Duration {
	return time.Since(e.pool.clock.at(e.lastProof.Load()))
}

// detachLocked records that no live watch is followed from now on.
func (e *entry) detachLocked() {
	if e.detached.IsZero() {
		e.detached = time.Now()
	}
}

// attachLocked records that a live watch is followed, or that a list or a poll
// succeeded: earlier faults are over.
func (e *entry) attachLocked() {
	if e.trial != nil && e.trial.settle != nil {
		e.trial.settle.Stop()
	}
	e.trial, e.misled = nil, false
	e.detached, e.rejections = time.Time{}, 0
	e.cause, e.lastErr = nil, nil
}

// suspectLocked records what a failed attempt reveals about the store.
func (e *entry) suspectLocked(err error) {
	e.lastErr, e.cause = err, nil
	if permanent(err) {
		e.cause = err
	}
	if apierrors.IsUnauthorized(err) {
		e.rejections++ // the first may be a credential that is being replaced
	} else {
		e.rejections = 0
	}
	if errors.Is(err, ErrHistory) || errors.Is(err, ErrEpochChanged) {
		e.doubt = err
	}
}
