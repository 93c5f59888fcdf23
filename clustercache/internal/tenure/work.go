// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
)

// work is a call of Begin or Permit whose end was not reported yet.
type work struct{ cancel context.CancelCauseFunc }

// Begin begins work on a cluster. Its context is canceled, with the cause
// ErrNotOwner, once the cluster is lost, or if a drain waits for too long. The
// returned function ends the work, and has to be called. If the replica does
// not own the cluster, or hands it over, the error is an
// [*ownership.NotOwnerError].
func (t *Tenure) Begin(ctx context.Context, cluster client.ObjectKey) (context.Context, context.CancelFunc, error) {
	if t == nil {
		return ctx, func() {}, nil
	}
	n := t.config.Sharding.Slot(cluster)
	ctx, cancel := context.WithCancelCause(ctx)
	w := &work{cancel: cancel}
	t.mu.Lock()
	s := t.mu.slots[n]
	owned := s.owned()
	if owned {
		s.work[w] = struct{}{}
	}
	t.mu.Unlock()

	if !owned {
		cancel(nil)
		return nil, nil, &ownership.NotOwnerError{Cluster: cluster, Slot: n}
	}
	return ctx, func() {
		t.leave(n, s, w)
		cancel(nil)
	}, nil
}

// Permit returns a context for a write to a cluster, as Sharding.Context does.
// Drains wait for the write: the returned function ends it, and has to be
// called.
func (t *Tenure) Permit(ctx context.Context, cluster client.ObjectKey) (context.Context, context.CancelFunc, error) {
	if t == nil {
		return ctx, func() {}, nil
	}
	ctx, cancel, err := t.config.Sharding.Context(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	n := t.config.Sharding.Slot(cluster)
	w := &work{cancel: func(error) {}} // its context ends by itself
	t.mu.Lock()
	s := t.slotLocked(n)
	s.work[w] = struct{}{}
	t.mu.Unlock()

	return ctx, sync.OnceFunc(func() {
		t.leave(n, s, w)
		cancel()
	}), nil
}

// leave removes work from a slot. It may be called again.
func (t *Tenure) leave(n int, s *slot, w *work) {
	t.mu.Lock()
	delete(s.work, w)
	done := s.drainedLocked()
	t.forgetLocked(n, s)
	unsubscribe := t.endedLocked()
	t.mu.Unlock()

	done()
	unsubscribe()
}

// Write calls a function with a context of Permit. Its error is an ErrNotOwner
// if the ownership ended meanwhile; the write may have been executed then.
func (t *Tenure) Write(ctx context.Context, cluster client.ObjectKey, call func(context.Context) error) error {
	permitted, done, err := t.Permit(ctx, cluster)
	if err != nil {
		return err
	}
	defer done()

	return t.Explain(permitted, cluster, call(permitted))
}

// Explain makes an error an ErrNotOwner, too, if the context of Permit has
// ended with the ownership.
func (t *Tenure) Explain(permitted context.Context, cluster client.ObjectKey, err error) error {
	if t == nil || err == nil || !errors.Is(context.Cause(permitted), ownership.ErrNotOwner) {
		return err
	}
	lost := &ownership.NotOwnerError{Cluster: cluster, Slot: t.config.Sharding.Slot(cluster)}
	return fmt.Errorf("%w: %w", lost, err)
}
