// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/debounce"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/informerpool"
)

// ObjectMapFunc returns the requests to reconcile because of an object of a
// cluster. The object is in ObjectSourceOptions.Representation, by default typed
// where the kind was named by a typed object. It is called with the old and the
// new state of an update, and with every delivered state of a deleted object. It
// is called by one goroutine at a time for each controller. ctx ends with the
// controller, or when the source is stopped. A panic is counted by Failures and
// loses only the event.
//
// The event does not come again if a read in the function fails. Read with
// [clustercache.CacheOnly] and a [clustercache.MaxStaleness], so that the cache
// answers while the cluster is not connected, as [PerClusterHandler] does.
type ObjectMapFunc[request comparable] func(ctx context.Context, cluster client.ObjectKey, obj client.Object) []request

// TypedObjectSource is what [ObjectSource] returns.
type TypedObjectSource[request comparable] = Source[request, ObjectMapFunc[request]]

// ObjectSourceOptions configure how an object source delivers.
type ObjectSourceOptions struct {
	// Representation is that of the objects passed to the mapping function;
	// predicates have Selection.Representation. Defaults to the latter,
	// and so to the form in which the kind is named. A function that reads only
	// metadata costs least with [events.Packed].
	Representation events.Representation
	// Debounce delays a request until no further event has led to it for that
	// long. Zero means that it is queued at once. Only keys are delayed; the
	// reconciler always reads the current state.
	Debounce time.Duration
	// MaxDelay is the longest that a request is delayed, however steady the
	// events are. Defaults to ten times Debounce.
	MaxDelay time.Duration
}

// ObjectSource returns a source of a controller, for its WatchesRawSource: one
// source for any number of clusters and kinds, including those that are watched
// later. Starting it does not block and does not fail because of a cluster.
// Objects that already exist, or that are delivered once more, are queued with
// low priority where the queue has priorities. The source ends with the
// controller, and another controller can start it again. If several options are
// given, the last non-zero value of each field counts.
//
// With the ClusterCache's Options.Sharding, the source has the events of the
// clusters that this replica owns: see [events.Selection].Owned.
// Deletions before a cluster is gained are not delivered.
func ObjectSource[request comparable](
	cc *clustercache.ClusterCache, selection events.Selection, mapping ObjectMapFunc[request],
	opts ...ObjectSourceOptions,
) *TypedObjectSource[request] {
	var options ObjectSourceOptions
	for _, o := range opts {
		options.Representation = cmp.Or(o.Representation, options.Representation)
		options.Debounce = cmp.Or(o.Debounce, options.Debounce)
		options.MaxDelay = cmp.Or(o.MaxDelay, options.MaxDelay)
	}
	s := &TypedObjectSource[request]{
		cc:     cc,
		name:   func() string { return "fleetcache object source" + kindsOf(cc, selection) },
		config: debounce.Config{Window: options.Debounce, MaxDelay: options.MaxDelay},
	}
	s.subscribe = func(r *run[request]) (events.Subscription, error) {
		if options.Representation > events.Metadata {
			return nil, &clustercache.OptionError{Field: "Representation", Err: clustercache.ErrUnsupported}
		}
		narrowed := selection
		narrowed.Owned = true
		return cc.Subscribe(narrowed, func(e events.Object) { handle(s, r, options.Representation, e) })
	}
	s.mapping.Store(&mapping)

	return s
}

// handle maps the event of an object. It is called by the subscription, which
// recovers from its panics.
func handle[request comparable](
	s *TypedObjectSource[request], r *run[request], as events.Representation, e events.Object,
) {
	if r.ctx.Err() != nil {
		return
	}
	requests := map[request]struct{}{}
	mapping := *s.mapping.Load()
	states := []*informerpool.Object{e.LastDelivered, e.Old, e.New}
	if e.Resync {
		states = states[2:] // Old is the same
	}

	for _, o := range states {
		if o == nil {
			continue
		}
		obj, err := e.As(as, o)
		if err != nil {
			s.failures.Add(1) // As has logged it
			continue
		}
		for _, q := range mapping(r.ctx, e.Cluster, obj) {
			requests[q] = struct{}{}
		}
	}

	for q := range requests {
		r.debounced.Add(q, e.Initial || e.Resync)
	}
}

// kindsOf returns the kinds of a selection, for logs. Kinds that are nil, or
// that the scheme does not have, are left out: Start returns the error.
func kindsOf(cc *clustercache.ClusterCache, selection events.Selection) string {
	if cc == nil {
		return ""
	}
	kinds := map[string]bool{}
	add := func(kind client.Object) {
		if v := reflect.ValueOf(kind); !v.IsValid() || (v.Kind() == reflect.Pointer && v.IsNil()) {
			return
		}
		if gvk, err := apiutil.GVKForObject(kind, cc.Options().Scheme); err == nil {
			kinds[wants.KindName(gvk)] = true
		}
	}
	for _, kind := range selection.Kinds {
		add(kind)
	}
	for _, s := range selection.Narrowed {
		add(s.Kind)
	}
	if len(kinds) == 0 {
		return ""
	}

	return ": " + strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
}
