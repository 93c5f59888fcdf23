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
	case i.doubt != nil:
		return i.doubt
	case i.refused.all != nil:
		return refusedError(i.key, i.refused.all)
	case i.cause != nil:
		return i.cause
	case i.rejections > 1:
		return i.lastErr
	}

	silent := i.silentFor() > max(grace, i.pool.options.StallTimeout)
	detached := !i.detached.IsZero() && time.Since(i.detached) > grace
	switch {
	case !silent && !detached:
		return nil
	case i.lastErr != nil:
		return i.lastErr
	case detached:
		return ErrDetached
	}

	return ErrStalled
}

// silentFor returns the time since the server's last sign of life.
func (i *informer) silentFor() time.Duration {
	return time.Since(i.pool.clock.at(i.lastProof.Load()))
}

// detachLocked records that no live watch is followed from now on.
func (i *informer) detachLocked() {
	if i.detached.IsZero() {
		i.detached = time.Now()
	}
}

// attachLocked records that a live watch is followed, or that a list or a poll
// succeeded: earlier faults are over.
func (i *informer) attachLocked() {
	if i.trial != nil && i.trial.settle != nil {
		i.trial.settle.Stop()
	}
	i.trial, i.misled = nil, false
	i.detached, i.rejections = time.Time{}, 0
	i.cause, i.lastErr = nil, nil
}

// suspectLocked records what a failed attempt reveals about the store.
func (i *informer) suspectLocked(err error) {
	i.lastErr, i.cause = err, nil
	if permanent(err) {
		i.cause = err
	}
	if apierrors.IsUnauthorized(err) {
		i.rejections++ // the first may be a credential that is being replaced
	} else {
		i.rejections = 0
	}
	if errors.Is(err, ErrHistory) || errors.Is(err, ErrEpochChanged) {
		i.doubt = err
	}
}
