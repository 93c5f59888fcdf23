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

// Target is something that an owner needs: a kind in a cluster, whole or in
// part.
type Target struct {
	// Cluster is the cluster. The zero value is the hub.
	Cluster client.ObjectKey
	// Kind tells the kind: a typed object, an unstructured one, or [Kind].
	// Required.
	Kind client.Object
	// Options narrow what is watched: client.InNamespace, MatchingLabels,
	// MatchingFields and the like.
	Options []client.ListOption
}

// Declaration is what a call of Declare did.
type Declaration struct {
	// Added is what the owner uses now and did not use before, in the order of
	// the targets.
	Added []WatchKey
	// Removed is what it does not use any more, sorted.
	Removed []WatchKey
	// Synced reports whether every target was in effect and could be read from
	// the cache when Declare returned.
	Synced bool
}

// TargetError says which target of which owner is not in effect, or did not
// sync.
type TargetError struct {
	Owner   Owner
	Cluster client.ObjectKey
	// GVK is zero where the target does not tell its kind.
	GVK schema.GroupVersionKind
	// Field is what is wrong with the target, such as Targets[2].LabelSelector.
	// Empty if the cause is not the target.
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

// Declare says all that an owner needs, in place of what it declared before:
// call it each time the owner is reconciled, and nothing needs to be stopped.
// What is new is held before what is not needed any more is let go, and what is
// in both sets is not touched; the same set again costs no request. It makes
// the clusters known, and never waits for one of them: WaitForSync does, and
// events come when there are objects. What is let go runs on for GC.Grace. A
// cluster that was not engaged, and in which nobody needs anything any more, is
// disconnected and forgotten then.
//
// Declarations of one owner are carried out in the order they came, so that the
// last wins; those of different owners do not wait for each other. An owner
// that ends says so with Drop, or is found gone (GC.InUse).
//
// A target that cannot be fails alone: its error, a [*TargetError], is part of
// the returned one, the rest takes effect, and a later Declare tries again. A
// kind that the cluster does not serve, or does not let us list, is no such
// failure: the informer goes on trying, and Declared tells. If ctx ends while
// the call waits for its turn, nothing is let go. Other errors are [ErrClosed],
// ctx's, and gc.ErrDropped after a Drop of the owner meanwhile.
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

// Drop says that an owner needs nothing any more. It does not wait. A
// declaration of the owner that is under way has no effect.
func (cc *ClusterCache) Drop(owner Owner) { cc.declared.collector.Drop(owner) }

// WaitForSync waits until everything that an owner uses now can be read from
// the cache, or until it is known of the rest that waiting does not help, or
// for ctx. The error joins a [*TargetError] for each target that has not
// synced; apierrors.IsForbidden, meta.IsNoMatchError and so on tell why. Those
// go on trying. An owner that uses nothing has nothing to wait for.
func (cc *ClusterCache) WaitForSync(ctx context.Context, owner Owner) error {
	uses := cc.declared.collector.Uses(owner)
	sortKeys(uses)
	var errs []error
	for _, key := range uses {
		w := cc.declared.watch(key)
		if w == nil {
			continue // let go meanwhile
		}
		if err := w.sync(ctx); err != nil {
			errs = append(errs, &TargetError{Owner: owner, Cluster: key.Cluster, GVK: key.GVK, Err: err})
		}
	}
	return errors.Join(errs...)
}

// Swept is what a sweep did.
type Swept struct {
	// Collected are the owners that were found gone for good, sorted.
	Collected []Owner
	// Released is what nobody used any more, sorted.
	Released []WatchKey
}

// Sweep does at once what otherwise happens by and by: it looks at every owner,
// and lets go of what nobody has used for GC.Grace. It waits for GC.InUse. The
// error joins one for each owner of which nothing could be found out; it stops
// nothing else. After the end it is [ErrClosed].
func (cc *ClusterCache) Sweep(ctx context.Context) (Swept, error) {
	swept, err := cc.declared.collector.Sweep(ctx)
	sortOwners(swept.Collected)
	sortKeys(swept.Released)
	if errors.Is(err, gc.ErrClosed) {
		err = ErrClosed
	}
	return Swept{Collected: swept.Collected, Released: swept.Released}, err
}

// targetKey returns what a target is, or what is wrong with it.
func (cc *ClusterCache) targetKey(owner Owner, i int, t Target) (WatchKey, error) {
	id, err := cc.watchID(t.Kind, t.Options)
	if err == nil {
		return WatchKey{
			Cluster: t.Cluster, GVK: id.gvk, Namespace: id.namespace, LabelSelector: id.labels, FieldSelector: id.fields,
		}, nil
	}
	field := "Kind"
	if k, ok := errors.AsType[*informerpool.KeyError](err); ok {
		err = k.Err
		switch k.Field {
		case "Namespace", "LabelSelector", "FieldSelector":
			field = k.Field
		}
	}
	return WatchKey{}, &TargetError{Owner: owner, Cluster: t.Cluster, GVK: id.gvk, Field: fmt.Sprintf("Targets[%d].%s", i, field), Err: err}
}

// declareErrors puts what the collector says into our terms.
func (cc *ClusterCache) declareErrors(owner Owner, err error) []error {
	if err == nil {
		return nil
	}
	var parts []error
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // what Declare returns, not what it wraps
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
			part = &TargetError{Owner: owner, Cluster: target.Resource.Cluster, GVK: target.Resource.GVK, Err: ErrClosed}
		case ok:
			part = &TargetError{Owner: owner, Cluster: target.Resource.Cluster, GVK: target.Resource.GVK, Err: target.Err}
		case closed:
			part = fmt.Errorf("declare for %s: %w", owner, ErrClosed)
		default:
			part = fmt.Errorf("declare for %s: %w", owner, part)
		}
		out = append(out, part)
	}
	return out
}
