// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"

	"github.com/fleetcache/fleetcache/gc"
	"github.com/fleetcache/fleetcache/informerpool"
)

// Declare replaces the set of targets that an owner needs. Call it on every run
// of the owner's reconciler; nothing has to be stopped. New targets are
// acquired before old ones are released, and targets in both sets are left
// alone: declaring the same set again costs no request. Declare makes the
// clusters known, but never waits for one of them; WaitForSync does, and events
// arrive when there are objects. A released target is watched for another
// GC.Grace. After that, a cluster that was not engaged and that no owner needs
// is disconnected and forgotten.
//
// Declarations of one owner take effect in the order of the calls, so the last
// one wins; those of different owners do not wait for each other. An owner ends
// with a call of Drop, or when it is found gone (GC.InUse).
//
// An invalid target fails alone: its error, a [*TargetError], is joined into
// the returned one, the other targets take effect, and a later Declare tries
// again. A kind that the cluster does not serve, or does not permit the client
// to list, is not such a failure: the informer keeps trying, and Declared
// reports the problem. If ctx ends while the call waits for its turn, nothing
// is released. Other errors are [ErrClosed], that of ctx, and gc.ErrDropped if
// the owner was dropped meanwhile.
func (cc *ClusterCache) Declare(ctx context.Context, owner Owner, targets ...Target) (Declaration, error) {
	uses := make([]WatchKey, 0, len(targets))
	var bad []error
	for i, t := range targets {
		if key, err := cc.targetKey(owner, i, t); err != nil {
			bad = append(bad, err)
		} else {
			uses = append(uses, key)
		}
	}

	change, err := cc.declared.collector.Declare(ctx, owner, uses...)
	bad = append(bad, cc.declareErrors(owner, err)...)
	sortKeys(change.Removed)
	cc.declared.joined(owner, change.Added)

	return Declaration{
		Added: change.Added, Removed: change.Removed, Synced: len(bad) == 0 && cc.declared.synced(uses),
	}, errors.Join(bad...)
}

// Declared returns a snapshot of what an owner uses: the watches that it
// declared, as far as they are in effect, sorted. It does no I/O.
func (cc *ClusterCache) Declared(owner Owner) []Use {
	keys := cc.declared.collector.Uses(owner)
	sortKeys(keys)
	uses := make([]Use, 0, len(keys))
	for _, key := range keys {
		w := cc.declared.watch(key)
		if w == nil {
			continue // released meanwhile
		}
		u := w.c.use(w.want)
		u.Owners = cc.declared.collector.Owners(key)
		sortOwners(u.Owners)
		uses = append(uses, u)
	}

	return uses
}

// Drop releases everything that an owner declared. It does not wait. A
// concurrent declaration of the owner has no effect.
func (cc *ClusterCache) Drop(owner Owner) { cc.declared.collector.Drop(owner) }

// Sweep does at once what otherwise happens gradually: it checks every owner,
// and releases keys that no owner has used for GC.Grace. It waits for GC.InUse.
// The error joins one for each owner that could not be checked; other owners
// are not affected. After the ClusterCache has stopped it is [ErrClosed].
func (cc *ClusterCache) Sweep(ctx context.Context) (Swept, error) {
	swept, err := cc.declared.collector.Sweep(ctx)
	sortOwners(swept.Collected)
	sortKeys(swept.Released)
	if errors.Is(err, gc.ErrClosed) {
		err = ErrClosed
	}
	return Swept{Collected: swept.Collected, Released: swept.Released}, err
}

// WaitForSync waits until every target that an owner uses now can be read from
// the cache, or is known to need more than waiting, or until ctx ends. The
// error joins a [*TargetError] for each target that has not synced;
// apierrors.IsForbidden, meta.IsNoMatchError and the like classify it. Those
// targets keep trying. For an owner without targets WaitForSync returns nil at
// once.
func (cc *ClusterCache) WaitForSync(ctx context.Context, owner Owner) error {
	uses := cc.declared.collector.Uses(owner)
	sortKeys(uses)
	var errs []error
	for _, key := range uses {
		w := cc.declared.watch(key)
		if w == nil {
			continue // released meanwhile
		}
		if err := w.sync(ctx); err != nil {
			errs = append(errs, &TargetError{
				Owner:   owner,
				Cluster: key.Cluster,
				GVK:     key.GVK,
				Err:     err,
			})
		}
	}

	return errors.Join(errs...)
}

// targetKey returns the key of a target. The error is a *TargetError.
func (cc *ClusterCache) targetKey(owner Owner, i int, t Target) (WatchKey, error) {
	id, err := cc.selection(t.Kind, t.Options)
	if err == nil {
		return keyOf(t.Cluster, id), nil
	}

	field := "Kind"
	if k, ok := errors.AsType[*informerpool.KeyError](err); ok {
		err = k.Err
		switch k.Field {
		case "Namespace", "LabelSelector", "FieldSelector":
			field = k.Field
		}
	}

	return WatchKey{}, &TargetError{
		Owner:   owner,
		Cluster: t.Cluster,
		GVK:     id.GVK,
		Field:   fmt.Sprintf("Targets[%d].%s", i, field),
		Err:     err,
	}
}

// declareErrors converts the errors of the collector to those of this package.
func (cc *ClusterCache) declareErrors(owner Owner, err error) []error {
	if err == nil {
		return nil
	}
	var parts []error
	// The error that the collector returned, not one that it wraps.
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		parts = joined.Unwrap()
	} else {
		parts = []error{err}
	}
	out := make([]error, 0, len(parts))
	for _, part := range parts {
		target, ok := errors.AsType[*gc.ResourceError[WatchKey]](part)
		closed := errors.Is(part, gc.ErrClosed) || errors.Is(part, ErrClosed)
		switch {
		case ok && closed:
			part = &TargetError{
				Owner:   owner,
				Cluster: target.Resource.Cluster,
				GVK:     target.Resource.GVK,
				Err:     ErrClosed,
			}
		case ok:
			part = &TargetError{
				Owner:   owner,
				Cluster: target.Resource.Cluster,
				GVK:     target.Resource.GVK,
				Err:     target.Err,
			}
		case closed:
			part = fmt.Errorf("declare for %s: %w", owner, ErrClosed)
		default:
			part = fmt.Errorf("declare for %s: %w", owner, part)
		}

		out = append(out, part)
	}

	return out
}
