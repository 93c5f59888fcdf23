// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

func caseWatchRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		require.Zero(t, fleettest.Status(t, cc).Watches)
		w := fleettest.Watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		s := fleettest.Status(t, cc)
		require.Equal(t, 1, s.Watches)
		require.Equal(t, 1, s.Informers)
		require.Equal(t, 1, s.Synced)
		require.Zero(t, s.Unmapped)
		require.Equal(t, 1, w.Status().References)
		require.Equal(t, fleettest.ConfigMap, w.GVK())
		require.Equal(t, 1, api.Count("stream /api/v1/configmaps"))
	})
}

// caseWatchTwice: differs in that each call returns a watch of its own, so
// callers of the same kind need not agree on a name, and each can release its
// watch alone. A name cannot stand for two kinds by mistake, because there are
// no names.
func caseWatchTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		first, second := fleettest.Watch(t, cc), fleettest.Watch(t, cc)
		require.NoError(t, first.WaitForSync(t.Context()))
		before := api.Total()
		third, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), clustercache.Kind(fleettest.ConfigMap))
		require.NoError(t, err)
		require.True(t, third.HasSynced())
		require.Equal(t, before, api.Total())
		s := fleettest.Status(t, cc)
		require.Equal(t, 1, s.Watches)
		require.Equal(t, 1, s.Informers)
		require.Equal(t, 3, first.Status().References)

		first.Release()
		first.Release()
		second.Release()
		require.Equal(t, 1, third.Status().References)
		time.Sleep(time.Hour)
		require.True(t, third.HasSynced())
		third.Release()
		time.Sleep(time.Minute)
		require.Zero(t, fleettest.Status(t, cc).Informers)
	})
}

// caseHandleKeptAcrossDisconnect: differs in that the cache can still be read
// on request (CacheOnly), with an Origin that shows its age.
func caseHandleKeptAcrossDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		kept, err := cc.Cluster(fleettest.Key("a")).Client()
		require.NoError(t, err)
		w := fleettest.Watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		read := func(opts ...client.GetOption) (string, error) {
			o := &corev1.ConfigMap{}
			err := kept.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, o, opts...)
			return o.Data["value"], err
		}
		_, err = read()
		require.NoError(t, err)

		lost := time.Now()
		fleettest.Disconnect(t, cc, api)
		api.Put("one", "changed meanwhile", nil)
		for _, opts := range [][]client.GetOption{nil, {clustercache.CacheOnly}, {clustercache.AutoWatch},
			{clustercache.MaxStaleness(time.Hour)}} {
			_, err = read(opts...)
			require.ErrorIs(t, err, clustercache.ErrNotConnected)
		}
		origin := clustercache.Origin{}
		value, err := read(clustercache.CacheOnly, clustercache.MaxStaleness(time.Hour), &origin)
		require.NoError(t, err)
		require.Equal(t, "1", value)
		require.False(t, origin.Connected)
		require.LessOrEqual(t, origin.LastSeen, lost)
		_, err = read(clustercache.CacheOnly, clustercache.MaxStaleness(30*time.Second))
		require.ErrorIs(t, err, clustercache.ErrStale)
		time.Sleep(staleAfter)
		require.True(t, fleettest.Status(t, cc).Stale)

		api.Live()
		time.Sleep(time.Minute)
		value, err = read(clustercache.CacheOnly, &origin)
		require.NoError(t, err)
		require.Equal(t, "changed meanwhile", value)
		require.True(t, origin.Connected)
		require.False(t, fleettest.Status(t, cc).Stale)
	})
}

// goroutines counts the goroutines of the bubble; the process has others, whose
// number varies.
func goroutines() int {
	synctest.Wait()
	stacks := make([]byte, 1<<20)
	for n := runtime.Stack(stacks, true); n == len(stacks); n = runtime.Stack(stacks, true) {
		stacks = make([]byte, 2*len(stacks))
	}
	return bytes.Count(stacks, []byte("synctest bubble"))
}

func caseUnsyncedWatchLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		open := api.Connections
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		synctest.Wait()
		before := goroutines()

		api.FailWith(-1, "/configmaps")
		hung := fleettest.Watch(t, cc)
		unserved := &metav1.PartialObjectMetadata{}
		unserved.SetGroupVersionKind(fleettest.Owner("").GVK)
		missing, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), unserved)
		require.NoError(t, err)
		first := 0
		for i := range 30 {
			synctest.Wait()
			require.True(t, fleettest.Status(t, cc).Connected)
			time.Sleep(10 * time.Second)
			now := goroutines() - 3*open() // how many connections are idle is chance
			if i == 0 {
				first = now
			}
			require.LessOrEqual(t, now, first, "goroutines but for the three of each connection")
			api.Die()
			time.Sleep(45 * time.Second)
			require.False(t, fleettest.Status(t, cc).Connected)
			require.Zero(t, open())
			api.Live()
			time.Sleep(31 * time.Second)
		}
		require.False(t, hung.HasSynced())
		require.False(t, missing.HasSynced())
		require.Error(t, missing.Status().LastError)

		api.Die() // disconnected, and held still
		time.Sleep(45 * time.Second)
		api.Live()
		api.FailWith(500, "/readyz") // so that it is probed, and stays disconnected
		require.Eventually(t, func() bool { return api.Count("get /readyz") > 0 }, time.Minute, time.Second)
		rest := api.Total() - api.Count("get /readyz")
		time.Sleep(time.Hour)
		require.Equal(t, rest, api.Total()-api.Count("get /readyz"), "nothing but attempts to connect")

		hung.Release()
		missing.Release()
		cc.Cluster(fleettest.Key("a")).Disengage()
		time.Sleep(time.Minute)
		require.Zero(t, open())
		require.LessOrEqual(t, goroutines(), before)
		total := api.Total()
		time.Sleep(time.Hour)
		require.Equal(t, total, api.Total())
	})
}

// caseDeletedClusterIsForgotten: differs in that the end is reported by the
// events Disconnected and Removed, and in that the cached objects are delivered
// as deletes.
func caseDeletedClusterIsForgotten(t *testing.T) {
	t.Run("the resolver knows that there is none", func(t *testing.T) {
		deletedClusterIsForgotten(t,
			func(d *fleettest.Directory) { d.Fail(fleettest.Key("a"), resolver.ErrClusterNotFound) })
	})
	t.Run("the resolver misses its Secret and does not list it", func(t *testing.T) {
		deletedClusterIsForgotten(t, func(d *fleettest.Directory) { d.Remove(fleettest.Key("a")) })
	})
}

func deletedClusterIsForgotten(t *testing.T, end func(*fleettest.Directory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		d := fleettest.NewDirectory()
		o := fleettest.SilentWith(d, registry)
		o.Discover = true
		cc := fleettest.Start(t, o)
		clusters := fleettest.Follow(t, cc)
		objects := fleettest.FollowObjects(t, cc,
			events.Selection{Kinds: []client.Object{&corev1.ConfigMap{}}, Watch: true})
		synctest.Wait()
		before := goroutines()
		d.Set(fleettest.Key("a"), api.Config())
		objects.WaitAll("one")
		require.Positive(t, fleettest.SeriesOf(t, registry, "fleet/a"))

		end(d)
		time.Sleep(grace - time.Second)
		synctest.Wait()
		require.True(t, fleettest.Status(t, cc).Connected, "it may come back")
		time.Sleep(time.Minute)
		clusters.Wait(fleettest.Key("a"), events.Disconnected)
		clusters.Wait(fleettest.Key("a"), events.Removed)
		e, _ := objects.Wait(fleettest.Named(fleettest.Key("a"), "one"))
		require.EqualValues(t, "Deleted", e.Type)
		time.Sleep(time.Minute)
		_, err := cc.Cluster(fleettest.Key("a")).Status()
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
		require.Empty(t, cc.Clusters())
		require.Zero(t, fleettest.SeriesOf(t, registry, "fleet/a"))
		synctest.Wait()
		require.LessOrEqual(t, goroutines(), before)

		late := fleettest.Follow(t, cc)
		synctest.Wait()
		require.Empty(t, late.Events, "who comes later is not told of it")
	})
}
