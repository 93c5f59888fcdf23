// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"io"
	"log"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// directory is a resolver whose answers the test sets.
type directory struct {
	mu      sync.Mutex
	entries map[client.ObjectKey]func() (clustercache.Access, error)
	news    chan client.ObjectKey
	asked   map[client.ObjectKey]int
}

func newDirectory() *directory {
	return &directory{
		entries: map[client.ObjectKey]func() (clustercache.Access, error){}, news: make(chan client.ObjectKey, 10_000),
		asked: map[client.ObjectKey]int{},
	}
}

func (d *directory) set(key client.ObjectKey, config *rest.Config) {
	d.answer(key, func() (clustercache.Access, error) { return resolver.NewAccess(config) })
}

func (d *directory) fail(key client.ObjectKey, err error) {
	d.answer(key, func() (clustercache.Access, error) { return clustercache.Access{}, err })
}

// setQuietly is set without a notification.
func (d *directory) setQuietly(key client.ObjectKey, config *rest.Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries[key] = func() (clustercache.Access, error) { return resolver.NewAccess(config) }
}

// forget removes a cluster: it is neither listed nor known.
func (d *directory) forget(key client.ObjectKey) {
	d.forgetQuietly(key)
	d.changed(key)
}

// forgetQuietly is forget without a notification.
func (d *directory) forgetQuietly(keys ...client.ObjectKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range keys {
		delete(d.entries, key)
	}
}

// changed reports a change of a cluster.
func (d *directory) changed(key client.ObjectKey) { d.news <- key }

func (d *directory) answer(key client.ObjectKey, f func() (clustercache.Access, error)) {
	d.mu.Lock()
	d.entries[key] = f
	d.mu.Unlock()
	d.changed(key)
}

func (d *directory) timesAsked(key client.ObjectKey) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked[key]
}

func (d *directory) Resolve(_ context.Context, key client.ObjectKey) (clustercache.Access, error) {
	d.mu.Lock()
	f := d.entries[key]
	d.asked[key]++
	d.mu.Unlock()
	if f == nil {
		return clustercache.Access{}, resolver.ErrSecretNotFound
	}
	return f()
}

func (d *directory) Notify(ctx context.Context, changed func(client.ObjectKey)) error {
	for {
		select {
		case key := <-d.news:
			changed(key)
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *directory) Clusters(context.Context) ([]client.ObjectKey, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var keys []client.ObjectKey
	for key := range d.entries {
		keys = append(keys, key)
	}
	return keys, nil
}

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: "fleet", Name: name} }

// start runs a ClusterCache until the test ends.
func start(t *testing.T, o clustercache.Options) *clustercache.ClusterCache {
	t.Helper()
	if o.Logger.GetSink() == nil {
		o.Logger = logr.FromSlogHandler(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	cc, err := clustercache.New(o)
	require.NoError(t, err)
	run(t, cc)
	return cc
}

func run(t *testing.T, cc *clustercache.ClusterCache) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cc.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

// clusterFeed collects cluster events.
type clusterFeed struct {
	t      *testing.T
	events chan clustercache.ClusterEvent
}

func follow(t *testing.T, cc *clustercache.ClusterCache) *clusterFeed {
	t.Helper()
	f := &clusterFeed{t: t, events: make(chan clustercache.ClusterEvent, 10000)}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for e := range cc.ClusterEvents(ctx) {
			f.events <- e
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return f
}

// wait returns the next event of one of the types for the cluster, and drops
// those before it.
func (f *clusterFeed) wait(cluster client.ObjectKey, types ...clustercache.ClusterEventType) clustercache.ClusterEvent {
	f.t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		select {
		case e := <-f.events:
			for _, t := range types {
				if e.Cluster == cluster && e.Type == t {
					return e
				}
			}
		case <-limit.C:
			require.FailNow(f.t, "event did not come", "%s of %s", types, cluster)
		}
	}
}

// objectFeed collects object events.
type objectFeed struct {
	t      *testing.T
	events chan clustercache.ObjectEvent
}

func followObjects(t *testing.T, cc *clustercache.ClusterCache, spec clustercache.ObjectFeed) *objectFeed {
	t.Helper()
	f := &objectFeed{t: t, events: make(chan clustercache.ObjectEvent, 10000)}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	seq, err := cc.ObjectEvents(ctx, spec)
	require.NoError(t, err)
	done.Go(func() {
		for e := range seq {
			f.events <- e
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return f
}

// wait returns the first event that matches, and those that came before it.
func (f *objectFeed) wait(want func(clustercache.ObjectEvent) bool) (clustercache.ObjectEvent, []clustercache.ObjectEvent) {
	f.t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	var before []clustercache.ObjectEvent
	for {
		select {
		case e := <-f.events:
			if want(e) {
				return e, before
			}
			before = append(before, e)
		case <-limit.C:
			require.FailNow(f.t, "event did not come", "before: %v", before)
		}
	}
}

// waitAll waits until there was an event of each name, and drops the others.
func (f *objectFeed) waitAll(names ...string) {
	f.t.Helper()
	missing := map[string]bool{}
	for _, name := range names {
		missing[name] = true
	}
	f.wait(func(e clustercache.ObjectEvent) bool {
		delete(missing, e.Object().GetName())
		return len(missing) == 0
	})
}

func named(cluster client.ObjectKey, name string) func(clustercache.ObjectEvent) bool {
	return func(e clustercache.ObjectEvent) bool { return e.Cluster == cluster && e.Object().GetName() == name }
}

// discardLog is for servers whose error logs are expected.
var discardLog = log.New(io.Discard, "", 0)
