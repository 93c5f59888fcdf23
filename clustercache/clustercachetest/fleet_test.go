// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data: map[string]string{"value": value}}
}

// bothWays runs a test in a bubble and outside of one.
func bothWays(t *testing.T, test func(t *testing.T)) {
	t.Run("bubble", func(t *testing.T) { synctest.Test(t, test) })
	t.Run("clock", test)
}

// cached reads the value of a ConfigMap from the cache.
func cached(t *testing.T, cc *clustercache.ClusterCache, c *clustercachetest.Cluster, name string) string {
	t.Helper()
	got := configMap(name, "")
	require.NoError(t, cc.Cluster(c.Key()).Reader().Get(t.Context(), client.ObjectKeyFromObject(got), got,
		clustercache.CacheOnly))
	return got.Data["value"]
}

// watch holds a watch of ConfigMaps for the duration of the test.
func watch(t *testing.T, cc *clustercache.ClusterCache, c *clustercachetest.Cluster) *clustercache.Watch {
	t.Helper()
	w, err := cc.Cluster(c.Key()).Watch(t.Context(), &corev1.ConfigMap{})
	require.NoError(t, err)
	t.Cleanup(w.Release)
	return w
}

// start runs a ClusterCache of the test's own.
func start(t *testing.T, o clustercache.Options) *clustercache.ClusterCache {
	t.Helper()
	cc, err := clustercache.New(o)
	require.NoError(t, err)
	fleettest.Run(t, cc)
	return cc
}

func TestTheWholeLibraryRunsInAndOutsideOfABubble(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		east := fleet.Add("fleet/east", configMap("a", "1"))
		cc := fleet.ClusterCache()
		watch(t, cc, east)
		fleet.WaitSynced()
		require.Equal(t, "1", cached(t, cc, east, "a"))

		writer, err := cc.Cluster(east.Key()).Client()
		require.NoError(t, err)
		got := configMap("a", "")
		require.NoError(t, writer.Get(t.Context(), client.ObjectKeyFromObject(got), got))
		got.Data["value"] = "2"
		require.NoError(t, writer.Update(t.Context(), got))
		require.NoError(t, east.Client().Create(t.Context(), configMap("b", "3")))
		fleet.WaitSynced()
		require.Equal(t, "2", cached(t, cc, east, "a"))
		require.Equal(t, "3", cached(t, cc, east, "b"))

		east.Disconnect()
		fleet.WaitSynced()
		require.ErrorIs(t, cc.Cluster(east.Key()).Reader().Get(t.Context(), client.ObjectKeyFromObject(got), got),
			clustercache.ErrNotConnected)
		require.NoError(t, east.Client().Delete(t.Context(), configMap("b", "")))
		east.Connect()
		fleet.WaitSynced()
		err = cc.Cluster(east.Key()).Reader().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "b"}, got,
			clustercache.CacheOnly)
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		require.Empty(t, east.Requests(clustercachetest.Verb("list")))
	})
}

// openConn is counted as long as it is open.
type openConn struct {
	net.Conn

	close func()
}

// Close implements net.Conn.
func (c *openConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// TestWatchesOfAClusterShareItsConnection covers a watch that is requested only
// when the cluster is about to be connected.
func TestWatchesOfAClusterShareItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		east := fleet.Add("east")
		var dials, open atomic.Int32
		config := east.Config()
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := fleet.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			dials.Add(1)
			open.Add(1)
			return &openConn{Conn: conn, close: sync.OnceFunc(func() { open.Add(-1) })}, nil
		}
		static, err := resolver.Static(map[client.ObjectKey]*rest.Config{east.Key(): config})
		require.NoError(t, err)
		cc := start(t, clustercache.Options{Resolver: static})
		require.NoError(t, watch(t, cc, east).WaitForSync(t.Context()))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.EqualValues(t, 1, open.Load())
		require.EqualValues(t, 1, dials.Load())
	})
}
