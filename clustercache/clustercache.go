// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/keeper"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/tenure"
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

	exporter    exporter
	indexes     *indexes
	declared    *declared // the watches that owners declared
	connections connection.Config
	lookUp      workpool.Workers // look-ups of kinds
	discovery   discovery
	keeper      *keeper.Keeper // nil without Options.Persist
	clusters    clusters
	subscribed  subscribed
}

// clusters are the known clusters.
type clusters struct {
	mu    sync.RWMutex // taken before a cluster's own locks
	byKey map[client.ObjectKey]*cluster

	twins twins
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
	cc := &ClusterCache{
		shared:  s,
		indexes: newIndexes(s),
		discovery: discovery{
			relisting:  make(chan struct{}, 1),
			rechecking: make(chan struct{}, 1),
			reassigned: make(chan struct{}, 1),
		},
		clusters:   clusters{byKey: map[client.ObjectKey]*cluster{}},
		subscribed: subscribed{all: map[*objectSubscription]struct{}{}},
	}
	cc.tenure = tenure.New(tenure.Config{
		Sharding: o.Sharding,
		Timers:   cc.timers,
		Changed:  cc.reassigned,
		Unfilled: cc.unfilled,
	})
	cc.exporter = exporter{cc: cc, version: version()}
	cc.lookUp = workpool.NewWorkers(o.ConnectConcurrency, cc.spawn)
	cc.connections = cc.connectionConfig()
	if err = cc.addPool(); err != nil {
		cc.cancel(err)
		return nil, err
	}
	if cc.declared, err = newDeclared(cc, o.GC); err != nil {
		cc.cancel(err)
		return nil, &OptionError{Field: "GC", Err: err}
	}

	return cc, nil
}

// Clusters returns the known clusters, sorted by namespace and name.
func (cc *ClusterCache) Clusters() []client.ObjectKey {
	var keys []client.ObjectKey
	for _, c := range cc.all() {
		if c.conn.View().Phase != phase.Gone {
			keys = append(keys, c.key)
		}
	}
	slices.SortFunc(keys, clustername.Compare)
	return keys
}

// find returns a cluster by its key, or nil.
func (cc *ClusterCache) find(key client.ObjectKey) *cluster {
	cc.clusters.mu.RLock()
	c := cc.clusters.byKey[key]
	cc.clusters.mu.RUnlock()
	return c
}

// all returns every cluster.
func (cc *ClusterCache) all() []*cluster {
	cc.clusters.mu.RLock()
	defer cc.clusters.mu.RUnlock()
	return slices.Collect(maps.Values(cc.clusters.byKey))
}

// engage returns the cluster, and makes and starts it if necessary. pin keeps
// it from being forgotten.
func (cc *ClusterCache) engage(key client.ObjectKey, pin bool) (*cluster, error) {
	cc.used()
	for cc.ctx.Err() == nil {
		if c, ok := cc.tryEngage(key, pin); ok {
			return c, nil
		}
	}
	return nil, &ClusterError{Cluster: key, Op: "engage", Err: ErrClosed}
}

// tryEngage is engage. It returns false if the cluster is being forgotten at
// the same moment.
func (cc *ClusterCache) tryEngage(key client.ObjectKey, pin bool) (*cluster, bool) {
	cc.clusters.mu.Lock()
	c := cc.clusters.byKey[key]
	fresh := c == nil
	if fresh {
		c = newCluster(cc, key)
		cc.clusters.byKey[key] = c
		cc.declared.addCluster(c)
	}
	if pin {
		c.pinned.Store(true)
		c.leaving.Store(false)
	}
	cc.clusters.mu.Unlock()

	if fresh {
		cc.declared.consider(c)
		c.announce()
		for _, f := range cc.subscriptions() {
			f.clusterAdded(c)
		}
	}
	if fresh || c.conn.View().Phase == phase.Gone {
		return c, c.conn.Ask()
	}
	return c, true
}

// forget removes a cluster that is gone and not wanted. Another cluster of the
// same key can be made at once: the two share nothing.
func (cc *ClusterCache) forget(c *cluster) {
	cc.clusters.mu.Lock()
	back := c.conn.View().Phase != phase.Gone // wanted again since forget was decided
	if cc.clusters.byKey[c.key] != c || back || c.pinned.Load() {
		cc.clusters.mu.Unlock()

		if back {
			c.letGo() // its last want may have been released before it was back
		}
		return
	}
	kept, ok := c.wants.CloseIfEmpty()
	if !ok {
		cc.clusters.mu.Unlock()
		return
	}
	delete(cc.clusters.byKey, c.key)
	listed := c.discovered.Load()
	if listed && cc.tenure.Serves(c.key) {
		cc.discovery.forgotten.add(c.key)
	}
	cc.clusters.twins.drop(c.key)
	cc.events.forget(c.key) // before another cluster of the key can emit events
	cc.clusters.mu.Unlock()

	for _, lease := range kept {
		lease.Retire() // handlers may not have seen the deletes yet
	}
	cc.pool.Forget(c.key)
	cc.declared.consider(c)
	if listed && cc.tenure != nil {
		cc.reassign() // it may have been gained while it was given up
	}
	if c.close() {
		cc.changed(c.key) // the resolver reported a change between the look above and now
	}
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
	c := cc.find(key)
	if c != nil && c.conn.Changed() {
		return
	}
	if !cc.options.Discover {
		return
	}
	if cc.discovery.forgotten.since(key, time.Now().Add(-forgottenFor)) {
		select { // the rest of its removal, unless the list has it again
		case cc.discovery.rechecking <- struct{}{}:
		default:
		}
		return
	}

	if !cc.tenure.Serves(key) {
		if !cc.discovery.lists(key) {
			cc.relist()
		}
		return
	}
	if c, err := cc.engage(key, false); err == nil { // it fails only after Stop
		c.discovered.Store(true)
	}
}

// relist reads the resolver's list again, if it has one.
func (cc *ClusterCache) relist() {
	select {
	case cc.discovery.relisting <- struct{}{}:
	default:
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
			cc.discovery.set(keys)
			cc.discovery.failure.Store(nil)
			cc.compare(keys, began)
			if !cc.discovery.listed.Swap(true) {
				cc.declared.listedClusters()
			}
			if notifies { // it reports the rest
				wait = cc.options.ResolveInterval
			}
		case cc.ctx.Err() == nil:
			failure := err.Error()
			if before := cc.discovery.failure.Swap(&failure); before == nil || *before != failure {
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
	case <-cc.discovery.relisting:
		timetable.Sleep(cc.ctx, relistPause)
	case <-cc.discovery.rechecking:
	case <-cc.discovery.reassigned:
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
	for _, c := range cc.all() {
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
		if cc.discovery.forgotten.since(key, began) {
			cc.relist()
			continue
		}
		cc.discovery.forgotten.drop(key)
		if !cc.tenure.Serves(key) {
			continue
		}
		now[key] = true
		c, err := cc.engage(key, false)
		if err != nil {
			return now // only after the end
		}
		c.discovered.Store(true)
	}

	for _, c := range cc.all() {
		if c.discovered.Load() && !cc.tenure.Serves(c.key) {
			c.discovered.Store(false)
			c.letGo()
		}
	}

	return now
}

// reassigned is called with the slots of Options.Sharding that have changed,
// and whether each was gained.
func (cc *ClusterCache) reassigned(slots map[int]bool) {
	for _, c := range cc.all() {
		if gained, ok := cc.tenure.Of(c.key, slots); ok {
			c.reassigned(gained)
		}
	}
	cc.reassign()
}

// unfilled returns those of the slots in which a cluster has yet to connect, or
// to list what is watched.
func (cc *ClusterCache) unfilled(slots map[int]bool) map[int]bool {
	if cc.options.Discover && !cc.discovery.listed.Load() {
		return slots
	}
	out := map[int]bool{}
	for _, key := range cc.discovery.missing(cc.find) {
		if _, ok := cc.tenure.Of(key, slots); ok {
			out[cc.tenure.State(key).Slot] = true
		}
	}
	for _, c := range cc.all() {
		if _, ok := cc.tenure.Of(c.key, slots); ok && !c.caches.filled() {
			out[cc.tenure.State(c.key).Slot] = true
		}
	}

	return out
}

// reassign compares the last list with what the replica owns.
func (cc *ClusterCache) reassign() {
	select {
	case cc.discovery.reassigned <- struct{}{}:
	default:
	}
}
