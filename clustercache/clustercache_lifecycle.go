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

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/keeper"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/restmap"
	"github.com/fleetcache/fleetcache/internal/timetable"
	"github.com/fleetcache/fleetcache/internal/workpool"
)

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

	cc.unstarted.close()

	if err := cc.exporter.register(cc.options.MetricsRegisterer, cc.options.Name); err != nil {
		cc.log.Error(err, "Metrics are not exported")
	}
	cc.spawn(func() { cc.timers.Run(cc.ctx) })
	stopKeeping := cc.startKeeping()
	cc.noticeNoClusters()
	cc.spawn(func() { _ = cc.declared.collector.Run(cc.ctx) }) // it fails only if it already runs
	if cc.tenure != nil {
		cc.spawn(func() { cc.tenure.Run(cc.ctx) })
	}
	if n, _ := resolver.AsNotifier(cc.options.Resolver); n != nil {
		cc.spawn(func() { cc.notified(n) })
	}
	if cc.options.Discover {
		cc.spawn(cc.discover)
	}
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
	if err = cc.addKeeper(&informers); err != nil {
		return &OptionError{Field: "Persist", Err: err}
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

// addKeeper adds what keeps the states of the informers, if there is a Store.
func (cc *ClusterCache) addKeeper(informers *informerpool.Options) (err error) {
	if cc.options.Persist.Store == nil {
		return nil
	}
	cc.keeper, err = keeper.New(keeper.Config{
		Options:   cc.options.Persist,
		Informers: informers,
		Identity:  connection.ProvenUID,
		Logger:    cc.log,
	})
	informers.Snapshots = cc.keeper

	return err
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

// relistPause is how long a list waits for further reasons to list: a fleet
// that is deleted is not listed once for each cluster.
const relistPause = 100 * time.Millisecond

// Started returns a channel that is closed once Start was called.
func (cc *ClusterCache) Started() <-chan struct{} { return cc.running }

// Options returns the options in effect, with their defaults.
func (cc *ClusterCache) Options() Options {
	o := cc.options
	o.Indexes = slices.Clone(o.Indexes)
	return o
}

// noticeNoClusters logs that no cluster is known, and why: an operator that
// does not set Discover, or whose Secrets lack a label, would run and do
// nothing.
func (cc *ClusterCache) noticeNoClusters() {
	cc.timers.Set(timetable.NewTimer(func() {
		if len(cc.clusters.all()) == 0 {
			why, keys := cc.whyNoClusters()
			cc.log.Info("No cluster is known, "+why, keys...)
		}
	}), time.Now().Add(noticeAfter))
}

// whyNoClusters returns the rest of the sentence, and keys and values.
func (cc *ClusterCache) whyNoClusters() (string, []any) {
	const ask = "ask for some with Engage, Watch or Declare"
	_, lists := resolver.AsLister(cc.options.Resolver)
	switch {
	case !lists:
		return "and the resolver cannot list any: " + ask, nil
	case !cc.options.Discover:
		return "though the resolver lists clusters: set Options.Discover to have them all, or " + ask, nil
	case !cc.clusters.listing.listed.Load():
		if failure := cc.clusters.listing.failure.Load(); failure != nil {
			return "since the resolver cannot list them", []any{"error", *failure}
		}
		return "and the resolver has not listed any yet", nil
	case len(cc.clusters.listing.clusters()) > 0:
		return "since this replica owns none of those that the resolver lists: is Options.Sharding started?", nil
	}

	const none = "and the resolver lists none: those that appear are taken up"
	if named, ok := cc.options.Resolver.(fmt.Stringer); ok {
		return none, []any{"resolver", named.String()}
	}

	return none, nil
}

// protectedInUse wraps GC.InUse, so that its panics are counted and become
// errors. It returns nil for nil.
func (cc *ClusterCache) protectedInUse(
	inUse func(context.Context, Owner) (bool, error),
) func(context.Context, Owner) (bool, error) {
	if inUse == nil {
		return nil
	}
	return func(ctx context.Context, owner Owner) (used bool, err error) {
		err = cc.calls.Call("GC.InUse", func() (err error) {
			used, err = inUse(ctx, owner)
			return err
		}, "owner", owner.String())
		return used, err
	}
}

// connectionConfig returns what all connections share.
func (cc *ClusterCache) connectionConfig() connection.Config {
	o := &cc.options
	connects := workpool.NewWorkers(o.ConnectConcurrency, cc.spawn)
	probes := workpool.NewWorkers(o.ProbeConcurrency, cc.spawn)
	dials := &dialing{
		ctx:     cc.ctx,
		calls:   cc.calls,
		dial:    o.Dial,
		guarded: guardedDialer(o.DialPolicy),
	}

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
		Dialer:         dials.dialer,
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
