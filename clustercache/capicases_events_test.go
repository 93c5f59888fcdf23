// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
)

// queueOf returns a workqueue for a test to read. It is shut down with the
// test.
func queueOf[request comparable](t *testing.T) workqueue.TypedRateLimitingInterface[request] {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[request]())
	t.Cleanup(q.ShutDown)
	return q
}

// listen starts a source of cluster events of the given types, until the test
// ends.
func listen(t *testing.T, cc *clustercache.ClusterCache, types ...clustercache.ClusterEventType) workqueue.TypedRateLimitingInterface[clustercache.ClusterEvent] {
	t.Helper()
	q := queueOf[clustercache.ClusterEvent](t)
	s := clustercache.ClusterSource(cc, func(_ context.Context, e clustercache.ClusterEvent) []clustercache.ClusterEvent {
		if slices.Contains(types, e.Type) {
			return []clustercache.ClusterEvent{e}
		}
		return nil
	})
	require.NoError(t, s.Start(t.Context(), q))
	return q
}

func caseEventsAreDeduplicated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		var seen atomic.Int64
		q := queueOf[reconcile.Request](t)
		s := clustercache.ClusterSource(cc, func(_ context.Context, e clustercache.ClusterEvent) []reconcile.Request {
			seen.Add(1)
			return []reconcile.Request{{NamespacedName: e.Cluster}}
		})
		require.NoError(t, s.Start(t.Context(), q))
		synctest.Wait()
		disconnect(t, cc, api)
		api.live()
		time.Sleep(time.Minute)
		require.GreaterOrEqual(t, seen.Load(), int64(4), "connected, degraded, disconnected, connected")
		require.Equal(t, 1, q.Len())
		r, _ := q.Get()
		require.Equal(t, key("a"), r.NamespacedName)
		q.Done(r)
	})
}

func caseEachSourceIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, "uid-a")
		d := newDirectory()
		cc := start(t, silent(d))
		require.NoError(t, cc.Engage(key("a")))
		synctest.Wait()
		queues := []workqueue.TypedRateLimitingInterface[clustercache.ClusterEvent]{}
		for range 3 {
			queues = append(queues, listen(t, cc, clustercache.Connected))
		}
		d.set(key("a"), api.config())
		time.Sleep(time.Minute)
		for _, q := range queues {
			require.Equal(t, 1, q.Len())
		}
		late := listen(t, cc, clustercache.Connected) // differs: a late source gets the event, too
		synctest.Wait()
		require.Equal(t, 1, late.Len())
	})
}

// caseSourcesWaitForTheirTrouble: differs in that a source selects the changes
// it waits for, not windows of time: Degraded after the first missed probe,
// Disconnected after the threshold, at most 45 s. A source with a window of its
// own delays its requests by the rest of the window, which follows from
// Status.LastLife.
func caseSourcesWaitForTheirTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		early, late, gone := listen(t, cc, clustercache.PhaseChanged), listen(t, cc, clustercache.Disconnected), listen(t, cc, clustercache.Removed)
		synctest.Wait()
		api.die()
		time.Sleep(clustercache.DefaultProbeInterval)
		synctest.Wait()
		require.Equal(t, 1, early.Len())
		require.Zero(t, late.Len())
		time.Sleep(30 * time.Second)
		require.Equal(t, 1, late.Len())
		silence := time.Since(status(t, cc).LastLife)
		require.Greater(t, silence, 30*time.Second)
		require.LessOrEqual(t, silence, 45*time.Second)
		time.Sleep(time.Hour)
		require.Equal(t, 1, early.Len())
		require.Equal(t, 1, late.Len())
		require.Zero(t, gone.Len())
	})
}

// caseStuckSubscriber: one subscriber of each kind never returns from its first
// event.
func caseStuckSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		d := newDirectory()
		cc := start(t, silentWith(d, registry))
		apis := map[string]*fakeAPI{}
		for i := range 5 {
			name := fmt.Sprint(i)
			apis[name] = newFakeAPI(t, "uid-"+name)
			apis[name].put("one", "1", nil)
			d.set(key(name), apis[name].config())
		}
		ctx, cancel := context.WithCancel(t.Context())
		stuck := make(chan struct{})
		var calls atomic.Int64
		block := func() {
			calls.Add(1)
			<-stuck
		}
		subscribers := stuckSubscribers(ctx, t, cc, block)
		flap(t, cc, apis)
		require.EqualValues(t, 4, calls.Load(), "each is in its first event")
		require.InDelta(t, 2, subscribersOf(t, registry), 0)

		cancel()
		close(stuck)
		subscribers()
		synctest.Wait()
		require.Zero(t, subscribersOf(t, registry))
	})
}

// stuckSubscribers starts one of each kind and returns a function that waits
// for those that have a goroutine.
func stuckSubscribers(ctx context.Context, t *testing.T, cc *clustercache.ClusterCache, block func()) func() {
	t.Helper()
	clusters, objects := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(clusters)
		for range cc.ClusterEvents(ctx) {
			block()
		}
	}()
	seq, err := cc.ObjectEvents(ctx, clustercache.ObjectFeed{})
	require.NoError(t, err)
	go func() {
		defer close(objects)
		for range seq {
			block()
		}
	}()
	clusterSource := clustercache.ClusterSource(cc, func(context.Context, clustercache.ClusterEvent) []reconcile.Request {
		block()
		return nil
	})
	objectSource := clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: []client.Object{&corev1.ConfigMap{}}, Watch: true},
		func(context.Context, client.ObjectKey, client.Object) []reconcile.Request {
			block()
			return nil
		})
	require.NoError(t, clusterSource.Start(ctx, queueOf[reconcile.Request](t)))
	require.NoError(t, objectSource.Start(ctx, queueOf[reconcile.Request](t)))
	return func() { <-clusters; <-objects }
}

// flap makes every cluster connect, sync, fail and come back, each at its own
// time.
func flap(t *testing.T, cc *clustercache.ClusterCache, apis map[string]*fakeAPI) {
	t.Helper()
	for name := range apis {
		w, err := cc.Watch(t.Context(), key(name), &corev1.ConfigMap{})
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
		t.Cleanup(w.Release)
	}
	for round := range 10 {
		for name, api := range apis {
			api.die()
			api.put(fmt.Sprintf("round-%d", round), name, nil)
		}
		time.Sleep(45 * time.Second)
		for _, s := range cc.Statuses() {
			require.False(t, s.Connected)
		}
		for _, api := range apis {
			api.live()
		}
		time.Sleep(clustercache.DefaultMaxBackoff + 10*time.Second)
	}
	for name := range apis {
		s, err := cc.Status(key(name))
		require.NoError(t, err)
		require.Equal(t, clustercache.PhaseReady, s.Phase)
		require.Equal(t, 11, s.Connects)
		require.Equal(t, 11, s.Objects)
	}
}

func subscribersOf(t *testing.T, registry prometheus.Gatherer) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "fleetcache_event_subscribers" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.Fail(t, "no such metric")
	return 0
}

// caseReentrance: a lock held during a callback would deadlock here; that hangs
// the bubble, which is reported.
func caseReentrance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, "uid-a")
		api.put("one", "1", nil)
		d := newDirectory()
		d.set(key("a"), api.config())
		var cc *clustercache.ClusterCache
		var calls atomic.Int64
		everything := func() {
			calls.Add(1)
			_ = cc.Engage(key("a"))
			_, _ = cc.Status(key("a"))
			_ = cc.Statuses()
			_ = cc.Clusters()
			_, _ = cc.Client(key("a"))
			_, _ = cc.RESTConfig(key("a"))
			_ = get(t, cc, clustercache.CacheOnly, clustercache.MaxStaleness(time.Hour))
			_ = get(t, cc, clustercache.AutoWatch)
			for _, kind := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}} {
				if w, err := cc.Watch(t.Context(), key("a"), kind); err == nil {
					w.HasSynced()
					_ = w.Status()
					w.Release()
					_ = w.Close(t.Context())
				}
			}
			for range cc.ClusterEvents(t.Context()) {
				break
			}
		}
		o := silent(callingResolver{directory: d, call: func() { everything() }})
		o.Indexes = []clustercache.Index{{GVK: configMap, Field: "x", Values: func(client.Object) []string {
			_, _ = cc.Status(key("a"))
			return []string{"x"}
		}}}
		var err error
		cc, err = clustercache.New(o)
		require.NoError(t, err)
		feed := clustercache.ObjectFeed{Kinds: []client.Object{&corev1.ConfigMap{}}, Watch: true, Clusters: func(client.ObjectKey) bool {
			_, _ = cc.Status(key("a"))
			return true
		}}
		objects := clustercache.ObjectSource(cc, feed, func(context.Context, client.ObjectKey, client.Object) []reconcile.Request {
			everything()
			return nil
		})
		clusters := clustercache.ClusterSource(cc, func(context.Context, clustercache.ClusterEvent) []reconcile.Request {
			everything()
			return nil
		})
		run(t, cc)
		require.NoError(t, objects.Start(t.Context(), queueOf[reconcile.Request](t)))
		require.NoError(t, clusters.Start(t.Context(), queueOf[reconcile.Request](t)))
		everything()
		time.Sleep(time.Minute)
		api.die()
		time.Sleep(time.Minute)
		api.put("one", "2", nil)
		api.live()
		time.Sleep(time.Minute)
		require.Greater(t, calls.Load(), int64(5))
		require.Equal(t, clustercache.PhaseReady, status(t, cc).Phase)
		w := watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		require.NoError(t, get(t, cc, clustercache.CacheOnly))
	})
}

// callingResolver calls the ClusterCache before it answers.
type callingResolver struct {
	*directory

	call func()
}

func (r callingResolver) Resolve(ctx context.Context, key client.ObjectKey) (clustercache.Access, error) {
	r.call()
	return r.directory.Resolve(ctx, key)
}
