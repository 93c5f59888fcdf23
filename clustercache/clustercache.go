// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/keeper"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/tenure"
	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/timetable"
	"github.com/fleetcache/fleetcache/internal/workpool"
)

// ClusterCache reads and watches objects in many clusters. Make one with [New],
// and run it with Start. All methods are safe for concurrent use, and can be
// called before Start; their work begins with it.
type ClusterCache struct {
	*shared

	clusters   *clusters
	declared   *declared // the watches that owners declared
	subscribed *subscriptions
	discovery  *discovery
	exporter   exporter
	keeper     *keeper.Keeper // nil without Options.Persist
}

// New returns a ClusterCache. It does no I/O and starts nothing. The error
// joins an [*OptionError] for each option that is unusable.
func New(o Options) (*ClusterCache, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &shared{
		lifetime: newLifetime(o.Logger, o.LeaderOnly),
		options:  o,
		log:      o.Logger,
		timers:   timetable.NewTimers(),
		metrics:  newMetrics(),
		events:   newBroadcaster(),
	}
	s.calls = callback.NewCalls(o.Logger, s.metrics.panicked)
	cc := &ClusterCache{shared: s}
	cc.clusters = &clusters{
		shared:      s,
		connections: cc.connectionConfig(),
		lookUp:      workpool.NewWorkers(o.ConnectConcurrency, s.spawn),
		indexes:     newIndexes(s),
		listing:     newListing(),
		byKey:       map[client.ObjectKey]*cluster{},
	}
	s.tenure = tenure.New(tenure.Config{
		Sharding: o.Sharding,
		Timers:   s.timers,
		Changed:  cc.clusters.reassigned,
		Unfilled: cc.clusters.unfilled,
	})
	cc.exporter = exporter{cc: cc, version: version()}
	if err = cc.addPool(); err != nil {
		cc.cancel(err)
		return nil, err
	}
	if cc.declared, err = newDeclared(cc.clusters); err != nil {
		cc.cancel(err)
		return nil, &OptionError{Field: "GC", Err: err}
	}
	cc.discovery = &discovery{
		shared:      s,
		clusters:    cc.clusters,
		listing:     cc.clusters.listing,
		firstListed: cc.declared.listedClusters,
	}
	cc.subscribed = newSubscriptions(cc.clusters)
	cc.clusters.hooks = clusterHooks{
		added: cc.declared.settlement.add,
		changed: func(c *cluster, what change) {
			cc.subscribed.changed(c, what)
			cc.declared.changed(c, what)
		},
		bound: func(c *cluster, want *watchset.Want) {
			cc.subscribed.bound(c, want)
			cc.declared.bound(c, want)
		},
		watchChanged: cc.declared.watchChanged,
		resolved:     cc.discovery.changed,
	}

	return cc, nil
}

// Clusters returns the known clusters, sorted by namespace and name.
func (cc *ClusterCache) Clusters() []client.ObjectKey {
	var keys []client.ObjectKey
	for _, c := range cc.clusters.all() {
		if c.conn.View().Phase != phase.Gone {
			keys = append(keys, c.key)
		}
	}
	slices.SortFunc(keys, clustername.Compare)
	return keys
}
