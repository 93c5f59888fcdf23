// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

func TestNewNamesEveryBadOption(t *testing.T) {
	_, err := clustercache.New(clustercache.Options{
		ReadMode: 9, ProbePath: "readyz", ProbeInterval: -1, FailureThreshold: -1, MaxBackoff: time.Millisecond,
		QPS:       math.NaN(),
		Informers: informerpool.Options{OnRollback: func(informerpool.Key) {}}, Indexes: []clustercache.Index{{}},
	})
	for _, field := range []string{
		"Resolver", "ReadMode", "ProbePath", "ProbeInterval", "FailureThreshold", "MaxBackoff", "QPS",
		"Informers.OnRollback", "Indexes[0].GVK", "Indexes[0].Field", "Indexes[0].Values",
	} {
		require.ErrorContains(t, err, "option "+field+":")
	}
	_, err = clustercache.New(clustercache.Options{
		Resolver:  fleettest.NewDirectory(),
		Informers: informerpool.Options{PageSize: -1},
	})
	e, ok := errors.AsType[*clustercache.OptionError](err)
	require.True(t, ok)
	require.Equal(t, "Informers", e.Field)
}

// TestHazardDurationWithoutAUnit: ProbeInterval: 10 sent 33,000 requests in a
// third of a second, whatever QPS.
func TestHazardDurationWithoutAUnit(t *testing.T) {
	for _, set := range []func(*clustercache.Options){
		func(o *clustercache.Options) { o.ProbeInterval = 10 },
		func(o *clustercache.Options) { o.ProbeTimeout = 5 },
		func(o *clustercache.Options) { o.RequestTimeout = 30 },
		func(o *clustercache.Options) { o.StaleAfter = 180 },
		func(o *clustercache.Options) { o.IdleTimeout = 600 },
		func(o *clustercache.Options) { o.ResolveInterval = 60 },
		func(o *clustercache.Options) { o.Grace = 30 },
		func(o *clustercache.Options) { o.GC.Grace = 30 },
		func(o *clustercache.Options) { o.RetryInterval = 10 },
		func(o *clustercache.Options) { o.MaxBackoff = 180 },
	} {
		o := clustercache.Options{Resolver: fleettest.NewDirectory()}
		set(&o)
		_, err := clustercache.New(o)
		require.ErrorContains(t, err, "nanoseconds")
	}

	o := clustercache.Options{Resolver: fleettest.NewDirectory(), StaleAfter: time.Millisecond,
		IdleTimeout: time.Millisecond}
	_, err := clustercache.New(o)
	require.NoError(t, err, "no watch is trusted, and nothing is kept: a choice that floods nobody")
}

func TestUseBeforeStartBeginsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		cc, err := clustercache.New(fleettest.Silent(d))
		require.NoError(t, err)
		require.False(t, cc.NeedLeaderElection())
		w := fleettest.Watch(t, cc)
		objects := fleettest.FollowObjects(t, cc, events.Selection{})
		clusters := fleettest.Follow(t, cc)
		require.ErrorIs(t, fleettest.Get(t, cc), clustercache.ErrNotConnected)
		time.Sleep(time.Hour)
		require.Zero(t, api.Total())
		fleettest.Run(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		objects.WaitAll("one")
		clusters.Wait(fleettest.Key("a"), events.Connected)
	})
}

func TestStopTakesNoTimeAndEverythingIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, good := fleettest.NewAPI(t, "uid-hung"), fleettest.NewAPI(t, "uid-good")
		hung.FailWith(-1, "/")
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("hung"), hung.Config())
		d.Set(fleettest.Key("a"), good.Config())
		cc, err := clustercache.New(fleettest.Silent(d))
		require.NoError(t, err)
		stop := fleettest.Run(t, cc)
		require.NoError(t, cc.Cluster(fleettest.Key("hung")).Engage())
		w := fleettest.Watch(t, cc)
		waiting := make(chan error, 1)
		other, err := cc.Cluster(fleettest.Key("hung")).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		go func() { waiting <- other.WaitForSync(context.Background()) }()
		require.NoError(t, w.WaitForSync(t.Context()))
		require.ErrorIs(t, cc.Start(t.Context()), clustercache.ErrStarted)
		begin := time.Now()
		stop()
		require.Zero(t, time.Since(begin))
		require.ErrorIs(t, <-waiting, clustercache.ErrClosed)
		for _, err := range []error{
			fleettest.Get(t, cc),
			fleettest.Get(t, cc, clustercache.AutoWatch),
			w.WaitForSync(t.Context()),
			cc.Cluster(fleettest.Key("b")).Engage(),
			second(cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.ConfigMap{})),
			second(cc.Cluster(fleettest.Key("a")).Client()),
			controller.ClusterSource(cc,
				func(context.Context, events.Cluster) []string { return nil }).Start(t.Context(), nil),
		} {
			require.ErrorIs(t, err, clustercache.ErrClosed)
		}
		require.False(t, w.HasSynced())
		w.Release()
		w.Release()
		require.NoError(t, w.Close(t.Context()))
		for range cc.ClusterEvents(t.Context()) { // ends by itself
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestObjectSourceQueuesReplayWithLowPriorityAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		fleettest.Synced(t, cc, api)
		q := priorityqueue.New[reconcile.Request]("test")
		defer q.ShutDown()
		ctx, cancel := context.WithCancel(t.Context())
		s := controller.ObjectSource(cc, events.Selection{Kinds: []client.Object{&corev1.ConfigMap{}}},
			func(_ context.Context, cluster client.ObjectKey, o client.Object) []reconcile.Request {
				require.Equal(t, fleettest.Key("a"), cluster)
				return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
			})
		require.NoError(t, s.Start(ctx, q))
		synctest.Wait()
		for range 2 {
			r, priority, _ := q.GetWithPriority()
			require.Equal(t, handler.LowPriority, priority)
			q.Done(r)
		}
		api.Put("three", "3", nil)
		synctest.Wait()
		r, priority, _ := q.GetWithPriority()
		require.Equal(t, "three", r.Name)
		require.Zero(t, priority)
		q.Done(r)
		cancel()
		synctest.Wait()
		api.Put("four", "4", nil)
		synctest.Wait()
		require.Zero(t, q.Len())
	})
}

func TestClusterSourceReplaysAndFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		q := workqueue.NewTypedRateLimitingQueue(
			workqueue.DefaultTypedControllerRateLimiter[events.ClusterType]())
		defer q.ShutDown()
		ctx, cancel := context.WithCancel(t.Context())
		mapping := func(_ context.Context, e events.Cluster) []events.ClusterType {
			return []events.ClusterType{e.Type}
		}
		s := controller.ClusterSource(cc, mapping)
		require.NoError(t, s.Start(ctx, q))
		synctest.Wait()
		next := func() events.ClusterType {
			e, _ := q.Get()
			q.Done(e)
			return e
		}
		require.Equal(t, events.Connected, next())
		api.Die()
		time.Sleep(15 * time.Second)
		require.Equal(t, events.PhaseChanged, next(), "Degraded")
		time.Sleep(30 * time.Second)
		require.Equal(t, events.Disconnected, next())
		cancel()
	})
}

func TestFeedThatWatchesCoversClustersThatComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fleettest.NewDirectory()
		o := fleettest.Silent(d)
		o.Discover = true
		cc := fleettest.Start(t, o)
		ctx, cancel := context.WithCancel(t.Context())
		seen := make(chan string, 100)
		seq, err := cc.ObjectEvents(ctx,
			events.Selection{Kinds: []client.Object{&corev1.ConfigMap{}}, Watch: true})
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for e := range seq {
				seen <- e.Cluster.Name + " " + string(e.Type) + " " + e.Object().GetName()
			}
		}()
		for _, name := range []string{"a", "b"} {
			api := fleettest.NewAPI(t, name)
			api.Put("in-"+name, "1", nil)
			d.Set(fleettest.Key(name), api.Config())
			require.Equal(t, name+" Added in-"+name, <-seen)
		}
		require.Equal(t, []client.ObjectKey{fleettest.Key("a"), fleettest.Key("b")}, cc.Clusters())
		cancel()
		<-done
		synctest.Wait()
		require.Zero(t, fleettest.Status(t, cc).Watches)
	})
}

func TestSlowSubscriberGetsAlternatingEventsAndTheLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var types []events.ClusterType
		var last time.Time
		for e := range cc.ClusterEvents(ctx) {
			if e.Type == events.PhaseChanged {
				continue
			}
			types = append(types, e.Type)
			last = e.Time
			if len(types) == 1 { // asleep while the cluster goes and comes ten times
				for range 10 {
					api.Die()
					time.Sleep(time.Minute)
					api.Live()
					time.Sleep(time.Minute)
				}
			}
			if len(types) == 3 {
				break
			}
		}
		require.Equal(t, []events.ClusterType{
			events.Connected, events.Disconnected, events.Connected,
		}, types)
		require.Equal(t, 11, fleettest.Status(t, cc).Connects)
		require.Equal(t, fleettest.Status(t, cc).Since, last, "what was undone before its turn is not told")
	})
}

func TestTwoInstancesInOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		d, e := fleettest.NewDirectory(), fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		e.Set(fleettest.Key("a"), api.Config())
		one, two := fleettest.Start(t, fleettest.Silent(d)), fleettest.Start(t, fleettest.Silent(e))
		require.NoError(t, fleettest.Watch(t, one).WaitForSync(t.Context()))
		require.NoError(t, fleettest.Watch(t, two).WaitForSync(t.Context()))
	})
}
