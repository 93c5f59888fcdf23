// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Phase is the state of a resource. A resource that is not recorded has none.
type Phase uint8

// The phases of a resource, in their order.
const (
	// Acquiring means that Acquire is running.
	Acquiring Phase = iota + 1
	// Held means that the resource is live.
	Held
	// Releasing means that Release is running.
	Releasing
)

// String returns the name of the phase.
func (p Phase) String() string {
	switch p {
	case Acquiring:
		return "Acquiring"
	case Held:
		return "Held"
	case Releasing:
		return "Releasing"
	}

	return "Unknown"
}

// hold adds the owner to the owners of the resource and makes the resource
// live.
//
// It guarantees that a resource handed out is live: an owner is added only
// under the lock and only to a Held resource, and a release begins only under
// the same lock and without owners. So one of them comes first. If that is the
// release, hold waits for it and acquires anew; it never joins a resource that
// is being released.
func (d *declaration[O, R]) hold(ctx context.Context, key R) error {
	c := d.c
	for {
		c.mu.Lock()
		if d.rec.drops != d.drops {
			c.mu.Unlock()
			return ErrDropped
		}
		res := c.resources[key]
		if res == nil {
			res = &resource[O]{phase: Acquiring, owners: map[O]struct{}{}, flight: &flight{done: make(chan struct{})}}
			c.resources[key] = res
			c.mu.Unlock()
			return d.acquire(ctx, key, res)
		}

		if res.phase == Held {
			d.claimLocked(key, res)
			c.mu.Unlock()
			return nil
		}
		f := res.flight
		c.mu.Unlock()

		select {
		case <-f.done:
			if f.err != nil {
				return f.err
			}
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

// acquire calls Acquire for a resource that this declaration has just recorded.
func (d *declaration[O, R]) acquire(ctx context.Context, key R, res *resource[O]) (err error) {
	err = errGoexit
	// Deferred, so that a callback that ends its goroutine does not leave the
	// resource Acquiring for ever.
	defer func() { err = d.acquired(ctx, key, res, err) }()
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if d.c.opts.Acquire == nil {
		return nil
	}
	err = protect("Acquire", func() error { return d.c.opts.Acquire(ctx, key) })
	if err != nil && errors.Is(ended(ctx), ErrClosed) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// acquired stores the outcome of Acquire. The owner is added in the same locked
// step: between two steps, a sweep could release the resource again.
func (d *declaration[O, R]) acquired(ctx context.Context, key R, res *resource[O], err error) error {
	c := d.c
	c.mu.Lock()
	defer c.mu.Unlock()

	f := res.flight
	defer close(f.done)

	if err != nil {
		delete(c.resources, key)
		// The end of one caller's ctx or goroutine does not concern the other
		// callers: they try for themselves.
		if ctx.Err() == nil && !errors.Is(err, errGoexit) {
			f.err = err
		}
		return err
	}

	res.phase, res.flight = Held, nil
	if d.rec.drops != d.drops {
		res.freed = time.Now()
		c.releases.set(key, res.freed.Add(c.policy.grace))
		return ErrDropped
	}
	d.claimLocked(key, res)

	return nil
}

func (d *declaration[O, R]) claimLocked(key R, res *resource[O]) {
	res.owners[d.owner] = struct{}{}
	d.rec.uses[key] = d.rec.declared
}

// freeLocked removes a resource from an owner's uses, as of the given time.
func (c *Collector[O, R]) freeLocked(key O, rec *owner[R], r R, freed time.Time) {
	delete(rec.uses, r)
	res := c.resources[r]
	delete(res.owners, key)
	// An owner may be found gone as of a time at which another owner still used
	// the resource.
	if freed.After(res.freed) {
		res.freed = freed
	}
	if at, ok := c.policy.releaseAt(res.facts()); ok {
		c.releases.set(r, at)
	}
}

// releaseDue releases the resources that are due now, one after the other, and
// returns them. If it returns without error, everything that was due when it
// was called has been released.
func (c *Collector[O, R]) releaseDue(ctx context.Context) (released []R, errs []error) {
	// Only one goroutine releases, so holding the slot means that no release is
	// under way elsewhere.
	select {
	case c.releasing <- struct{}{}:
		defer func() { <-c.releasing }()
	case <-ctx.Done():
		return nil, []error{ended(ctx)}
	}

	now := time.Now()
	for ctx.Err() == nil {
		r, ok := c.releases.pop(now)
		if !ok {
			return released, errs
		}
		// A Declare may have taken the resource since its release was
		// scheduled: release checks again, and the Declare wins.
		ok, err := c.release(r, now)
		if ok {
			released = append(released, r)
		}
		if err != nil {
			errs = append(errs, &ResourceError[R]{Resource: r, Err: err})
		}
	}

	return released, append(errs, ended(ctx))
}

// release releases r if it may be released; ok reports whether it did.
func (c *Collector[O, R]) release(r R, now time.Time) (ok bool, err error) {
	c.mu.Lock()
	res := c.resources[r]
	if res == nil || !c.policy.mayRelease(res.facts(), now) {
		c.mu.Unlock()
		return false, nil
	}
	f := &flight{done: make(chan struct{})}
	res.phase, res.flight = Releasing, f
	c.mu.Unlock()

	defer func() {
		c.mu.Lock()
		delete(c.resources, r)
		c.mu.Unlock()

		close(f.done)
	}()
	err = apart("Release", func() error {
		c.opts.Release(r)
		return nil
	})
	c.opts.Logger.V(1).Info("resource released", "resource", r)

	return true, err
}
