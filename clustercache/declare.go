// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/gc"
	"github.com/fleetcache/fleetcache/informerpool"
)

// Target is something that an owner needs: all objects of a kind in a cluster,
// or a selection of them.
type Target struct {
	// Cluster is the cluster. The zero value is the hub.
	Cluster client.ObjectKey
	// Kind gives the kind, as a typed object, an unstructured one, or [Kind].
	// Required.
	Kind client.Object
	// Options narrow the selection: client.InNamespace, MatchingLabels,
	// MatchingFields and the like.
	Options []client.ListOption
}

// Declaration is the result of a call of Declare.
type Declaration struct {
	// Added lists the keys that the owner uses now and did not use before, in
	// the order of the targets.
	Added []WatchKey
	// Removed lists the keys that the owner no longer uses, sorted.
	Removed []WatchKey
	// Synced reports whether every target was in effect and could be read from
	// the cache when Declare returned.
	Synced bool
}

// TargetError reports a target of an owner that is not in effect, or did not
// sync.
type TargetError struct {
	Owner   Owner
	Cluster client.ObjectKey
	// GVK is zero if the target's kind cannot be determined.
	GVK schema.GroupVersionKind
	// Field is the invalid field of the target, such as
	// Targets[2].LabelSelector. It is empty if the cause is not the target.
	Field string
	// Err is the cause.
	Err error
}

// Error names the owner, the kind, the cluster, the field and the cause.
func (e *TargetError) Error() string {
	kind, field := "unknown kind", ""
	if !e.GVK.Empty() {
		kind = kindName(e.GVK)
	}
	if e.Field != "" {
		field = e.Field + ": "
	}
	return fmt.Sprintf("%s in cluster %s for %s: %s%v", kind, clusterName(e.Cluster), e.Owner, field, e.Err)
}

// Unwrap returns the cause.
func (e *TargetError) Unwrap() error { return e.Err }

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

	return Declaration{
		Added: change.Added, Removed: change.Removed, Synced: len(bad) == 0 && cc.declared.synced(uses),
	}, errors.Join(bad...)
}

// Drop releases everything that an owner declared. It does not wait. A
// concurrent declaration of the owner has no effect.
func (cc *ClusterCache) Drop(owner Owner) { cc.declared.collector.Drop(owner) }

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

// Swept is the result of a sweep.
type Swept struct {
	// Collected lists the owners that were found gone for good, sorted.
	Collected []Owner
	// Released lists the keys that were no longer used, sorted.
	Released []WatchKey
}

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
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // the error that the collector returned, not one that it wraps
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
