// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"time"
)

// look queries whether an owner is still in use, and stores the answer. It
// returns whether the owner was collected, and why the look was inconclusive,
// if it was.
func (c *Collector[O, R]) look(ctx context.Context, key O) (collected bool, err error) {
	c.mu.Lock()
	rec := c.owners[key]
	if rec == nil {
		c.mu.Unlock()
		return false, nil
	}
	asked, began := rec.proofs, time.Now()
	c.mu.Unlock()

	a, err := c.ask(ctx, key)
	// The end of the whole round proves nothing about this owner.
	if ctx.Err() != nil {
		return false, ended(ctx)
	}
	collected = c.enterAnswer(key, rec, a, asked, began, err)
	if collected {
		c.notify(key)
	}

	return collected, err
}

// notify calls Collected.
func (c *Collector[O, R]) notify(key O) {
	if c.opts.Collected == nil {
		return
	}
	err := apart("Collected", func() error {
		c.opts.Collected(key)
		return nil
	})
	if err != nil {
		c.opts.Logger.Error(err, "end of an owner was not told", "owner", key)
	}
}

// ask calls InUse.
func (c *Collector[O, R]) ask(ctx context.Context, key O) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	var used bool
	err := apart("InUse", func() (err error) {
		used, err = c.opts.InUse(ctx, key)
		return err
	})
	switch {
	case err != nil:
		return unknown, err
	case ctx.Err() != nil:
		return unknown, ctx.Err()
	case used:
		return alive, nil
	}

	return gone, nil
}

// enterAnswer stores the result of a look, which began at the given time, and
// acts on it.
func (c *Collector[O, R]) enterAnswer(
	key O, rec *owner[R], a answer, asked uint64, began time.Time, err error,
) (collected bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	// The owner was dropped meanwhile, and perhaps declared anew: then this
	// record has been removed, or already has its own looks scheduled.
	if len(rec.uses) == 0 {
		return false
	}
	now := time.Now()
	// Looks of Run and of a Sweep may overlap. The one that decides has to begin
	// after the grace: its answer may be as old as its beginning.
	if a == gone && !rec.goneSince.IsZero() {
		now = began
	}
	facts, at, collect := c.policy.judge(rec.ownerFacts, a, asked, now)
	rec.ownerFacts, rec.err = facts, err
	if !collect {
		c.looks.set(key, at)
		return false
	}
	// Its resources have been unused since it was first found gone, not just
	// since now: the grace is not counted twice.
	c.clearLocked(key, rec, facts.goneSince)

	return true
}

// admit waits for a slot and for the rate limit. The caller returns the slot.
func (c *Collector[O, R]) admit(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return ended(ctx)
	}
	r := c.limiter.Reserve()
	if d := r.Delay(); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}

	if ctx.Err() != nil {
		r.Cancel()
		<-c.slots
		return ended(ctx)
	}
	return nil
}

// lookAdmitted looks at an owner, and returns the slot.
func (c *Collector[O, R]) lookAdmitted(ctx context.Context, key O) (collected bool, err error) {
	defer func() { <-c.slots }()
	return c.look(ctx, key)
}

// logLook logs the outcome of a look by Run.
func (c *Collector[O, R]) logLook(key O, collected bool, err error) {
	switch {
	case collected:
		c.opts.Logger.Info("owner is gone", "owner", key)
	case errors.Is(err, ErrPartial):
		c.opts.Logger.V(1).Info("owner could be seen only in part", "owner", key, "reason", err.Error())
	case err != nil:
		c.opts.Logger.Error(err, "owner could not be looked at", "owner", key)
	}
}
