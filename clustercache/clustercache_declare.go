// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/gc"
	"github.com/fleetcache/fleetcache/internal/listopts"
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
// with a call of Drop, or when it is found gone (GC.InUse). While it is being
// deleted it is not: it may wait for the end of a remote object, declare that,
// and Drop afterwards.
//
// A target with a ClusterSelector stands for a watch in each cluster that it
// selects, which begins and ends with that: nothing has to be declared again
// when clusters come, go or are relabeled. It neither keeps a cluster known
// that is gone, nor one that another replica owns. The watch of a cluster that
// ceases to match lingers for Informers.Linger.
//
// An invalid target fails alone: its error, a [*TargetError], is joined into
// the returned one, the other targets take effect, and a later Declare tries
// again. A kind that the cluster does not serve, or does not permit the client
// to list, is not such a failure: the informer keeps trying, and Declared
// reports the problem. If ctx ends while the call waits for its turn, nothing
// is released. Other errors are [ErrClosed], that of ctx, gc.ErrDropped if the
// owner was dropped meanwhile, and an [*OptionError] for an owner without a
// kind, a version or a name, of which nothing takes effect.
func (cc *ClusterCache) Declare(ctx context.Context, owner Owner, targets ...Target) (Declaration, error) {
	if err := owner.check(); err != nil {
		return Declaration{}, err
	}
	d := cc.declared
	uses := make([]need, 0, len(targets))
	var bad []error
	for i, t := range targets {
		if n, err := cc.need(owner, i, t); err != nil {
			bad = append(bad, err)
		} else {
			uses = append(uses, n)
		}
	}

	had := d.collector.Uses(owner)
	selecting := anySelector(uses) || anySelector(had)
	var before []WatchKey
	if selecting {
		before = d.keys(had...)
	}
	left := d.leave(owner)
	change, err := d.collector.Declare(ctx, owner, uses...)
	left(change.Removed)
	bad = append(bad, cc.declareErrors(owner, err)...)
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

// Declared returns a snapshot of what an owner uses: the watches that it
// declared, as far as they are in effect, sorted. A target with a
// ClusterSelector has one for each cluster that it selects at the moment. It
// does no I/O.
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
	left := cc.declared.leave(owner)
	left(cc.declared.collector.Drop(owner))
}

// Sweep does at once what otherwise happens gradually: it checks every owner,
// and releases keys that no owner has used for GC.Grace. It waits for GC.InUse.
// The error joins one for each owner that could not be checked; other owners
// are not affected. After the ClusterCache has stopped it is [ErrClosed].
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

// WaitForSync waits until every target that an owner uses now can be read from
// the cache, or is known to need more than waiting, or until ctx ends, as
// [Watch.WaitForSync] does: while a cluster is not connected, it waits. The
// error joins a [*TargetError] for each target that is not synced;
// apierrors.IsForbidden, meta.IsNoMatchError and the like classify it. Those
// targets keep trying. For an owner without targets WaitForSync returns nil at
// once. Which clusters a Target.ClusterSelector selects it decides once the
// resolver has listed them and has answered for each of them.
func (cc *ClusterCache) WaitForSync(ctx context.Context, owner Owner) error {
	uses := cc.declared.collector.Uses(owner)
	var errs []error
	if err := cc.declared.settle(ctx, uses); err != nil {
		errs = append(errs, cc.unsettled(owner, uses, err)...)
	}
	keys := cc.declared.keys(uses...)
	sortKeys(keys)
	for _, key := range keys {
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

// unsettled returns an error for each need with a selector.
func (cc *ClusterCache) unsettled(owner Owner, needs []need, cause error) (errs []error) {
	for _, n := range needs {
		if n.many {
			errs = append(errs, n.targetError(owner, fmt.Errorf("%w: %w", errUnsettled, cause)))
		}
	}
	return errs
}

// targetError returns the error of a need of an owner.
func (n need) targetError(owner Owner, cause error) *TargetError {
	out := &TargetError{
		Owner:   owner,
		Cluster: n.Cluster,
		GVK:     n.GVK,
		Err:     cause,
	}
	if n.many {
		out.ClusterSelector, _ = labels.Parse(n.clusters) // it was made from one
	}
	return out
}

var (
	errUnsettled    = errors.New("not every cluster's labels are known yet")
	errTwoSelectors = errors.New("a target with a Cluster has no ClusterSelector")
	errSelectsNone  = errors.New("selects nothing")
)

// clusterSelector returns the canonical form of a target's selector.
func clusterSelector(t Target) (string, error) {
	if t.Cluster != (client.ObjectKey{}) {
		return "", errTwoSelectors
	}
	if listopts.LabelsOfNothing(t.ClusterSelector) {
		return "", errSelectsNone // the empty text would select everything
	}
	canonical, err := labels.Parse(t.ClusterSelector.String())
	if err != nil {
		return "", err
	}
	return canonical.String(), nil
}

// need returns what a target needs. The error is a *TargetError.
func (cc *ClusterCache) need(owner Owner, i int, t Target) (need, error) {
	id, err := cc.selection(t.Kind, t.Options)
	if err == nil && t.ClusterSelector == nil {
		return need{WatchKey: keyOf(t.Cluster, id)}, nil
	}

	field := "Kind"
	if err == nil {
		field = "ClusterSelector"
		n := need{WatchKey: keyOf(client.ObjectKey{}, id), many: true}
		if n.clusters, err = clusterSelector(t); err == nil {
			return n, nil
		}
	}
	if o, ok := errors.AsType[*OptionError](err); ok {
		field, err = o.Field, o.Err
	}

	return need{}, &TargetError{
		Owner:           owner,
		Cluster:         t.Cluster,
		ClusterSelector: t.ClusterSelector,
		GVK:             id.GVK,
		Field:           fmt.Sprintf("Targets[%d].%s", i, field),
		Err:             err,
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
