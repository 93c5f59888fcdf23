// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardClusterScopedReadsOverlookTheNamespace: cache and API server give
// the same answer.
func TestHazardClusterScopedReadsOverlookTheNamespace(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, f *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
		c.Store(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		read := func(mode clustercache.ReadMode) (int, error) {
			r := cc.Cluster(c.Key()).Reader()
			list := &corev1.NodeList{}
			require.NoError(t, r.List(t.Context(), list, client.InNamespace("x"), mode))
			return len(list.Items), r.Get(t.Context(), client.ObjectKey{Namespace: "x", Name: "n"}, &corev1.Node{},
				mode)
		}
		n, err := read(clustercache.PreferCache)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		for _, narrow := range [][]client.ListOption{nil, {client.InNamespace("y")}} {
			w, err := cc.Cluster(c.Key()).Watch(t.Context(), &corev1.Node{}, narrow...)
			require.NoError(t, err)
			require.NoError(t, w.WaitForSync(t.Context()))
			f.WaitSynced()
			n, err = read(clustercache.CacheOnly)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.NoError(t, w.Close(t.Context()))
			time.Sleep(time.Minute)
		}
	})
}

// TestHazardRefusedInformerAnswersNoRead: once the permission to watch is
// revoked, objects cached before are no answer.
func TestHazardRefusedInformerAnswersNoRead(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, f *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
		c.Store(fleettest.ColoredConfigMap("one", "blue"))
		w, err := cc.Cluster(c.Key()).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		f.WaitSynced()
		heal := c.Fail(clustercachetest.Status(http.StatusForbidden), clustercachetest.Verb("list", "watch"),
			clustercachetest.Resource("configmaps"))
		time.Sleep(10 * time.Second)
		c.Store(fleettest.ColoredConfigMap("one", "red"))
		r := cc.Cluster(c.Key()).Reader()
		got := &corev1.ConfigMap{}
		origin := clustercache.Origin{}
		require.NoError(t, r.Get(t.Context(), client.ObjectKeyFromObject(fleettest.ColoredConfigMap("one", "")),
			got, &origin))
		require.Equal(t, "red", got.Data["color"])
		require.False(t, origin.Cached)
		require.True(t, apierrors.IsForbidden(r.List(t.Context(), &corev1.ConfigMapList{})))
		for _, mode := range []client.ListOption{clustercache.CacheOnly} {
			err = r.List(t.Context(), &corev1.ConfigMapList{}, mode)
			require.ErrorIs(t, err, clustercache.ErrStale)
			require.True(t, apierrors.IsForbidden(err), "%v", err)
		}
		_, synced, err := cc.Cluster(c.Key()).WatchAndRead(t.Context(), fleettest.ConfigMap)
		require.NoError(t, err)
		require.False(t, synced)
		require.Error(t, w.Status().LastError)

		heal()
		f.WaitSynced()
		time.Sleep(time.Minute)
		require.NoError(t, r.Get(t.Context(), client.ObjectKeyFromObject(fleettest.ColoredConfigMap("one", "")),
			got, clustercache.CacheOnly))
		require.Equal(t, "red", got.Data["color"])
	})
}

// TestHazardDegradedInformerAnswersForStaleAfterOnly: an informer that cannot
// follow its watch answers reads for StaleAfter only.
func TestHazardDegradedInformerAnswersForStaleAfterOnly(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, f *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
		c.Store(fleettest.ColoredConfigMap("one", "blue"))
		_, err := cc.Cluster(c.Key()).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		f.WaitSynced()
		defer c.Fail(clustercachetest.Status(http.StatusInternalServerError), clustercachetest.Verb("list", "watch"),
			clustercachetest.Resource("configmaps"))()
		get := func() (bool, error) {
			origin := clustercache.Origin{}
			err := cc.Cluster(c.Key()).Reader().Get(t.Context(),
				client.ObjectKeyFromObject(fleettest.ColoredConfigMap("one", "")), &corev1.ConfigMap{}, &origin)
			return origin.Cached, err
		}
		time.Sleep(time.Minute)
		cached, err := get()
		require.NoError(t, err)
		require.True(t, cached)
		time.Sleep(3 * time.Minute)
		cached, err = get()
		require.NoError(t, err)
		require.False(t, cached)
		err = cc.Cluster(c.Key()).Reader().Get(t.Context(),
			client.ObjectKeyFromObject(fleettest.ColoredConfigMap("one", "")),
			&corev1.ConfigMap{}, clustercache.CacheOnly)
		require.ErrorIs(t, err, clustercache.ErrStale)
		require.NoError(t, cc.Cluster(c.Key()).Reader().Get(t.Context(),
			client.ObjectKeyFromObject(fleettest.ColoredConfigMap("one", "")), &corev1.ConfigMap{},
			clustercache.CacheOnly, clustercache.MaxStaleness(time.Hour)), "an age that was accepted")
	})
}

// TestHazardOriginOfWhatDoesNotExist: "not found" is an answer, too, and that
// of the API server is not reported as one of the cache.
func TestHazardOriginOfWhatDoesNotExist(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, f *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
		c.Store(fleettest.ColoredConfigMap("one", "blue"))
		_, err := cc.Cluster(c.Key()).Watch(t.Context(), &corev1.ConfigMap{}, client.MatchingLabels{"never": "set"})
		require.NoError(t, err)
		f.WaitSynced()
		origin := clustercache.Origin{}
		err = cc.Cluster(c.Key()).Reader().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "none"},
			&corev1.ConfigMap{}, &origin)
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		require.False(t, origin.Cached, "the watch cannot know")
		require.True(t, origin.Connected)
		status, err := cc.Cluster(c.Key()).Status()
		require.NoError(t, err)
		require.Equal(t, status.Epoch, origin.Epoch)
	})
}
