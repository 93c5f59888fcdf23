// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
)

// work is a call of Begin or Permit whose end was not reported yet.
type work struct{ cancel context.CancelCauseFunc }

// Begin begins work on a cluster. Its context is canceled, with the cause
// ErrNotOwner, once the cluster is lost, by the events or by the clock, or if a
// drain waits for too long. The returned function ends the work, and has to be
// called. If the replica does not own the cluster, or hands it over, the error
// is an [*ownership.NotOwnerError].
//
// The context has no deadline: renewals move the end of the lease on, and a
// context that is derived with a timeout would take a deadline that is sooner
// for its own, and never end by itself.
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

	p := &permits{t: t, slot: n, cluster: cluster, work: ctx, cancel: cancel}
	held := owned && p.next()
	end := func() {
		if owned {
			t.leave(n, s, w)
		}
		p.end()
		cancel(nil)
	}
	if !held {
		end()
		return nil, nil, &ownership.NotOwnerError{Cluster: cluster, Slot: n}
	}
	return ctx, end, nil
}

// permits keep the context of work alive: each permit ends with the lease as
// it was when it was given, and the next one is asked for then, which there is
// if the lease was renewed. So the work ends by the clock, with no event.
type permits struct {
	t       *Tenure
	slot    int
	cluster client.ObjectKey
	work    context.Context //nolint:containedctx // it lives as long as the work
	cancel  context.CancelCauseFunc

	mu    sync.Mutex
	drop  func() // ends the present permit, and what waits for its end
	ended bool
}

// next asks for a permit, and reports whether there is one.
func (p *permits) next() bool {
	permit, cancel, err := p.t.config.Sharding.Context(p.work, p.cluster)
	if err != nil {
		p.t.lapse(p.slot, p.cluster)
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		cancel()
		return true
	}
	stop := context.AfterFunc(permit, func() {
		cancel()
		until, limited := permit.Deadline()
		lapsed := limited && !time.Now().Before(until) // if not, the slot was lost
		if p.work.Err() == nil && (!lapsed || !p.next()) {
			p.cancel(ownership.ErrNotOwner)
		}
	})
	p.drop = func() { stop(); cancel() }
	return true
}

// end ends the work. It may be called again.
func (p *permits) end() {
	p.mu.Lock()
	drop := p.drop
	p.drop, p.ended = nil, true
	p.mu.Unlock()

	if drop != nil {
		drop()
	}
}

// Permit returns a context for a write to a cluster, as Sharding.Context does.
// Drains wait for the write: the returned function ends it, and has to be
// called.
func (t *Tenure) Permit(ctx context.Context, cluster client.ObjectKey) (context.Context, context.CancelFunc, error) {
	if t == nil {
		return ctx, func() {}, nil
	}
	n := t.config.Sharding.Slot(cluster)
	ctx, cancel, err := t.config.Sharding.Context(ctx, cluster)
	if err != nil {
		t.lapse(n, cluster)
		return nil, nil, err
	}
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
