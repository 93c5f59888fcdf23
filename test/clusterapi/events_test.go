// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"context"
	"fmt"
	"net/http"
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
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// listen starts a source of cluster events of the given types, until the test
// ends.
func listen(t *testing.T, cc *clustercache.ClusterCache,
	types ...events.ClusterType) workqueue.TypedRateLimitingInterface[events.Cluster] {
	t.Helper()
	return listenWith(t, cc, controller.ClusterSourceOptions{
		Filter: func(e events.Cluster) bool { return slices.Contains(types, e.Type) },
	})
}

func listenWith(t *testing.T, cc *clustercache.ClusterCache,
	o controller.ClusterSourceOptions) workqueue.TypedRateLimitingInterface[events.Cluster] {
	t.Helper()
	q := fleettest.QueueOf[events.Cluster](t)
	s := controller.ClusterSource(cc, func(_ context.Context,
		e events.Cluster) []events.Cluster {
		return []events.Cluster{e}
	}, o)
	require.NoError(t, s.Start(t.Context(), q))
	return q
}

func caseEventsAreDeduplicated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		var seen atomic.Int64
		q := fleettest.QueueOf[reconcile.Request](t)
		s := controller.ClusterSource(cc, func(_ context.Context, e events.Cluster) []reconcile.Request {
			seen.Add(1)
			return []reconcile.Request{{NamespacedName: e.Cluster}}
		})
		require.NoError(t, s.Start(t.Context(), q))
		synctest.Wait()
		fleettest.Disconnect(t, cc, api)
		api.Live()
		time.Sleep(time.Minute)
		require.GreaterOrEqual(t, seen.Load(), int64(4), "connected, degraded, disconnected, connected")
		require.Equal(t, 1, q.Len())
		r, _ := q.Get()
		require.Equal(t, fleettest.Key("a"), r.NamespacedName)
		q.Done(r)
	})
}

func caseEachSourceIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		d := fleettest.NewDirectory()
		cc := fleettest.Start(t, fleettest.Silent(d))
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		synctest.Wait()
		queues := []workqueue.TypedRateLimitingInterface[events.Cluster]{}
		for range 3 {
			queues = append(queues, listen(t, cc, events.Connected))
		}
		d.Set(fleettest.Key("a"), api.Config())
		time.Sleep(time.Minute)
		for _, q := range queues {
			require.Equal(t, 1, q.Len())
		}
		late := listen(t, cc, events.Connected) // differs: a late source gets the event, too
		synctest.Wait()
		require.Equal(t, 1, late.Len())
	})
}

// caseSourcesWaitForTheirTrouble: a source selects the changes it waits for:
// Degraded after the first missed probe, Disconnected after the threshold, at
// most 45 s, or a silence of a length of its own.
func caseSourcesWaitForTheirTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		early, late, gone := listen(t, cc, events.PhaseChanged), listen(t, cc, events.Disconnected),
			listen(t, cc, events.Removed)
		silent := map[time.Duration]workqueue.TypedRateLimitingInterface[events.Cluster]{}
		for _, window := range []time.Duration{20 * time.Second, time.Minute, 2 * time.Hour} {
			silent[window] = listenWith(t, cc, controller.ClusterSourceOptions{
				Types:     []events.ClusterType{events.Silent},
				SilentFor: []time.Duration{window},
			})
		}
		synctest.Wait()
		api.FailWith(http.StatusServiceUnavailable, "")
		time.Sleep(probeInterval)
		synctest.Wait()
		require.Equal(t, 1, early.Len())
		require.Zero(t, late.Len())
		time.Sleep(30 * time.Second)
		require.Equal(t, 1, late.Len())
		silence := time.Since(fleettest.Status(t, cc).LastLife)
		require.Greater(t, silence, 30*time.Second)
		require.LessOrEqual(t, silence, 45*time.Second)
		require.Equal(t, 1, silent[20*time.Second].Len())
		require.Zero(t, silent[time.Minute].Len())
		time.Sleep(time.Hour)
		require.Equal(t, 1, silent[20*time.Second].Len())
		require.Equal(t, 1, silent[time.Minute].Len())
		require.Zero(t, silent[2*time.Hour].Len())
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
		d := fleettest.NewDirectory()
		cc := fleettest.Start(t, fleettest.SilentWith(d, registry))
		apis := map[string]*fleettest.API{}
		for i := range 5 {
			name := fmt.Sprint(i)
			apis[name] = fleettest.NewAPI(t, "uid-"+name)
			apis[name].Put("one", "1", nil)
			d.Set(fleettest.Key(name), apis[name].Config())
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
		require.Equal(t, 4, fleettest.Subscriptions(t, cc))

		cancel()
		close(stuck)
		subscribers()
		synctest.Wait()
		require.Zero(t, fleettest.Subscriptions(t, cc))
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
	seq, err := cc.ObjectEvents(ctx, events.Selection{})
	require.NoError(t, err)
	go func() {
		defer close(objects)
		for range seq {
			block()
		}
	}()
	clusterSource := controller.ClusterSource(cc, func(context.Context,
		events.Cluster) []reconcile.Request {
		block()
		return nil
	})
	objectSource := controller.ObjectSource(cc,
		events.Selection{Kinds: []client.Object{&corev1.ConfigMap{}}, Watch: true},
		func(context.Context, client.ObjectKey, client.Object) []reconcile.Request {
			block()
			return nil
		})
	require.NoError(t, clusterSource.Start(ctx, fleettest.QueueOf[reconcile.Request](t)))
	require.NoError(t, objectSource.Start(ctx, fleettest.QueueOf[reconcile.Request](t)))
	return func() { <-clusters; <-objects }
}

// flap makes every cluster connect, sync, fail and come back, each at its own
// time.
func flap(t *testing.T, cc *clustercache.ClusterCache, apis map[string]*fleettest.API) {
	t.Helper()
	for name := range apis {
		w, err := cc.Cluster(fleettest.Key(name)).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
		t.Cleanup(w.Release)
	}
	for round := range 10 {
		for name, api := range apis {
			api.Die()
			api.Put(fmt.Sprintf("round-%d", round), name, nil)
		}
		time.Sleep(45 * time.Second)
		for _, s := range cc.Statuses() {
			require.False(t, s.Connected)
		}
		for _, api := range apis {
			api.Live()
		}
		time.Sleep(maxBackoff + 10*time.Second)
	}
	for name := range apis {
		s, err := cc.Cluster(fleettest.Key(name)).Status()
		require.NoError(t, err)
		require.Equal(t, status.PhaseReady, s.Phase)
		require.Equal(t, 11, s.Connects)
		require.Equal(t, 11, s.Objects)
	}
}

// caseReentrance: a lock held during a callback would deadlock here; that hangs
// the bubble, which is reported.
func caseReentrance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		var cc *clustercache.ClusterCache
		var calls atomic.Int64
		everything := func() {
			calls.Add(1)
			_ = cc.Cluster(fleettest.Key("a")).Engage()
			_, _ = cc.Cluster(fleettest.Key("a")).Status()
			_ = cc.Statuses()
			_ = cc.Clusters()
			_, _ = cc.Cluster(fleettest.Key("a")).Client()
			_, _ = cc.Cluster(fleettest.Key("a")).RESTConfig()
			_ = fleettest.Get(t, cc, clustercache.CacheOnly, clustercache.MaxStaleness(time.Hour))
			_ = fleettest.Get(t, cc, clustercache.AutoWatch)
			for _, kind := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}} {
				if w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), kind); err == nil {
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
		o := fleettest.Silent(callingResolver{Directory: d, call: func() { everything() }})
		o.Indexes = []clustercache.Index{{GVK: fleettest.ConfigMap, Field: "x", Values: func(client.Object) []string {
			_, _ = cc.Cluster(fleettest.Key("a")).Status()
			return []string{"x"}
		}}}
		var err error
		cc, err = clustercache.New(o)
		require.NoError(t, err)
		selection := events.Selection{Kinds: []client.Object{
			&corev1.ConfigMap{}}, Watch: true, Clusters: func(client.ObjectKey) bool {
			_, _ = cc.Cluster(fleettest.Key("a")).Status()
			return true
		}}
		objects := controller.ObjectSource(cc, selection, func(context.Context, client.ObjectKey,
			client.Object) []reconcile.Request {
			everything()
			return nil
		})
		clusters := controller.ClusterSource(cc, func(context.Context,
			events.Cluster) []reconcile.Request {
			everything()
			return nil
		})
		fleettest.Run(t, cc)
		require.NoError(t, objects.Start(t.Context(), fleettest.QueueOf[reconcile.Request](t)))
		require.NoError(t, clusters.Start(t.Context(), fleettest.QueueOf[reconcile.Request](t)))
		everything()
		time.Sleep(time.Minute)
		api.Die()
		time.Sleep(time.Minute)
		api.Put("one", "2", nil)
		api.Live()
		time.Sleep(time.Minute)
		require.Greater(t, calls.Load(), int64(5))
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		w := fleettest.Watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly))
	})
}

// callingResolver calls the ClusterCache before it answers.
type callingResolver struct {
	*fleettest.Directory

	call func()
}

func (r callingResolver) Resolve(ctx context.Context, key client.ObjectKey) (resolver.Access, error) {
	r.call()
	return r.Directory.Resolve(ctx, key)
}
