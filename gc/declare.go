// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"time"
)

// Change is what a declaration changed.
type Change[R comparable] struct {
	// Added are the resources the owner did not use before, in the order they
	// were named.
	Added []R
	// Removed are the resources the owner does not use any more, in no
	// particular order.
	Removed []R
}

// Declare replaces what owner uses, by nothing if uses is empty. Every resource
// named is live when Declare returns without an error for it, and stays so
// until the owner lets it go or is found gone. New resources are held before
// old ones are let go; those named before and now are not touched. An identical
// set changes nothing, and blocks only while an earlier declaration of the
// owner is under way.
//
// Declare blocks while Acquire runs for the new resources, one after the other,
// while an earlier Release or Acquire of one of them is under way, and while an
// earlier declaration of the same owner is: these are carried out in the order
// they came, so the last wins. Declarations of different owners run in
// parallel.
//
// A resource whose Acquire fails is not used by the owner, and its error, a
// *ResourceError, is part of the returned one; the rest takes effect, and a
// later Declare tries again. Who waits for the Acquire of another caller shares
// its error, unless that caller's ctx had ended. If ctx ends first, Declare
// keeps what it has added, but lets nothing go. A Drop of the owner meanwhile
// undoes all and gives ErrDropped. After the collector has stopped, Declare
// returns ErrClosed.
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

// Drop takes everything from owner, and returns what that was, in no particular
// order. A declaration of the owner that is under way has no effect any more.
// Drop never blocks on a callback, and works before Run and after the end.
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

// renew notes a sign of life and returns true if owner uses exactly this
// already.
func (c *Collector[O, R]) renew(owner O, uses []R) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec := c.owners[owner]
	// Behind a declaration under way this one has to queue, whatever the set is
	// now.
	if c.closed || rec == nil || rec.pending > 0 || !rec.names(uses) {
		return false
	}
	c.provenLocked(owner, rec)
	return true
}

// names says whether uses names exactly what the owner uses. Numbering the uses
// tells a set from a list with repetitions without allocating.
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

// enter finds or makes the owner's record, and holds it until leave.
func (c *Collector[O, R]) enter(key O) *declaration[O, R] {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec := c.owners[key]
	if rec == nil {
		rec = &owner[R]{turn: make(chan struct{}, 1), uses: map[R]uint64{}}
		c.owners[key] = rec
	}
	rec.pending++
	return &declaration[O, R]{c: c, owner: key, rec: rec, drops: rec.drops}
}

// leave lets the record go. The sign of life is noted at the end, because a
// look that began during the declaration may have seen the world from before;
// until then, that it is pending keeps the owner.
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

// carryOut holds what is new, then lets go what is not named.
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
	// Cut short by its ctx, the declaration has not got everything it would
	// have held before letting go.
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

// missing numbers the uses that the owner has, and returns the others.
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

// provenLocked notes a sign of life. One that contradicts an earlier look makes
// the intervals begin anew.
func (c *Collector[O, R]) provenLocked(key O, rec *owner[R]) {
	suspected := !rec.goneSince.IsZero()
	rec.ownerFacts = rec.proven()
	if suspected && len(rec.uses) > 0 {
		c.looks.set(key, time.Now().Add(c.policy.interval(0)))
	}
}

// clearLocked takes everything from an owner, as of the given time.
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

// forgetLocked removes the record of an owner that uses nothing and declares
// nothing. As long as either is the case, the record stays in place, so it is
// never another one that is removed here.
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
