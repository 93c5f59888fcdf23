// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

var (
	_ manager.Runnable               = (*ClusterCache)(nil)
	_ manager.LeaderElectionRunnable = (*ClusterCache)(nil)
)

// stopTimeout bounds how long Start waits at its end for functions of the user
// that are still running. Everything of our own ends at once.
const stopTimeout = time.Second

// errStillRunning indicates that the end did not wait any longer for a function
// of the user.
var errStillRunning = errors.New("still running at the end")

// NeedLeaderElection is false: caches are warm on replicas that wait to become
// the leader.
func (cc *ClusterCache) NeedLeaderElection() bool { return false }

// Start connects and keeps connected until ctx ends. It returns when every
// goroutine has ended; it can be called once. Everything fails with [ErrClosed]
// afterwards. A function of yours that is still running a second after ctx
// ended (a handler, a mapping, a Resolver that does not heed its context) is
// not waited for any longer: the error names it, and its goroutine is left
// behind.
func (cc *ClusterCache) Start(ctx context.Context) error {
	cc.life.Lock()
	if cc.started {
		cc.life.Unlock()
		return ErrStarted
	}
	cc.started = true
	cc.life.Unlock()
	cc.unstarted.close()

	if err := cc.metrics.register(cc.options.MetricsRegisterer, cc.options.Name); err != nil {
		cc.log.Error(err, "Metrics are not exported")
	}
	cc.spawn(func() { cc.timers.Run(cc.ctx) })
	cc.noticeNoClusters()
	cc.spawn(func() { _ = cc.declared.collector.Run(cc.ctx) }) // it fails only if it runs already
	if n, _ := resolver.AsNotifier(cc.options.Resolver); n != nil {
		cc.spawn(func() { cc.notified(n) })
	}
	if cc.options.Discover {
		cc.spawn(cc.discover)
	}
	// What was posted before waits in mailboxes. The flag comes first: a
	// cluster made after the loop looked sees it.
	cc.live.Store(true)
	close(cc.running)
	for _, c := range cc.all() {
		c.drain()
	}
	cc.log.Info("Started")
	<-ctx.Done()
	return cc.stop(context.WithoutCancel(ctx))
}

// stop ends everything and waits for it.
func (cc *ClusterCache) stop(ctx context.Context) error {
	cc.life.Lock()
	cc.stopped = true
	cc.life.Unlock()
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
		cc.underWay.wait(ctx)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	late := cc.underWay.String()
	cc.log.Info("Stopped")
	switch {
	case late != "":
		return fmt.Errorf("%s: %w", late, errStillRunning)
	case err != nil:
		return fmt.Errorf("a handler: %w: %w", errStillRunning, err)
	}
	return nil
}

// spawn starts a goroutine that Start waits for, unless that is over.
func (cc *ClusterCache) spawn(f func()) bool {
	cc.life.Lock()
	defer cc.life.Unlock()
	if cc.stopped {
		return false
	}
	cc.tasks.Go(f)
	return true
}

// notified passes on what the resolver tells, for as long as it tells.
func (cc *ClusterCache) notified(n Notifier) {
	for cc.ctx.Err() == nil {
		err := cc.call("Resolver.Notify", func() error { return n.Notify(cc.ctx, cc.changed) })
		if cc.ctx.Err() != nil {
			return
		}
		cc.log.Error(err, "Resolver tells of no changes any more; asking it again")
		cc.sleep(cc.options.RetryInterval)
	}
}

// changed is told that the resolver's answer for a cluster may be another.
func (cc *ClusterCache) changed(key client.ObjectKey) {
	c := cc.find(key)
	if c != nil && c.post(message{Event: phase.Event{Kind: phase.Changed}}) {
		return
	}
	if !cc.options.Discover {
		return
	}
	if cc.forgotten.since(key, time.Now().Add(-forgottenFor)) {
		select { // the rest of its removal, unless the list has it again
		case cc.rechecking <- struct{}{}:
		default:
		}
		return
	}
	if c, err := cc.engage(key, false); err == nil { // it fails only after the end
		c.discovered.Store(true)
	}
}

// relistPause is how long a list waits for more reasons to make it: a fleet
// that is deleted is not listed once for each cluster.
const relistPause = 100 * time.Millisecond

// relist has the resolver's list read again, if there is one.
func (cc *ClusterCache) relist() {
	select {
	case cc.relisting <- struct{}{}:
	default:
	}
}

// discover makes every listed cluster known, and asks the resolver about those
// that are not listed any more. A list that fails says nothing about any
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
			cc.listed.Store(true)
			if notifies { // it tells the rest
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
		case <-cc.relisting:
			cc.sleep(relistPause)
		case <-cc.rechecking:
		case <-cc.ctx.Done():
		}
	}
}

// listClusters asks for the resolver's list.
func (cc *ClusterCache) listClusters(lister Lister) (keys []client.ObjectKey, err error) {
	err = cc.call("Resolver.Clusters", func() (err error) {
		keys, err = lister.Clusters(cc.ctx)
		return err
	})
	return keys, err
}

// compare makes the listed clusters known, and notes which of those that are
// known by themselves are not listed any more. The resolver has the last word
// on them, unless that is "not yet": see attempt.ask.
//
// A list that began before a cluster was forgotten may still have it: another
// one decides.
func (cc *ClusterCache) compare(keys []client.ObjectKey, began time.Time) {
	now := make(map[client.ObjectKey]bool, len(keys))
	for _, key := range keys {
		if cc.forgotten.since(key, began) {
			cc.relist()
			continue
		}
		cc.forgotten.drop(key)
		now[key] = true
		c, err := cc.engage(key, false)
		if err != nil {
			return // only after the end
		}
		c.discovered.Store(true)
	}
	for _, c := range cc.all() {
		if c.discovered.Load() && c.unlisted.Swap(!now[c.key]) == now[c.key] {
			c.post(message{Event: phase.Event{Kind: phase.Changed}})
		}
	}
}

func (cc *ClusterCache) sleep(d time.Duration) { pause(cc.ctx, d) }
