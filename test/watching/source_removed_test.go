// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardPausedSourceKeepsARemovedCluster: it kept the informer, its
// goroutine, the cluster and its status until Continue. Only the events to
// deliver are kept.
func TestHazardPausedSourceKeepsARemovedCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		for i := range 50 {
			api.Put(fmt.Sprint("o", i), "1", nil)
		}
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		q := &fleettest.Queue[controller.Request]{}
		s := controller.ObjectSource(cc, events.Selection{Kinds: fleettest.ConfigMaps, Watch: true},
			controller.EnqueueObject)
		require.NoError(t, s.Start(t.Context(), q))
		time.Sleep(time.Second)
		require.Len(t, q.Names(), 50)
		require.Equal(t, 1, informersRunning())

		s.Pause()
		api.Put("untold", "1", nil)
		api.Put("o1", "2", nil)
		time.Sleep(time.Second)
		cc.Cluster(fleettest.Key("a")).Disengage()
		d.Fail(fleettest.Key("a"), resolver.ErrClusterNotFound)
		time.Sleep(time.Minute)
		_, err := cc.Cluster(fleettest.Key("a")).Status()
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster, "nothing of it is left")
		require.Empty(t, cc.Statuses())

		// Another cluster replaces it, and is removed: none of its events was
		// delivered.
		other := fleettest.NewAPI(t, "uid-b")
		for i := range 50 {
			other.Put(fmt.Sprint("other", i), "1", nil)
		}
		d.Set(fleettest.Key("a"), other.Config())
		for range 3 {
			require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
			time.Sleep(time.Minute)
			require.True(t, fleettest.Status(t, cc).Connected)
			cc.Cluster(fleettest.Key("a")).Disengage()
			d.Fail(fleettest.Key("a"), resolver.ErrClusterNotFound)
			time.Sleep(time.Minute)
			require.Empty(t, cc.Statuses())
			d.Set(fleettest.Key("a"), other.Config())
		}
		require.Zero(t, informersRunning())

		require.Empty(t, q.Names())
		s.Continue()
		require.Len(t, q.Names(), 50, "each object that was told of, once")
		require.NoError(t, s.Close(t.Context()))
	})
}

// informersRunning counts the goroutines of informers.
func informersRunning() int {
	synctest.Wait()
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("informerpool.(*informer).run("))
}

// TestHazardDeletesAreLostWithTheLastRead: in a removed cluster, kinds that
// only reads kept watched were released before handlers received the deletes.
func TestHazardDeletesAreLostWithTheLastRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, d := fleettest.OneCluster(t)
		q := &fleettest.Queue[controller.Request]{}
		s := controller.ObjectSource(cc, events.Selection{Kinds: fleettest.ConfigMaps},
			controller.EnqueueObject)
		require.NoError(t, s.Start(t.Context(), q))
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.ConfigMapList{},
			clustercache.AutoWatch))
		time.Sleep(time.Second)
		require.Equal(t, []string{"(one)", "(two)"}, q.Names())
		s.Pause()
		cc.Cluster(fleettest.Key("a")).Disengage()
		d.Fail(fleettest.Key("a"), resolver.ErrClusterNotFound)
		time.Sleep(time.Minute)
		require.Empty(t, cc.Statuses())
		s.Continue()
		require.Equal(t, []string{"one", "two"}, q.Names())
		require.NoError(t, s.Close(t.Context()))
	})
}
