// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/debounce"
)

// DeclarerMapFunc returns the requests to reconcile for an owner of
// declarations. It is called by one goroutine at a time for each controller.
// ctx ends with the controller, or when the source is stopped. A panic is
// counted by Failures and loses only the event.
type DeclarerMapFunc[request comparable] func(ctx context.Context, owner clustercache.Owner) []request

// TypedDeclarerSource is what [DeclarerSource] returns.
type TypedDeclarerSource[request comparable] = Source[request, DeclarerMapFunc[request]]

// DeclarerSourceOptions configure how a declarer source delivers.
type DeclarerSourceOptions struct {
	// Debounce delays a request until no further event has led to it for that
	// long. Zero means that it is queued at once.
	Debounce time.Duration
	// MaxDelay is the longest that a request is delayed, however steady the
	// events are. Defaults to ten times Debounce.
	MaxDelay time.Duration
}

// DeclarerSource returns a source of a controller, for its WatchesRawSource. It
// is the way back from what ClusterCache.Declare watches to the owners that
// declared it: whenever a read of a declared target could be answered
// differently, its owners are requested. That is the case with every change of
// an object that the target covers, of the state of its watch, such as the end
// of the first list, a refusal or its end, and of the phase of its cluster. So
// the reconciler keeps no index of its own, and requeues nothing:
//
//	ctrl.NewControllerManagedBy(mgr).
//		For(&v1.Pipeline{}).
//		WatchesRawSource(controller.DeclarerSource(cc, controller.EnqueueDeclarer(pipelineKind)))
//
// Owners that declare something when the source starts, and objects that exist
// when their watch begins, are queued with low priority where the queue has
// priorities. Starting it does not block. It ends with the controller, and
// another controller can start it again. Trigger takes the owner, without a
// cluster. If several options are given, the last non-zero value of each field
// counts.
func DeclarerSource[request comparable](
	cc *clustercache.ClusterCache, mapping DeclarerMapFunc[request], opts ...DeclarerSourceOptions,
) *TypedDeclarerSource[request] {
	var options DeclarerSourceOptions
	for _, o := range opts {
		options.Debounce = cmp.Or(o.Debounce, options.Debounce)
		options.MaxDelay = cmp.Or(o.MaxDelay, options.MaxDelay)
	}
	s := &TypedDeclarerSource[request]{
		cc:     cc,
		name:   func() string { return "fleetcache declarer source" },
		config: debounce.Config{Window: options.Debounce, MaxDelay: options.MaxDelay},
	}
	s.subscribe = func(r *run[request]) (events.Subscription, error) {
		return cc.SubscribeOwners(func(e clustercache.OwnerEvent) {
			if r.ctx.Err() != nil {
				return
			}
			for _, q := range (*s.mapping.Load())(r.ctx, e.Owner) {
				r.debounced.Add(q, e.Initial)
			}
		})
	}
	s.mapping.Store(&mapping)

	return s
}

// EnqueueDeclarer returns a [DeclarerMapFunc] for controllers that reconcile
// objects of the hub: it requests the owners of a kind by their names. If
// controllers are given, it requests only what these declared
// ([clustercache.Owner].Controller).
func EnqueueDeclarer(kind schema.GroupVersionKind, controllers ...string) DeclarerMapFunc[reconcile.Request] {
	requireAll("EnqueueDeclarer", map[string]bool{"kind": kind.Kind != ""})
	return func(_ context.Context, owner clustercache.Owner) []reconcile.Request {
		if owner.GVK.GroupKind() != kind.GroupKind() {
			return nil
		}
		if len(controllers) > 0 && !slices.Contains(controllers, owner.Controller) {
			return nil
		}
		return []reconcile.Request{{NamespacedName: owner.ObjectKey}}
	}
}
