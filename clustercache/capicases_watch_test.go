// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

func caseWatchRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		require.Zero(t, status(t, cc).Watches)
		w := watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		s := status(t, cc)
		require.Equal(t, 1, s.Watches)
		require.Equal(t, 1, s.Informers)
		require.Equal(t, 1, s.Synced)
		require.Zero(t, s.Unmapped)
		require.Equal(t, 1, w.Status().References)
		require.Equal(t, configMap, w.GVK())
		require.Equal(t, 1, api.count("stream /api/v1/configmaps"))
	})
}

// caseWatchTwice: differs in that each call returns a watch of its own, so
// callers of the same kind need not agree on a name, and each can release its
// watch alone. A name cannot stand for two kinds by mistake, because there are
// no names.
func caseWatchTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		first, second := watch(t, cc), watch(t, cc)
		require.NoError(t, first.WaitForSync(t.Context()))
		before := api.total()
		third, err := cc.Watch(t.Context(), key("a"), clustercache.Kind(configMap))
		require.NoError(t, err)
		require.True(t, third.HasSynced())
		require.Equal(t, before, api.total())
		s := status(t, cc)
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
		require.Zero(t, status(t, cc).Informers)
	})
}

// caseHandleKeptAcrossDisconnect: differs in that the cache can still be read
// on request (CacheOnly), with an Origin that shows its age.
func caseHandleKeptAcrossDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		kept, err := cc.Client(key("a"))
		require.NoError(t, err)
		w := watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		read := func(opts ...client.GetOption) (string, error) {
			o := &corev1.ConfigMap{}
			err := kept.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, o, opts...)
			return o.Data["value"], err
		}
		_, err = read()
		require.NoError(t, err)

		lost := time.Now()
		disconnect(t, cc, api)
		api.put("one", "changed meanwhile", nil)
		for _, opts := range [][]client.GetOption{nil, {clustercache.CacheOnly}, {clustercache.AutoWatch}, {clustercache.MaxStaleness(time.Hour)}} {
			_, err = read(opts...)
			require.ErrorIs(t, err, clustercache.ErrNotConnected)
		}
		origin := clustercache.Origin{}
		value, err := read(clustercache.CacheOnly, clustercache.MaxStaleness(time.Hour), &origin)
		require.NoError(t, err)
		require.Equal(t, "1", value)
		require.False(t, origin.Connected)
		require.LessOrEqual(t, origin.Proof, lost)
		_, err = read(clustercache.CacheOnly, clustercache.MaxStaleness(30*time.Second))
		require.ErrorIs(t, err, clustercache.ErrStale)
		time.Sleep(clustercache.DefaultStaleAfter)
		require.True(t, status(t, cc).Stale)

		api.live()
		time.Sleep(time.Minute)
		value, err = read(clustercache.CacheOnly, &origin)
		require.NoError(t, err)
		require.Equal(t, "changed meanwhile", value)
		require.True(t, origin.Connected)
		require.False(t, status(t, cc).Stale)
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
		api := newFakeAPI(t, "uid-a")
		open := openConns(api)
		d := newDirectory()
		d.set(key("a"), api.config())
		cc := start(t, silent(d))
		synctest.Wait()
		before := goroutines()

		api.failWith(-1, "/configmaps")
		hung := watch(t, cc)
		missing, err := cc.Watch(t.Context(), key("a"), &corev1.Pod{})
		require.NoError(t, err)
		most := 0
		for i := range 30 {
			synctest.Wait()
			require.True(t, status(t, cc).Connected)
			time.Sleep(10 * time.Second)
			if i == 5 { // an idle connection more or less, of three goroutines, is chance
				most = goroutines() + 10
			}
			require.True(t, i < 5 || goroutines() <= most, "%d goroutines, not %d", goroutines(), most)
			api.die()
			time.Sleep(45 * time.Second)
			require.False(t, status(t, cc).Connected)
			api.live()
			time.Sleep(31 * time.Second)
		}
		require.Greater(t, most, before)
		require.False(t, hung.HasSynced())
		require.False(t, missing.HasSynced())
		require.Error(t, missing.Status().LastError)

		api.die() // disconnected, and held still
		time.Sleep(45 * time.Second)
		api.live()
		api.failWith(500, "/readyz") // so that it is probed, and stays disconnected
		require.Eventually(t, func() bool { return api.count("get /readyz") > 0 }, time.Minute, time.Second)
		rest := api.total() - api.count("get /readyz")
		time.Sleep(time.Hour)
		require.Equal(t, rest, api.total()-api.count("get /readyz"), "nothing but attempts to connect")

		hung.Release()
		missing.Release()
		cc.Disengage(key("a"))
		time.Sleep(time.Minute)
		require.Zero(t, open())
		require.LessOrEqual(t, goroutines(), before)
		total := api.total()
		time.Sleep(time.Hour)
		require.Equal(t, total, api.total())
	})
}

// caseDeletedClusterIsForgotten: differs in that the end is reported by the
// events Disconnected and Removed, and in that the cached objects are delivered
// as deletes.
func caseDeletedClusterIsForgotten(t *testing.T) {
	t.Run("the resolver knows that there is none", func(t *testing.T) {
		deletedClusterIsForgotten(t, func(d *directory) { d.fail(key("a"), resolver.ErrClusterNotFound) })
	})
	t.Run("the resolver misses its Secret and does not list it", func(t *testing.T) {
		deletedClusterIsForgotten(t, func(d *directory) { d.forget(key("a")) })
	})
}

func deletedClusterIsForgotten(t *testing.T, end func(*directory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		api := newFakeAPI(t, "uid-a")
		api.put("one", "1", nil)
		d := newDirectory()
		o := silentWith(d, registry)
		o.Discover = true
		cc := start(t, o)
		clusters := follow(t, cc)
		objects := followObjects(t, cc, clustercache.ObjectFeed{Kinds: []client.Object{&corev1.ConfigMap{}}, Watch: true})
		synctest.Wait()
		before := goroutines()
		d.set(key("a"), api.config())
		objects.waitAll("one")
		require.Positive(t, seriesOf(t, registry, "fleet/a"))

		end(d)
		time.Sleep(clustercache.DefaultGrace - time.Second)
		synctest.Wait()
		require.True(t, status(t, cc).Connected, "it may come back")
		time.Sleep(time.Minute)
		clusters.wait(key("a"), clustercache.Disconnected)
		clusters.wait(key("a"), clustercache.Removed)
		e, _ := objects.wait(named(key("a"), "one"))
		require.EqualValues(t, "Deleted", e.Type)
		time.Sleep(time.Minute)
		_, err := cc.Status(key("a"))
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
		require.Empty(t, cc.Clusters())
		require.Zero(t, seriesOf(t, registry, "fleet/a"))
		synctest.Wait()
		require.LessOrEqual(t, goroutines(), before)

		late := follow(t, cc)
		synctest.Wait()
		require.Empty(t, late.events, "who comes later is not told of it")
	})
}
