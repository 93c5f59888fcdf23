// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/timetable"
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

// NeedLeaderElection returns false: caches are warm on replicas that wait to
// become the leader.
func (cc *ClusterCache) NeedLeaderElection() bool { return false }

// Start connects to the clusters and keeps them connected until ctx ends. It
// returns when every goroutine has ended, and can be called once. Afterwards
// everything fails with [ErrClosed]. A function of yours that still runs a
// second after ctx ended (a handler, a mapping, a Resolver that ignores its
// context) is not waited for any longer: the error names it, and its goroutine
// is left behind.
func (cc *ClusterCache) Start(ctx context.Context) error {
	cc.mu.Lock()
	if cc.mu.started {
		cc.mu.Unlock()
		return ErrStarted
	}
	cc.mu.started = true
	cc.mu.Unlock()

	cc.unstarted.close()

	if err := cc.metrics.register(cc.options.MetricsRegisterer, cc.options.Name); err != nil {
		cc.log.Error(err, "Metrics are not exported")
	}
	cc.spawn(func() { cc.timers.Run(cc.ctx) })
	cc.noticeNoClusters()
	cc.spawn(func() { _ = cc.declared.collector.Run(cc.ctx) }) // it fails only if it already runs
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
	for _, c := range cc.all() {
		c.conn.Drain()
	}
	cc.log.Info("Started")
	<-ctx.Done()

	return cc.stop(context.WithoutCancel(ctx))
}

// stop ends everything and waits for it.
func (cc *ClusterCache) stop(ctx context.Context) error {
	cc.mu.Lock()
	cc.mu.stopped = true
	cc.mu.Unlock()

	cc.cancel(ErrClosed)
	cc.metrics.unregister()
	cc.events.close()

	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	var closing sync.WaitGroup
	for _, c := range cc.all() {
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

// Protect calls f, a function that an operator gave to an adapter such as
// clustercache/multicluster, and returns its error. If f panics, or ends its
// goroutine as t.FailNow does, Protect returns an error that names the
// callback, logs it with the keys and values, and counts it in
// fleetcache_callback_panics_total. If f still runs when Start ends, the error
// of Start names it.
func (cc *ClusterCache) Protect(callback string, f func() error, keysAndValues ...any) error {
	return cc.calls.Call(callback, f, keysAndValues...)
}

// notified passes on the resolver's reports of changes until it stops
// reporting.
func (cc *ClusterCache) notified(n Notifier) {
	for cc.ctx.Err() == nil {
		err := cc.calls.Call("Resolver.Notify", func() error { return n.Notify(cc.ctx, cc.changed) })
		if cc.ctx.Err() != nil {
			return
		}
		cc.log.Error(err, "Resolver tells of no changes any more; asking it again")
		cc.sleep(cc.options.RetryInterval)
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

	if c, err := cc.engage(key, false); err == nil { // it fails only after Stop
		c.discovered.Store(true)
	}
}

// relistPause is how long a list waits for further reasons to list: a fleet
// that is deleted is not listed once for each cluster.
const relistPause = 100 * time.Millisecond

// relist reads the resolver's list again, if it has one.
func (cc *ClusterCache) relist() {
	select {
	case cc.discovery.relisting <- struct{}{}:
	default:
	}
}

// discovery is the state of Options.Discover.
type discovery struct {
	relisting  chan struct{} // one slot: the resolver's list must be read again
	rechecking chan struct{} // one slot: a forgotten cluster may be back
	forgotten  forgotten
	listed     atomic.Bool // the resolver has listed its clusters at least once
}

// discover makes every listed cluster known, and queries the resolver about
// those that are no longer listed. A list that fails changes nothing about any
// cluster.
func (cc *ClusterCache) discover() {
	lister, _ := resolver.AsLister(cc.options.Resolver)
	_, notifies := resolver.AsNotifier(cc.options.Resolver)
	for cc.ctx.Err() == nil {
		began := time.Now()
		keys, err := cc.listClusters(lister)
		wait := cc.options.RetryInterval
		switch {
		case err == nil:
			cc.compare(keys, began)
			cc.discovery.listed.Store(true)
			if notifies { // it reports the rest
				wait = cc.options.ResolveInterval
			}
		case cc.ctx.Err() == nil:
			cc.log.Error(err, "Clusters cannot be listed")
		}

		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-due:
		case <-cc.discovery.relisting:
			cc.sleep(relistPause)
		case <-cc.discovery.rechecking:
		case <-cc.ctx.Done():
		}
	}
}

// listClusters returns the resolver's list.
func (cc *ClusterCache) listClusters(lister Lister) (keys []client.ObjectKey, err error) {
	err = cc.calls.Call("Resolver.Clusters", func() (err error) {
		keys, err = lister.Clusters(cc.ctx)
		return err
	})
	return keys, err
}

// compare makes the listed clusters known, and notes which of the discovered
// clusters are no longer listed. The resolver's answer for each of them
// decides, unless it is "not yet": see attempt.ask.
//
// A list that began before a cluster was forgotten may still contain it: the
// next list decides.
func (cc *ClusterCache) compare(keys []client.ObjectKey, began time.Time) {
	now := make(map[client.ObjectKey]bool, len(keys))
	for _, key := range keys {
		if cc.discovery.forgotten.since(key, began) {
			cc.relist()
			continue
		}
		cc.discovery.forgotten.drop(key)
		now[key] = true
		c, err := cc.engage(key, false)
		if err != nil {
			return // only after the end
		}
		c.discovered.Store(true)
	}

	for _, c := range cc.all() {
		if c.discovered.Load() && c.unlisted.Swap(!now[c.key]) == now[c.key] {
			c.conn.Changed()
		}
	}
}

func (cc *ClusterCache) sleep(d time.Duration) { timetable.Sleep(cc.ctx, d) }
