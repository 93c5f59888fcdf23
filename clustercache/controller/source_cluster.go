// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/debounce"
)

// ClusterMapFunc returns the requests to reconcile because of a change of a
// cluster. It is called by one goroutine at a time for each controller. ctx
// ends with the controller, or when the source is stopped. A panic is counted
// by Failures and loses only the event.
type ClusterMapFunc[request comparable] func(ctx context.Context, event events.Cluster) []request

// TypedClusterSource is what [ClusterSource] returns.
type TypedClusterSource[request comparable] = Source[request, ClusterMapFunc[request]]

// ClusterSourceOptions configure which events a cluster source delivers, and
// how.
type ClusterSourceOptions struct {
	// Clusters selects clusters. Nil means all.
	Clusters func(cluster client.ObjectKey) bool
	// ClusterSelector selects clusters by their labels, in addition to Clusters.
	// Clusters enter and leave when their labels change. The state of one that
	// enters is delivered, and so is the event with which one leaves: a
	// Relabeled, unless Types leaves it out. Nil selects all.
	ClusterSelector labels.Selector
	// Types are the types of events to deliver. Empty means all.
	Types []events.ClusterType
	// Filter reports whether to deliver an event. Nil delivers all.
	Filter func(event events.Cluster) bool
	// SilentFor are times after which a cluster that has left probes and
	// attempts to connect unanswered leads to an event of type Silent, once for
	// each silence and time, in addition to clustercache.Options.SilentAfter.
	// The silence of a cluster that never answered begins with its first
	// failure. They must be positive.
	SilentFor []time.Duration
	// Debounce delays a request until no further event has led to it for that
	// long. Zero means that it is queued at once.
	Debounce time.Duration
	// MaxDelay is the longest that a request is delayed, however steady the
	// events are. Defaults to ten times Debounce.
	MaxDelay time.Duration
}

// ClusterSource returns a source of a controller, for its WatchesRawSource. It
// begins with the state of every known cluster, at low priority where the queue
// has priorities, and continues with their changes. Starting it does not block.
// It ends with the controller, and another controller can start it again. If
// several options are given, the last non-zero value of each field counts.
//
// With the ClusterCache's Options.Sharding, the clusters are those that this
// replica owns. The state of one that is gained is delivered at low priority.
func ClusterSource[request comparable](
	cc *clustercache.ClusterCache, mapping ClusterMapFunc[request], opts ...ClusterSourceOptions,
) *TypedClusterSource[request] {
	var options ClusterSourceOptions
	for _, o := range opts {
		if o.Clusters != nil {
			options.Clusters = o.Clusters
		}
		if o.ClusterSelector != nil {
			options.ClusterSelector = o.ClusterSelector
		}
		if o.Filter != nil {
			options.Filter = o.Filter
		}
		if len(o.Types) > 0 {
			options.Types = slices.Clone(o.Types)
		}
		if len(o.SilentFor) > 0 {
			options.SilentFor = slices.Clone(o.SilentFor)
		}
		options.Debounce = cmp.Or(o.Debounce, options.Debounce)
		options.MaxDelay = cmp.Or(o.MaxDelay, options.MaxDelay)
	}
	s := &TypedClusterSource[request]{
		cc:     cc,
		name:   func() string { return "fleetcache cluster source" },
		config: debounce.Config{Window: options.Debounce, MaxDelay: options.MaxDelay},
	}
	s.subscribe = func(r *run[request]) (events.Subscription, error) {
		labelsOf := func(key client.ObjectKey) (map[string]string, bool) { return cc.Cluster(key).Labels() }
		labelled := newLabelFilter(labelsOf, cc.Clusters, options.ClusterSelector)
		return cc.SubscribeClusters(func(e events.Cluster) {
			if r.ctx.Err() != nil || !cc.Cluster(e.Cluster).Owned() {
				return // if it is gained, its state is delivered once more
			}
			gained := e.Type == events.Gained
			passes, missed := labelled.passes(e)
			if gained && !e.Initial || missed {
				r.subscription.Trigger(e.Cluster, schema.GroupVersionKind{}, client.ObjectKey{})
			}
			if !passes || !options.selects(e) {
				return
			}
			for _, q := range (*s.mapping.Load())(r.ctx, e) {
				r.debounced.Add(q, e.Initial || gained)
			}
		}, options.SilentFor...)
	}
	s.mapping.Store(&mapping)

	return s
}

// selects reports whether an event is to be delivered.
func (o *ClusterSourceOptions) selects(e events.Cluster) bool {
	return (len(o.Types) == 0 || slices.Contains(o.Types, e.Type)) &&
		(o.Clusters == nil || o.Clusters(e.Cluster)) &&
		(o.Filter == nil || o.Filter(e))
}
