// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestWatchHandlerIsAddedAtOnceAndToldWhenTheClusterComes: the cluster does not
// exist yet, disappears and returns.
func TestWatchHandlerIsAddedAtOnceAndToldWhenTheClusterComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		d := fleettest.NewDirectory()
		cc := fleettest.Start(t, fleettest.Silent(d))
		w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		h := &fleettest.Recorder{}
		r, err := w.AddEventHandler(h)
		require.NoError(t, err)
		synctest.Wait()
		require.Empty(t, h.Take())
		require.False(t, r.HasSynced())

		d.Set(fleettest.Key("a"), api.Config())
		select {
		case <-r.Synced():
		case <-time.After(time.Hour):
			require.FailNow(t, "not synced")
		}
		require.True(t, r.HasSynced())
		require.Equal(t, []string{"Added one"}, h.Take(), "synced means told")

		api.Die()
		time.Sleep(time.Minute)
		api.Put("one", "2", nil)
		api.Live()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"Updated one"}, h.Take(), "only what changed")

		r.Resync()
		synctest.Wait()
		require.Equal(t, []string{"Updated one"}, h.Take())

		r.Release()
		r.Release()
		api.Put("one", "3", nil)
		synctest.Wait()
		require.Empty(t, h.Take())
		require.Equal(t, 1, w.Status().References, "the watch is not the registration's")
		w.Release()
	})
}

// TestWatchHandlersEndWithTheirWatch: another watch of the same kind continues,
// and a released one accepts no handler.
func TestWatchHandlersEndWithTheirWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		one, other := fleettest.Watch(t, cc), fleettest.Watch(t, cc)
		a, b := &fleettest.Recorder{}, &fleettest.Recorder{}
		ra, err := one.AddEventHandler(a)
		require.NoError(t, err)
		rb, err := other.AddEventHandler(b)
		require.NoError(t, err)
		<-ra.Synced()
		<-rb.Synced()
		require.ElementsMatch(t, a.Take(), b.Take())
		one.Release()
		api.Put("three", "3", nil)
		synctest.Wait()
		require.Empty(t, a.Take())
		require.Equal(t, []string{"Added three"}, b.Take())
		_, err = one.AddEventHandler(a)
		require.ErrorIs(t, err, clustercache.ErrReleased)
		require.NoError(t, rb.Close(context.Background()))
	})
}

// TestReleaseOfAHandlerThatWaitsForItsClusterIsFinal: the informer starts after
// the release.
func TestReleaseOfAHandlerThatWaitsForItsClusterIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		d := fleettest.NewDirectory()
		cc := fleettest.Start(t, fleettest.Silent(d))
		w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		defer w.Release()
		h := &fleettest.Recorder{}
		r, err := w.AddEventHandler(h)
		require.NoError(t, err)
		r.Release()
		d.Set(fleettest.Key("a"), api.Config())
		require.NoError(t, w.WaitForSync(t.Context()))
		synctest.Wait()
		require.Empty(t, h.Take())
		require.False(t, r.HasSynced())
	})
}

// TestIndexAddedLaterServesInformersThatRunAndThatCome: in one cluster, and in
// all.
func TestIndexAddedLaterServesInformersThatRunAndThatCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		w := fleettest.Watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		list := func() ([]corev1.ConfigMap, error) {
			l := &corev1.ConfigMapList{}
			err := cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), l, client.MatchingFields{"value": "2"},
				clustercache.CacheOnly)
			return l.Items, err
		}
		_, err := list()
		require.ErrorIs(t, err, clustercache.ErrUnsupported)
		value := clustercache.Index{GVK: fleettest.ConfigMap, Field: "value", Values: func(o client.Object) []string {
			c := &corev1.ConfigMap{}
			if err := o.(*informerpool.Object).Into(c); err != nil {
				return nil
			}
			return []string{c.Data["value"]}
		}}
		remove, err := cc.AddIndex(value, fleettest.Key("a"))
		require.NoError(t, err)
		found, err := list()
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, "two", found[0].Name)
		require.True(t, cc.Cluster(fleettest.Key("a")).Indexed(fleettest.ConfigMap, "value"))
		require.False(t, cc.Cluster(fleettest.Key("b")).Indexed(fleettest.ConfigMap, "value"))

		// A field has one index in a cluster; another cluster may have its own.
		_, err = cc.AddIndex(value)
		require.ErrorIs(t, err, clustercache.ErrIndexExists)
		removeOther, err := cc.AddIndex(value, fleettest.Key("b"))
		require.NoError(t, err)
		removeOther()
		remove()
		remove()
		_, err = list()
		require.ErrorIs(t, err, clustercache.ErrUnsupported)

		// Informers that start later have it.
		_, err = cc.AddIndex(value)
		require.NoError(t, err)
		w.Release()
		time.Sleep(time.Hour)
		fleettest.Synced(t, cc, api)
		found, err = list()
		require.NoError(t, err)
		require.Len(t, found, 1)
	})
}

func TestIndexesThatCannotBeAreRefused(t *testing.T) {
	cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
	require.NoError(t, err)
	_, err = cc.AddIndex(clustercache.Index{GVK: schema.GroupVersionKind{Kind: "Pod"}})
	for _, field := range []string{"Index.GVK", "Index.Field", "Index.Values"} {
		require.ErrorContains(t, err, field)
	}
}

// TestTransportConfigFollowsTheCluster: one client survives a disconnect, a
// removal and another cluster of the same name, and holds no credentials.
func TestTransportConfigFollowsTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := fleettest.OneCluster(t)
		_, err := cc.Cluster(fleettest.Key("b")).TransportConfig()
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
		config, err := cc.Cluster(fleettest.Key("a")).TransportConfig()
		require.NoError(t, err)
		require.Empty(t, config.BearerToken)
		require.NotContains(t, config.Host, "fake.test")
		clients, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		read := func() (string, error) {
			c, err := clients.CoreV1().ConfigMaps("default").Get(t.Context(), "one", metav1.GetOptions{})
			return c.Data["in"], err
		}
		in, err := read()
		require.NoError(t, err)
		require.Equal(t, "uid-a", in)

		api.Die()
		time.Sleep(time.Minute)
		_, err = read()
		require.ErrorIs(t, err, clustercache.ErrNotConnected)

		cc.Cluster(fleettest.Key("a")).Disengage()
		time.Sleep(time.Minute)
		_, err = read()
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
		resp, err := config.Transport.RoundTrip(mustRequest(t))
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
		require.Nil(t, resp)

		other := fleettest.NewAPI(t, "uid-b")
		other.Put("one", "1", nil)
		d.Set(fleettest.Key("a"), other.Config())
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(time.Minute)
		in, err = read()
		require.NoError(t, err)
		require.Equal(t, "uid-b", in)
	})
}

func mustRequest(t *testing.T) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://nowhere.test",
		io.NopCloser(&io.LimitedReader{}))
	require.NoError(t, err)
	return req
}
