// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/gc"
)

// Declare replaces the set of targets that an owner needs. Call it on every run
// of the owner's reconciler: new targets are acquired before old ones are
// released, and what is declared again costs no request. Declare makes the
// clusters known and does not wait for them. A released target is watched for
// another GC.Grace; then a cluster that was not engaged, and that nothing else
// needs, is disconnected and forgotten. An owner ends with Drop, or when
// GC.InUse finds it gone. Of concurrent declarations of one owner the last one
// wins.
//
// An invalid target fails alone: its [*TargetError] is joined into the returned
// error, and the other targets take effect. A kind that the cluster does not
// serve, or does not let the client list, is no such failure: the informer
// keeps trying, and Declared reports the problem. If ctx ends first, nothing is
// released. Other errors are [ErrClosed], that of ctx, gc.ErrDropped if the
// owner was dropped meanwhile, and an [*OptionError] for an invalid owner.
func (cc *ClusterCache) Declare(ctx context.Context, owner Owner, targets ...Target) (Declaration, error) {
	if err := owner.check(); err != nil {
		return Declaration{}, err
	}
	d := cc.declared
	uses := make([]need, 0, len(targets))
	var bad []error
	for i, t := range targets {
		if n, err := t.need(cc.options.Scheme, owner, i); err != nil {
			bad = append(bad, err)
		} else {
			uses = append(uses, n)
		}
	}

	had := d.collector.Uses(owner)
	selecting := anySelector(uses) || anySelector(had)
	var before []status.WatchKey
	if selecting {
		before = d.keys(had...)
	}
	left := d.leavers.leave(owner)
	change, err := d.collector.Declare(ctx, owner, uses...)
	left(change.Removed)
	bad = append(bad, declareErrors(owner, err)...)
	out := Declaration{Added: d.keys(change.Added...), Removed: d.keys(change.Removed...)}
	if selecting { // a cluster may be selected twice, or also be named
		after := d.keys(d.collector.Uses(owner)...)
		out.Added, out.Removed = except(out.Added, before), except(before, after)
	}
	sortKeys(out.Removed)
	d.joined(owner, change.Added, out.Added)
	// First this, since a cluster is settled after it is selected.
	out.Synced = len(bad) == 0 && d.isSettled(uses)
	out.Synced = out.Synced && d.synced(d.keys(uses...))

	return out, errors.Join(bad...)
}

// Declaration is the result of a call of Declare.
type Declaration struct {
	// Added lists the keys that the owner uses now and did not use before, in
	// the order of the targets.
	Added []status.WatchKey
	// Removed lists the keys that the owner no longer uses, sorted.
	Removed []status.WatchKey
	// Synced reports whether every target was synced when Declare returned, as
	// [Watch.HasSynced] reports it, and whether it was known which clusters
	// each ClusterSelector selects.
	Synced bool
}

// Declared returns a snapshot of the watches that an owner declared, as far as
// they are in effect, sorted: for a ClusterSelector, one in each cluster that
// it selects at the moment.
func (cc *ClusterCache) Declared(owner Owner) []Use {
	keys := cc.declared.keys(cc.declared.collector.Uses(owner)...)
	sortKeys(keys)
	uses := make([]Use, 0, len(keys))
	for _, key := range keys {
		w := cc.declared.watch(key)
		if w == nil {
			continue // released meanwhile
		}
		u := w.c.use(w.want)
		u.Owners = cc.declared.owners(key)
		sortOwners(u.Owners)
		u.Owners = slices.Compact(u.Owners)
		uses = append(uses, u)
	}

	return uses
}

// Drop releases everything that an owner declared. It does not wait. A
// concurrent declaration of the owner has no effect.
func (cc *ClusterCache) Drop(owner Owner) {
	left := cc.declared.leavers.leave(owner)
	left(cc.declared.collector.Drop(owner))
}

// Sweep checks every owner now (GC.InUse), and releases keys that no owner has
// used for GC.Grace. The error joins one for each owner that could not be
// checked, or is [ErrClosed].
func (cc *ClusterCache) Sweep(ctx context.Context) (Swept, error) {
	selected := cc.declared.selected()
	swept, err := cc.declared.collector.Sweep(ctx)
	sortOwners(swept.Collected)
	released := cc.declared.releasedKeys(swept.Released, selected)
	if errors.Is(err, gc.ErrClosed) {
		err = ErrClosed
	}

	return Swept{Collected: swept.Collected, Released: released}, err
}

// Swept is the result of a sweep.
type Swept struct {
	// Collected lists the owners that were found gone for good, sorted.
	Collected []Owner
	// Released lists the keys that were no longer used, sorted.
	Released []status.WatchKey
}

// WaitForSync waits until every target that an owner uses now has synced or is
// known to need more than waiting, as [Watch.WaitForSync] does, until it is
// known which clusters each ClusterSelector selects, or until ctx ends. The
// error joins a [*TargetError] for each target that is not synced, which
// apierrors.IsForbidden, meta.IsNoMatchError and the like classify.
func (cc *ClusterCache) WaitForSync(ctx context.Context, owner Owner) error {
	uses := cc.declared.collector.Uses(owner)
	var errs []error
	if err := cc.declared.settle(ctx, uses); err != nil {
		for _, n := range uses {
			if n.many {
				errs = append(errs, n.targetError(owner, fmt.Errorf("%w: %w", errUnsettled, err)))
			}
		}
	}
	keys := cc.declared.keys(uses...)
	sortKeys(keys)
	for _, key := range keys {
		w := cc.declared.watch(key)
		if w == nil {
			continue // released meanwhile
		}
		if err := w.sync(ctx); err != nil {
			errs = append(errs, need{WatchKey: key}.targetError(owner, err))
		}
	}

	return errors.Join(errs...)
}

// declareErrors converts the errors of the collector to those of this package.
func declareErrors(owner Owner, err error) []error {
	if err == nil {
		return nil
	}
	parts := []error{err}
	// The error that the collector returned, not one that it wraps.
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		parts = joined.Unwrap()
	}
	out := make([]error, 0, len(parts))
	for _, part := range parts {
		target, ok := errors.AsType[*gc.ResourceError[need]](part)
		closed := errors.Is(part, gc.ErrClosed) || errors.Is(part, ErrClosed)
		switch {
		case ok && closed:
			part = target.Resource.targetError(owner, ErrClosed)
		case ok:
			part = target.Resource.targetError(owner, target.Err)
		case closed:
			part = fmt.Errorf("declare for %s: %w", owner, ErrClosed)
		default:
			part = fmt.Errorf("declare for %s: %w", owner, part)
		}

		out = append(out, part)
	}

	return out
}
