// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"time"
)

// Change describes the effect of a declaration.
type Change[R comparable] struct {
	// Added are the resources the owner did not use before, in the order they
	// were named.
	Added []R
	// Removed are the resources the owner no longer uses, in no particular
	// order.
	Removed []R
}

// Declare replaces the set of resources that owner uses; without uses, the
// owner uses nothing. Every resource named is live when Declare returns without
// an error for it, and stays live until the owner stops using it or is found
// gone. New resources are acquired before old ones are freed; resources named
// both before and now are not touched. An identical set changes nothing, and
// blocks only while an earlier declaration of the owner is under way.
//
// Declare blocks while Acquire runs for the new resources, one after the other,
// while an earlier Release or Acquire of one of them is under way, and while an
// earlier declaration of the same owner is: these are carried out in the order
// they came, so the last wins. Declarations of different owners run in
// parallel.
//
// If Acquire fails for a resource, the owner does not use it, and its error, a
// *ResourceError, is part of the returned one; the rest takes effect, and a
// later Declare tries again. A caller that waits for the Acquire of another
// caller shares its error, unless the other caller's ctx had ended. If ctx ends
// first, Declare keeps the resources it has added, but frees none. A concurrent
// Drop of the owner undoes the whole declaration, which then returns
// ErrDropped. After the collector has stopped, Declare returns ErrClosed.
func (c *Collector[O, R]) Declare(ctx context.Context, owner O, uses ...R) (Change[R], error) {
	if c.renew(owner, uses) {
		return Change[R]{}, nil
	}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return Change[R]{}, err
	}
	defer end()
	d := c.enter(owner)
	defer d.leave()
	select {
	case d.rec.turn <- struct{}{}:
		defer func() { <-d.rec.turn }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return Change[R]{}, ended(ctx)
	}
	return d.carryOut(ctx, unique(uses))
}

// Drop frees all resources of owner and returns them, in no particular order. A
// declaration of the owner that is under way has no effect. Drop never blocks
// on a callback, and works before Run and after the end.
func (c *Collector[O, R]) Drop(owner O) (removed []R) {
	c.mu.Lock()
	defer c.mu.Unlock()

	rec := c.owners[owner]
	if rec == nil {
		return nil
	}
	rec.drops++

	return c.clearLocked(owner, rec, time.Now())
}

// renew records a sign of life and returns true if owner already uses exactly
// these resources.
func (c *Collector[O, R]) renew(owner O, uses []R) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	rec := c.owners[owner]
	// While a declaration is under way this one has to queue, whatever the set
	// is now.
	if c.closedLocked() || rec == nil || rec.pending > 0 || !rec.names(uses) {
		return false
	}
	c.provenLocked(owner, rec)

	return true
}

// names reports whether uses names exactly the resources that the owner uses.
// Numbering the uses distinguishes a set from a list with repetitions without
// allocating.
func (o *owner[R]) names(uses []R) bool {
	o.declared++
	named := 0
	for _, r := range uses {
		last, ok := o.uses[r]
		if !ok {
			return false
		}
		if last != o.declared {
			o.uses[r] = o.declared
			named++
		}
	}

	return named == len(o.uses)
}

// declaration is a call of Declare that has something to change.
type declaration[O, R comparable] struct {
	c     *Collector[O, R]
	owner O
	rec   *owner[R]
	drops uint64
}

// enter finds or creates the owner's record, and keeps it in place until leave.
func (c *Collector[O, R]) enter(key O) *declaration[O, R] {
	c.mu.Lock()
	defer c.mu.Unlock()

	rec := c.owners[key]
	if rec == nil {
		rec = &owner[R]{turn: make(chan struct{}, 1), uses: map[R]uint64{}}
		c.owners[key] = rec
	}
	rec.pending++

	return &declaration[O, R]{
		c:     c,
		owner: key,
		rec:   rec,
		drops: rec.drops,
	}
}

// leave ends the declaration. It records the sign of life only now, because a
// look that began during the declaration may have seen the state from before
// it; until here, the pending declaration keeps the owner.
func (d *declaration[O, R]) leave() {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()

	d.rec.pending--
	d.c.provenLocked(d.owner, d.rec)
	d.c.forgetLocked(d.owner, d.rec)
	if len(d.rec.uses) == 0 || d.c.opts.InUse == nil {
		return
	}
	if _, ok := d.c.looks.at(d.owner); !ok {
		d.c.looks.set(d.owner, time.Now().Add(d.c.policy.interval(0)))
	}
}

// carryOut acquires the new resources, then frees those that are no longer
// named.
func (d *declaration[O, R]) carryOut(ctx context.Context, uses []R) (Change[R], error) {
	var change Change[R]
	var errs []error
	for _, r := range d.missing(uses) {
		if err := d.hold(ctx, r); err != nil {
			errs = append(errs, &ResourceError[R]{Resource: r, Err: err})
		} else {
			change.Added = append(change.Added, r)
		}
	}

	d.c.mu.Lock()
	defer d.c.mu.Unlock()

	if d.rec.drops != d.drops {
		return Change[R]{}, ErrDropped
	}
	// The ctx ended the declaration before it acquired everything that must be
	// held before anything is freed.
	if len(errs) > 0 && ctx.Err() != nil {
		return change, errors.Join(errs...)
	}
	now := time.Now()
	for r, last := range d.rec.uses {
		if last != d.rec.declared {
			change.Removed = append(change.Removed, r)
			d.c.freeLocked(d.owner, d.rec, r, now)
		}
	}

	return change, errors.Join(errs...)
}

// missing numbers the uses that the owner already has, and returns the others.
func (d *declaration[O, R]) missing(uses []R) (missing []R) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()

	d.rec.declared++
	for _, r := range uses {
		if _, ok := d.rec.uses[r]; ok {
			d.rec.uses[r] = d.rec.declared
		} else {
			missing = append(missing, r)
		}
	}

	return missing
}

// provenLocked records a sign of life. If it contradicts an earlier look, the
// intervals start again from the shortest.
func (c *Collector[O, R]) provenLocked(key O, rec *owner[R]) {
	suspected := !rec.goneSince.IsZero()
	rec.ownerFacts = rec.proven()
	if suspected && len(rec.uses) > 0 {
		c.looks.set(key, time.Now().Add(c.policy.interval(0)))
	}
}

// clearLocked frees all resources of an owner, as of the given time.
func (c *Collector[O, R]) clearLocked(key O, rec *owner[R], freed time.Time) (removed []R) {
	removed = make([]R, 0, len(rec.uses))
	for r := range rec.uses {
		removed = append(removed, r)
		c.freeLocked(key, rec, r, freed)
	}
	c.looks.remove(key)
	c.forgetLocked(key, rec)
	return removed
}

// forgetLocked removes the record of an owner that uses nothing and has no
// declaration under way. Otherwise the record stays in place, so this never
// removes another owner's record.
func (c *Collector[O, R]) forgetLocked(key O, rec *owner[R]) {
	if rec.pending > 0 || len(rec.uses) > 0 {
		return
	}
	c.looks.remove(key)
	delete(c.owners, key)
}

// unique returns the resources without repetitions, in order.
func unique[R comparable](uses []R) []R {
	seen := make(map[R]struct{}, len(uses))
	ret := make([]R, 0, len(uses))
	for _, r := range uses {
		if _, ok := seen[r]; !ok {
			seen[r] = struct{}{}
			ret = append(ret, r)
		}
	}

	return ret
}
