// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/keeper"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/tenure"
	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
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
	subscribed subscribed
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
	cc := &ClusterCache{shared: s, subscribed: subscribed{all: map[*objectSubscription]struct{}{}}}
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
	if cc.declared, err = newDeclared(cc, o.GC); err != nil {
		cc.cancel(err)
		return nil, &OptionError{Field: "GC", Err: err}
	}
	cc.clusters.hooks = clusterHooks{
		added: cc.declared.addCluster,
		changed: func(c *cluster, what change) {
			for _, s := range cc.subscriptions() {
				s.changed(c, what)
			}
			cc.declared.changed(c, what)
		},
		bound: func(c *cluster, want *watchset.Want) {
			for _, s := range cc.subscriptions() {
				s.leaseAdded(c, want)
			}
			cc.declared.bound(c, want)
		},
		watchChanged: cc.declared.watchChanged,
		resolved:     cc.changed,
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

// notified passes on the resolver's reports of changes until it stops
// reporting.
func (cc *ClusterCache) notified(n resolver.Notifier) {
	for cc.ctx.Err() == nil {
		err := cc.calls.Call("Resolver.Notify", func() error { return n.Notify(cc.ctx, cc.changed) })
		if cc.ctx.Err() != nil {
			return
		}
		cc.log.Error(err, "Resolver reports no more changes; calling it again")
		timetable.Sleep(cc.ctx, cc.options.RetryInterval)
	}
}

// changed records that the resolver's answer for a cluster may have changed.
func (cc *ClusterCache) changed(key client.ObjectKey) {
	c := cc.clusters.find(key)
	if c != nil && c.conn.Changed() {
		return
	}
	if !cc.options.Discover {
		return
	}
	if cc.clusters.listing.forgotten.since(key, time.Now().Add(-forgottenFor)) {
		cc.clusters.listing.recheck() // it is the rest of its removal, unless the list has it again
		return
	}

	if !cc.tenure.Serves(key) {
		if !cc.clusters.listing.lists(key) {
			cc.clusters.listing.relist()
		}
		return
	}
	if c, err := cc.clusters.engage(key, false); err == nil { // it fails only after Stop
		c.discovered.Store(true)
	}
}

// discover makes every listed cluster known, and queries the resolver about
// those that are no longer listed. A list that fails changes nothing about any
// cluster.
func (cc *ClusterCache) discover() {
	lister, _ := resolver.AsLister(cc.options.Resolver)
	_, notifies := resolver.AsNotifier(cc.options.Resolver)
	var last []client.ObjectKey
	var asOf time.Time
	for cc.ctx.Err() == nil {
		began := time.Now()
		keys, err := cc.listClusters(lister)
		wait := cc.options.RetryInterval
		switch {
		case err == nil:
			last, asOf = keys, began
			cc.tenure.SetClusters(keys)
			cc.clusters.listing.set(keys)
			cc.clusters.listing.failure.Store(nil)
			cc.compare(keys, began)
			if !cc.clusters.listing.listed.Swap(true) {
				cc.declared.listedClusters()
			}
			if notifies { // it reports the rest
				wait = cc.options.ResolveInterval
			}
		case cc.ctx.Err() == nil:
			failure := err.Error()
			if before := cc.clusters.listing.failure.Swap(&failure); before == nil || *before != failure {
				cc.log.Error(err, "Clusters cannot be listed")
			}
		}

		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		for !cc.listAgain(due) {
			cc.adopt(last, asOf)
		}
	}
}

// listAgain waits until the clusters have to be listed again. It returns false
// if only what this replica owns has changed.
func (cc *ClusterCache) listAgain(due <-chan time.Time) bool {
	select {
	case <-due:
	case <-cc.clusters.listing.relisting:
		timetable.Sleep(cc.ctx, relistPause)
	case <-cc.clusters.listing.rechecking:
	case <-cc.clusters.listing.reassigned:
		return false
	case <-cc.ctx.Done():
	}

	return true
}

// listClusters returns the resolver's list.
func (cc *ClusterCache) listClusters(lister resolver.Lister) (keys []client.ObjectKey, err error) {
	err = cc.calls.Call("Resolver.Clusters", func() (err error) {
		keys, err = lister.Clusters(cc.ctx)
		return err
	})
	return keys, err
}

// compare adopts the listed clusters, and notes which of the discovered
// clusters are no longer listed. The resolver's answer for each of them
// decides, unless it is "not yet": see attempt.ask.
func (cc *ClusterCache) compare(keys []client.ObjectKey, began time.Time) {
	now := cc.adopt(keys, began)
	for _, c := range cc.clusters.all() {
		if c.discovered.Load() && c.unlisted.Swap(!now[c.key]) == now[c.key] {
			c.conn.Changed()
		}
	}
}

// adopt makes the listed clusters known that this replica owns or stands by
// for, and returns them. It gives up the discovered clusters for which that is
// over.
//
// A list that began before a cluster was forgotten may still contain it: the
// next list decides.
func (cc *ClusterCache) adopt(keys []client.ObjectKey, began time.Time) (now map[client.ObjectKey]bool) {
	now = make(map[client.ObjectKey]bool, len(keys))
	for _, key := range keys {
		if cc.clusters.listing.forgotten.since(key, began) {
			cc.clusters.listing.relist()
			continue
		}
		cc.clusters.listing.forgotten.drop(key)
		if !cc.tenure.Serves(key) {
			continue
		}
		now[key] = true
		c, err := cc.clusters.engage(key, false)
		if err != nil {
			return now // only after the end
		}
		c.discovered.Store(true)
	}

	for _, c := range cc.clusters.all() {
		if c.discovered.Load() && !cc.tenure.Serves(c.key) {
			c.discovered.Store(false)
			c.letGo()
		}
	}

	return now
}
