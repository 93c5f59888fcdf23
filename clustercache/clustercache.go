// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/keeper"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/tenure"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/restmap"
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
		lifetime: newLifetime(&o),
		options:  o,
		timers:   timetable.NewTimers(),
		metrics:  newMetrics(),
		events:   newBroadcaster(),
	}
	s.indexes = newIndexes(s)
	s.calls = callback.NewCalls(o.Logger, s.metrics.panicked)
	cc := &ClusterCache{shared: s}
	cc.clusters = &clusters{
		shared:      s,
		connections: cc.connectionConfig(),
		lookUp:      workpool.NewWorkers(o.ConnectConcurrency, s.spawn),
		listing: &listing{
			relisting:  make(chan struct{}, 1),
			rechecking: make(chan struct{}, 1),
			reassigned: make(chan struct{}, 1),
			forgotten:  cache.NewExpiring(),
		},
		byKey: map[client.ObjectKey]*cluster{},
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
	cc.discovery = &discovery{fleet: cc.clusters, firstListed: cc.declared.listedClusters}
	cc.subscribed = &subscriptions{fleet: cc.clusters, all: map[*objectSubscription]struct{}{}}
	cc.clusters.hooks = clusterHooks{
		added: cc.declared.settlement.add,
		changed: func(c *cluster, what change) {
			cc.subscribed.changed(c, what)
			cc.declared.changed(c, what)
		},
		bound: func(c *cluster, want *wants.Want) {
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

var (
	_ manager.Runnable               = (*ClusterCache)(nil)
	_ manager.LeaderElectionRunnable = (*ClusterCache)(nil)
)

// stopTimeout bounds how long Start waits, when it ends, for the user's
// functions that are still running. Everything else ends at once.
const stopTimeout = time.Second

// errStillRunning indicates that Start stopped waiting for a function of the
// user.
var errStillRunning = errors.New("still running at the end")

// NeedLeaderElection returns Options.LeaderOnly, for a manager.
func (cc *ClusterCache) NeedLeaderElection() bool { return cc.options.LeaderOnly }

// Start connects to the clusters and keeps them connected until ctx ends. It
// returns when every goroutine has ended, and can be called once. Afterwards
// everything fails with [ErrClosed]. The error names functions of yours that
// still run a second after ctx ended: they are left behind.
func (cc *ClusterCache) Start(ctx context.Context) error {
	cc.mu.Lock()
	if cc.mu.started {
		cc.mu.Unlock()
		return ErrStarted
	}
	cc.mu.started = true
	cc.mu.Unlock()

	if err := cc.exporter.register(cc.options.MetricsRegisterer, cc.options.Name); err != nil {
		cc.log.Error(err, "Metrics are not exported")
	}
	cc.spawn(func() { cc.timers.Run(cc.ctx) })
	stopKeeping := cc.startKeeping()
	cc.spawn(func() { _ = cc.declared.collector.Run(cc.ctx) }) // it fails only if it already runs
	if cc.tenure != nil {
		cc.spawn(func() { cc.tenure.Run(cc.ctx) })
	}
	cc.discovery.start()
	// Earlier messages wait in mailboxes. The flag is set first: a cluster that
	// is made after the loop has looked sees it.
	cc.live.Store(true)
	close(cc.running)
	for _, c := range cc.clusters.all() {
		c.conn.Drain()
	}
	cc.log.Info("Started")
	<-ctx.Done()

	stopKeeping() // before the informers end, whose states are written
	return cc.stop(context.WithoutCancel(ctx))
}

// stop ends everything and waits for it.
func (cc *ClusterCache) stop(ctx context.Context) error {
	cc.mu.Lock()
	cc.mu.stopped = true
	cc.mu.Unlock()

	cc.cancel(ErrClosed)
	cc.tenure.Close(ErrClosed)
	cc.exporter.unregister()
	cc.events.close()

	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	var closing sync.WaitGroup
	for _, c := range cc.clusters.all() {
		closing.Go(func() { c.close() })
	}
	err := cc.pool.Close(ctx)
	quiet := make(chan struct{})
	go func() { // ends with the last of them
		closing.Wait()
		cc.tasks.Wait()
		close(quiet)
	}()
	select {
	case <-quiet:
		cc.calls.Wait(ctx)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}

	late := cc.calls.String()
	cc.log.Info("Stopped")
	switch {
	case late != "":
		return fmt.Errorf("%s: %w", late, errStillRunning)
	case err != nil:
		return fmt.Errorf("a handler: %w: %w", errStillRunning, err)
	}

	return nil
}

// addPool adds the pool of informers, and what keeps their states.
func (cc *ClusterCache) addPool() (err error) {
	informers := cc.options.Informers
	informers.Source = informerpool.FromREST(cc.clusters.endpoint)
	informers.OnRollback = cc.clusters.rolledBack
	if cc.options.Persist.Store != nil {
		cc.keeper, err = keeper.New(keeper.Config{
			Options:   cc.options.Persist,
			Informers: &informers,
			Identity:  connection.ProvenUID,
			Logger:    cc.log,
		})
		if err != nil {
			return &OptionError{Field: "Persist", Err: err}
		}
		informers.Snapshots = cc.keeper
	}
	informers.OnListed = cc.clusters.tookList
	informers.OnPanic = cc.metrics.panicked
	if user := cc.options.Informers.OnPanic; user != nil {
		informers.OnPanic = func(name string) { cc.metrics.panicked(name); user(name) }
	}
	informers.OnFailed = cc.clusters.informerFailed
	informers.OnChanged = cc.clusters.informerChanged

	if cc.pool, err = informerpool.New(informers); err != nil {
		return &OptionError{Field: "Informers", Err: err}
	}
	return nil
}

// startKeeping reads what an earlier process has kept, and starts to keep the
// states of the informers. stop writes them a last time, and waits for that,
// unless the store hangs.
func (cc *ClusterCache) startKeeping() (stop func()) {
	if cc.keeper == nil {
		return func() {}
	}
	cc.keeper.Open()
	ctx, cancel := context.WithCancel(cc.ctx)
	cc.spawn(func() { cc.keeper.Run(ctx, cc.pool) })

	return func() {
		patience, done := context.WithTimeout(cc.ctx, cc.keeper.Patience())
		defer done()
		if err := cc.keeper.Close(patience, cancel); err != nil {
			cc.log.Error(err, "States were not written a last time")
		}
	}
}

// Protect calls f, a function that an operator gave to an adapter, and returns
// its error. A panic, or the end of its goroutine, is an error that names the
// callback; it is logged with the keys and values, and counted in
// fleetcache_callback_panics_total.
func (cc *ClusterCache) Protect(callback string, f func() error, keysAndValues ...any) error {
	return cc.calls.Call(callback, f, keysAndValues...)
}

// Started returns a channel that is closed once Start was called.
func (cc *ClusterCache) Started() <-chan struct{} { return cc.running }

// Options returns the options in effect, with their defaults.
func (cc *ClusterCache) Options() Options {
	o := cc.options
	o.Indexes = slices.Clone(o.Indexes)
	return o
}

// connectionConfig returns what all connections share.
func (cc *ClusterCache) connectionConfig() connection.Config {
	o := &cc.options
	connects := workpool.NewWorkers(o.ConnectConcurrency, cc.spawn)
	probes := workpool.NewWorkers(o.ProbeConcurrency, cc.spawn)

	return connection.Config{
		Resolver:       o.Resolver,
		Discover:       o.Discover,
		Phases:         o.phases(),
		ProbePath:      o.ProbePath,
		ProbeTimeout:   o.ProbeTimeout,
		RetryInterval:  o.RetryInterval,
		RequestTimeout: o.RequestTimeout,
		QPS:            o.QPS,
		Burst:          o.Burst,
		UserAgent:      o.UserAgent,
		NetHTTP:        o.NetHTTP,
		Dialer:         cc.dialers(),
		Context:        cc.ctx,
		Started:        cc.live.Load,
		Spawn:          cc.spawn,
		Connect:        connects.Submit,
		Probe:          probes.Submit,
		Timers:         cc.timers,
		Kinds:          restmap.NewTable(),
		Calls:          cc.calls,
		Log:            cc.log,
		Metrics:        cc.metrics,
	}
}

// AddIndex adds to Options.Indexes, for the given clusters, known or not, or
// for all if none is given, until remove is called. Cached objects are indexed
// before AddIndex returns. The error is an [*OptionError], or wraps
// [ErrIndexExists].
func (cc *ClusterCache) AddIndex(x Index, clusters ...client.ObjectKey) (remove func(), err error) {
	if err := errors.Join(x.validate("Index")...); err != nil {
		return nil, err
	}
	added, err := cc.indexes.add(x, clusters)
	if err != nil {
		return nil, err
	}

	for _, c := range cc.clusters.all() {
		if added.appliesTo(c.key) {
			for _, want := range c.wants.Index.Of(x.GVK) {
				cc.indexes.addTo(want.Lease(), c.key, x.GVK)
			}
		}
	}

	return func() { cc.indexes.remove(added) }, nil
}
