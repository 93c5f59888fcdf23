// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
)

// silent returns options that keep the test output short; times are virtual.
func silent(r clustercache.Resolver) clustercache.Options {
	return clustercache.Options{Resolver: r, Logger: logr.Discard()}
}

// oneCluster is the usual set-up of a bubble: a connected cluster with two
// objects.
func oneCluster(t *testing.T) (*clustercache.ClusterCache, *fakeAPI, *directory) {
	t.Helper()
	api := newFakeAPI(t, "uid-a")
	api.put("one", "1", map[string]any{"app": "x"})
	api.put("two", "2", map[string]any{"app": "y"})
	d := newDirectory()
	d.set(key("a"), api.config())
	o := silent(d)
	o.Indexes = []clustercache.Index{{GVK: configMap, Field: "app", Values: func(o client.Object) []string { return []string{o.GetLabels()["app"]} }}}
	cc := start(t, o)
	require.NoError(t, cc.Engage(key("a")))
	synctest.Wait()
	return cc, api, d
}

func get(t *testing.T, cc *clustercache.ClusterCache, opts ...client.GetOption) error {
	t.Helper()
	return cc.Reader(key("a")).Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, &corev1.ConfigMap{}, opts...)
}

// TestReadModeTable proves the table of ReadMode, row by row.
func TestReadModeTable(t *testing.T) {
	const livePath = "get /api/v1/namespaces/default/configmaps/one"
	// answer is the result of one read: an error, or its origin.
	type answer struct {
		err    error
		cached bool
	}
	live, cached := answer{}, answer{cached: true}
	is := func(err error) answer { return answer{err: err} }
	rows := []struct {
		name  string
		state func(t *testing.T, cc *clustercache.ClusterCache, api *fakeAPI)
		opts  []client.GetOption
		want  [3]answer // Live, CacheOnly, AutoWatch
	}{
		{"gone", func(_ *testing.T, cc *clustercache.ClusterCache, api *fakeAPI) {
			cc.Disengage(key("a"))
			synctest.Wait()
			api.failWith(500, "/readyz") // or AutoWatch might have it connected again before it looks
		}, nil,
			[3]answer{is(clustercache.ErrUnknownCluster), is(clustercache.ErrUnknownCluster), is(clustercache.ErrNotConnected)}},
		{"not connected", disconnect, nil,
			[3]answer{is(clustercache.ErrNotConnected), is(clustercache.ErrNotConnected), is(clustercache.ErrNotConnected)}},
		{"not connected, young enough", disconnect, []client.GetOption{clustercache.MaxStaleness(time.Hour)},
			[3]answer{is(clustercache.ErrNotConnected), cached, is(clustercache.ErrNotConnected)}},
		{"not connected, too old", disconnect, []client.GetOption{clustercache.MaxStaleness(time.Second)},
			[3]answer{is(clustercache.ErrNotConnected), is(clustercache.ErrStale), is(clustercache.ErrNotConnected)}},
		{"not watched", func(_ *testing.T, _ *clustercache.ClusterCache, api *fakeAPI) {
			api.failWith(500, "/v1/configmaps") // or AutoWatch might have its list before it looks
		}, nil, [3]answer{live, is(clustercache.ErrNotWatched), live}},
		{"not synced", func(t *testing.T, cc *clustercache.ClusterCache, api *fakeAPI) {
			t.Helper()
			api.failWith(500, "/v1/configmaps")
			watch(t, cc)
			synctest.Wait()
		}, nil, [3]answer{live, is(clustercache.ErrNotSynced), live}},
		{"synced", synced, nil, [3]answer{cached, cached, cached}},
		{"synced, too old", func(t *testing.T, cc *clustercache.ClusterCache, api *fakeAPI) {
			t.Helper()
			synced(t, cc, api)
			time.Sleep(time.Minute)
		}, []client.GetOption{clustercache.MaxStaleness(time.Second)}, [3]answer{live, is(clustercache.ErrStale), live}},
		{"synced, before the version", synced, []client.GetOption{clustercache.NotOlderThan("100000")},
			[3]answer{live, is(clustercache.ErrStale), live}},
		{"synced, at the version", synced, []client.GetOption{clustercache.NotOlderThan("102")}, [3]answer{cached, cached, cached}},
	}
	for _, row := range rows {
		for mode := clustercache.Live; mode <= clustercache.AutoWatch; mode++ {
			t.Run(row.name+"/"+mode.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cc, api, _ := oneCluster(t)
					if row.state != nil {
						row.state(t, cc, api)
					}
					asked := api.count(livePath)
					origin := clustercache.Origin{}
					err := get(t, cc, append(row.opts, mode, &origin)...)
					want := row.want[mode]
					require.ErrorIs(t, err, want.err)
					if want.err != nil {
						e, ok := errors.AsType[*clustercache.ClusterError](err)
						require.True(t, ok)
						require.Equal(t, key("a"), e.Cluster)
						require.Equal(t, configMap, e.GVK)
					} else {
						require.Equal(t, want.cached, origin.Cached)
						require.NotEmpty(t, origin.Epoch)
					}
					wantAsked := 0
					if want == live {
						wantAsked = 1
					}
					require.Equal(t, wantAsked, api.count(livePath)-asked)
				})
			})
		}
	}
}

func watch(t *testing.T, cc *clustercache.ClusterCache, opts ...client.ListOption) *clustercache.Watch {
	t.Helper()
	w, err := cc.Watch(t.Context(), key("a"), &corev1.ConfigMap{}, opts...)
	require.NoError(t, err)
	return w
}

func synced(t *testing.T, cc *clustercache.ClusterCache, _ *fakeAPI) {
	t.Helper()
	require.NoError(t, watch(t, cc).WaitForSync(t.Context()))
}

func disconnect(t *testing.T, cc *clustercache.ClusterCache, api *fakeAPI) {
	t.Helper()
	synced(t, cc, api)
	api.die()
	time.Sleep(45 * time.Second)
	synctest.Wait()
}

func TestListsInEveryForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		synced(t, cc, api)
		before := api.total()
		r := cc.Reader(key("a"))
		typed, partial, loose := &corev1.ConfigMapList{}, &metav1.PartialObjectMetadataList{}, listOf(configMap)
		partial.SetGroupVersionKind(configMap)
		for _, list := range []client.ObjectList{typed, partial, loose} {
			require.NoError(t, r.List(t.Context(), list, client.InNamespace("default"), client.MatchingLabels{"app": "x"}))
			require.Equal(t, "102", list.GetResourceVersion())
		}
		require.Len(t, typed.Items, 1)
		require.Equal(t, "1", typed.Items[0].Data["value"])
		require.Len(t, partial.Items, 1)
		require.Equal(t, "one", partial.Items[0].Name)
		require.Len(t, loose.Items, 1)
		require.Equal(t, "one", loose.Items[0].GetName())

		for name, tc := range map[string]struct {
			opts []client.ListOption
			want int
		}{
			"all":                  {nil, 2},
			"limit":                {[]client.ListOption{client.Limit(1)}, 1},
			"other namespace":      {[]client.ListOption{client.InNamespace("kube-system")}, 0},
			"index":                {[]client.ListOption{client.MatchingFields{"app": "y"}}, 1},
			"index and name":       {[]client.ListOption{client.MatchingFields{"app": "y", "metadata.name": "one"}}, 0},
			"name":                 {[]client.ListOption{client.MatchingFields{"metadata.name": "two"}}, 1},
			"namespace as a field": {[]client.ListOption{client.MatchingFields{"metadata.namespace": "default"}}, 2},
		} {
			list := &corev1.ConfigMapList{}
			require.NoError(t, r.List(t.Context(), list, append(tc.opts, clustercache.CacheOnly)...), name)
			require.Len(t, list.Items, tc.want, name)
		}
		require.Equal(t, before, api.total(), "a cached read sent a request")
		err := r.List(t.Context(), typed, client.MatchingFields{"data": "x"}, clustercache.CacheOnly)
		require.ErrorIs(t, err, clustercache.ErrUnsupported)
		err = r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "none"}, &corev1.ConfigMap{})
		require.True(t, apierrors.IsNotFound(err))
		require.NoError(t, r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, clustercache.Kind(configMap)))
		require.NoError(t, r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"},
			&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}))
	})
}

func TestAutoWatchedInformerEndsWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		require.NoError(t, get(t, cc, clustercache.AutoWatch))
		synctest.Wait()
		require.Equal(t, 1, api.count("stream /api/v1/configmaps"))
		for range 5 {
			time.Sleep(9 * time.Minute)
			require.NoError(t, get(t, cc, clustercache.AutoWatch))
		}
		status, err := cc.Status(key("a"))
		require.NoError(t, err)
		require.Equal(t, 1, status.Watches)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		status, err = cc.Status(key("a"))
		require.NoError(t, err)
		require.Zero(t, status.Watches)
		require.Zero(t, status.Informers)

		// A hold of another user is not affected by reads.
		w := watch(t, cc)
		for range 3 {
			require.NoError(t, get(t, cc, clustercache.AutoWatch))
			time.Sleep(time.Hour)
			require.True(t, w.HasSynced())
			require.Equal(t, 1, w.Status().References)
		}
	})
}

func TestWatchAndReadIsLiveUntilSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, _ := oneCluster(t)
		r, synced, err := cc.WatchAndRead(t.Context(), key("a"), configMap)
		require.NoError(t, err)
		require.False(t, synced)
		origin := clustercache.Origin{}
		require.NoError(t, r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, &corev1.ConfigMap{}, &origin))
		time.Sleep(time.Second) // the watch may have made a connection, which is proven first
		synctest.Wait()
		_, synced, err = cc.WatchAndRead(t.Context(), key("a"), configMap)
		require.NoError(t, err)
		require.True(t, synced)
		require.NoError(t, r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, &corev1.ConfigMap{}, &origin))
		require.True(t, origin.Cached)
	})
}

func TestReaderOfKnownClusterAllocatesNothing(t *testing.T) {
	cc, err := clustercache.New(silent(newDirectory()))
	require.NoError(t, err)
	require.NoError(t, cc.Engage(key("a")))
	require.Zero(t, testing.AllocsPerRun(1000, func() { _ = cc.Reader(key("a")) }))
	err = get(t, cc)
	require.ErrorIs(t, err, clustercache.ErrNotConnected)
	require.EqualError(t, err, "get v1 ConfigMap in cluster fleet/a: cluster not connected: cluster cache not started")
}
