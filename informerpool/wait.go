// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// await calls check until it returns anything but errWait, and returns that
// result. It also returns when ctx or the lease ends. check is called with the
// lock of the informer that serves the lease.
func (l *Lease) await(ctx context.Context, check func(*informer) error) error {
	var err error
	ended := l.WaitFor(ctx, func() bool {
		i := l.at.rlock().informer
		defer i.mu.RUnlock()
		err = check(i)
		return err != errWait //nolint:errorlint // an identity, never wrapped
	})
	return cmp.Or(ended, err)
}

// WaitForSync waits until HasSynced: for the informer's first list. It returns
// nil once that list is complete. It returns an error as soon as waiting longer is known not
// to help: the server's refusal (which apierrors.IsForbidden, IsNotFound and so
// on recognize), [ErrReleased], [ErrClosed], or the cause of ctx's end. A
// resource that no longer exists counts as refused, too. After a refusal the
// informer keeps trying, and the caller may wait again.
func (l *Lease) WaitForSync(ctx context.Context) error {
	return l.await(ctx, func(i *informer) error {
		switch {
		case i.mu.synced && (!i.mu.unserved || i.mu.verdict.refusal == nil):
			return nil
		case i.mu.verdict.refusal != nil:
			return i.mu.verdict.refusal
		}

		return errWait
	})
}

// Refusal returns why waiting for the informer is known not to help: the
// server's refusal that stands (see [Lease.Trust]), also if later attempts
// failed in another way, or that it sent more than the limits allow. It is nil
// otherwise. The informer keeps trying all the same.
func (l *Lease) Refusal() error {
	i := l.at.rlock().informer
	defer i.mu.RUnlock()

	if refusal := i.mu.verdict.refusal; refusal != nil {
		return refusal
	}
	if all := i.mu.refused.All(); all != nil {
		return refusedError(i.key, all)
	}
	return nil
}

// WaitForVersion waits until the cache has reached the given resourceVersion or
// a later one, such as the version that a write returned. An idle server
// reports its version once a minute.
func (l *Lease) WaitForVersion(ctx context.Context, rv string) error {
	if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
		return fmt.Errorf("%s: resourceVersion: %w", l.Key(), err)
	}
	return l.await(ctx, func(i *informer) error {
		if !i.mu.synced {
			return errWait
		}
		if order, err := resourceversion.CompareResourceVersion(i.mu.rv, rv); err != nil || order < 0 {
			return errWait
		}
		return nil
	})
}

// WaitFor waits until done returns true. done is called at once, and again
// whenever the informer has changed, such as after each event of its watch; it
// may use the lease, and must not block. The error is [ErrReleased],
// [ErrClosed], or the cause of ctx's end.
func (l *Lease) WaitFor(ctx context.Context, done func() bool) error {
	for {
		if err := l.gone(); err != nil {
			return fmt.Errorf("%s: %w", l.Key(), err)
		}
		i := l.at.lock().informer
		changed := i.mu.waiters.add() // before done looks, so that no change is missed
		i.mu.Unlock()
		if done() {
			return nil
		}

		select {
		case <-changed:
		case <-l.released:
		case <-i.ctx.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
