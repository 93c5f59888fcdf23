// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

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
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// TestHazardPausedSourceKeepsARemovedCluster: it kept the informer, its
// goroutine, the cluster and its status until Continue. Only the events to
// deliver are kept.
func TestHazardPausedSourceKeepsARemovedCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, "uid-a")
		for i := range 50 {
			api.put(fmt.Sprint("o", i), "1", nil)
		}
		d := newDirectory()
		d.set(key("a"), api.config())
		cc := start(t, silent(d))
		require.NoError(t, cc.Engage(key("a")))
		q := &queue[clustercache.Request]{}
		s := clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: configMaps, Watch: true}, clustercache.EnqueueObject)
		require.NoError(t, s.Start(t.Context(), q))
		time.Sleep(time.Second)
		require.Len(t, q.names(), 50)
		require.Equal(t, 1, informersRunning())

		s.Pause()
		api.put("untold", "1", nil)
		api.put("o1", "2", nil)
		time.Sleep(time.Second)
		cc.Disengage(key("a"))
		d.fail(key("a"), resolver.ErrClusterNotFound)
		time.Sleep(time.Minute)
		_, err := cc.Status(key("a"))
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster, "nothing of it is left")
		require.Empty(t, cc.Statuses())

		// Another cluster replaces it, and is removed: none of its events was
		// delivered.
		other := newFakeAPI(t, "uid-b")
		for i := range 50 {
			other.put(fmt.Sprint("other", i), "1", nil)
		}
		d.set(key("a"), other.config())
		for range 3 {
			require.NoError(t, cc.Engage(key("a")))
			time.Sleep(time.Minute)
			require.True(t, status(t, cc).Connected)
			cc.Disengage(key("a"))
			d.fail(key("a"), resolver.ErrClusterNotFound)
			time.Sleep(time.Minute)
			require.Empty(t, cc.Statuses())
			d.set(key("a"), other.config())
		}
		require.Zero(t, informersRunning())

		require.Empty(t, q.names())
		s.Continue()
		require.Len(t, q.names(), 50, "each object that was told of, once")
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
		cc, _, d := oneCluster(t)
		q := &queue[clustercache.Request]{}
		s := clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: configMaps}, clustercache.EnqueueObject)
		require.NoError(t, s.Start(t.Context(), q))
		require.NoError(t, cc.Reader(key("a")).List(t.Context(), &corev1.ConfigMapList{}, clustercache.AutoWatch))
		time.Sleep(time.Second)
		require.Equal(t, []string{"(one)", "(two)"}, q.names())
		s.Pause()
		cc.Disengage(key("a"))
		d.fail(key("a"), resolver.ErrClusterNotFound)
		time.Sleep(time.Minute)
		require.Empty(t, cc.Statuses())
		s.Continue()
		require.Equal(t, []string{"one", "two"}, q.names())
		require.NoError(t, s.Close(t.Context()))
	})
}
