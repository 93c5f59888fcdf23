// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

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
		state func(t *testing.T, cc *clustercache.ClusterCache, api *fleettest.API)
		opts  []client.GetOption
		want  [3]answer // PreferCache, CacheOnly, AutoWatch
	}{
		{"gone", func(_ *testing.T, cc *clustercache.ClusterCache, api *fleettest.API) {
			cc.Cluster(fleettest.Key("a")).Disengage()
			synctest.Wait()
			api.FailWith(500, "/readyz") // or AutoWatch might have it connected again before it looks
		}, nil,
			[3]answer{is(clustercache.ErrUnknownCluster), is(clustercache.ErrUnknownCluster),
				is(clustercache.ErrNotConnected)}},
		{"not connected", fleettest.Disconnect, nil,
			[3]answer{is(clustercache.ErrNotConnected), is(clustercache.ErrNotConnected),
				is(clustercache.ErrNotConnected)}},
		{"not connected, young enough", fleettest.Disconnect, []client.GetOption{clustercache.MaxStaleness(time.Hour)},
			[3]answer{is(clustercache.ErrNotConnected), cached, is(clustercache.ErrNotConnected)}},
		{"not connected, too old", fleettest.Disconnect, []client.GetOption{clustercache.MaxStaleness(time.Second)},
			[3]answer{is(clustercache.ErrNotConnected), is(clustercache.ErrStale), is(clustercache.ErrNotConnected)}},
		{"not watched", func(_ *testing.T, _ *clustercache.ClusterCache, api *fleettest.API) {
			api.FailWith(500, "/v1/configmaps") // or AutoWatch might have its list before it looks
		}, nil, [3]answer{live, is(clustercache.ErrNotWatched), live}},
		{"not synced", func(t *testing.T, cc *clustercache.ClusterCache, api *fleettest.API) {
			t.Helper()
			api.FailWith(500, "/v1/configmaps")
			fleettest.Watch(t, cc)
			synctest.Wait()
		}, nil, [3]answer{live, is(clustercache.ErrNotSynced), live}},
		{"synced", fleettest.Synced, nil, [3]answer{cached, cached, cached}},
		{"synced, too old", func(t *testing.T, cc *clustercache.ClusterCache, api *fleettest.API) {
			t.Helper()
			fleettest.Synced(t, cc, api)
			time.Sleep(30 * time.Second) // before the first bookmark
		}, []client.GetOption{clustercache.MaxStaleness(time.Second)},
			[3]answer{live, is(clustercache.ErrStale), live}},
		{"synced, before the version", fleettest.Synced, []client.GetOption{clustercache.NotOlderThan("100000")},
			[3]answer{live, is(clustercache.ErrStale), live}},
		{"synced, at the version", fleettest.Synced, []client.GetOption{clustercache.NotOlderThan("106")},
			[3]answer{cached, cached, cached}},
	}
	for _, row := range rows {
		for mode := clustercache.PreferCache; mode <= clustercache.LiveOnly; mode++ {
			t.Run(row.name+"/"+mode.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cc, api, _ := fleettest.OneCluster(t)
					if row.state != nil {
						row.state(t, cc, api)
					}
					asked := api.Count(livePath)
					origin := clustercache.Origin{}
					err := fleettest.Get(t, cc, append(row.opts, mode, &origin)...)
					want := live
					switch {
					case mode != clustercache.LiveOnly:
						want = row.want[mode]
					case row.want[clustercache.PreferCache].err != nil:
						want = row.want[clustercache.PreferCache]
					}
					require.ErrorIs(t, err, want.err)
					if want.err != nil {
						e, ok := errors.AsType[*clustercache.ClusterError](err)
						require.True(t, ok)
						require.Equal(t, fleettest.Key("a"), e.Cluster)
						require.Equal(t, fleettest.ConfigMap, e.GVK)
					} else {
						require.Equal(t, want.cached, origin.Cached)
						require.NotEmpty(t, origin.Epoch)
					}
					wantAsked := 0
					if want == live {
						wantAsked = 1
					}
					require.Equal(t, wantAsked, api.Count(livePath)-asked)
				})
			})
		}
	}
}

func TestListsInEveryForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		fleettest.Synced(t, cc, api)
		before := api.Total()
		r := cc.Cluster(fleettest.Key("a")).Reader()
		typed, partial, loose := &corev1.ConfigMapList{}, &metav1.PartialObjectMetadataList{},
			fleettest.ListOf(fleettest.ConfigMap)
		partial.SetGroupVersionKind(fleettest.ConfigMap)
		for _, list := range []client.ObjectList{typed, partial, loose} {
			require.NoError(t, r.List(t.Context(), list, client.InNamespace("default"),
				client.MatchingLabels{"app": "x"}))
			require.Equal(t, strconv.Itoa(api.Version()), list.GetResourceVersion())
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
		require.Equal(t, before, api.Total(), "a cached read sent a request")
		require.NoError(t, r.List(t.Context(), &corev1.ConfigMapList{}, clustercache.LiveOnly))
		require.Greater(t, api.Total(), before, "a read past the cache sent no request")
		err := r.List(t.Context(), typed, client.MatchingFields{"data": "x"}, clustercache.CacheOnly)
		require.ErrorIs(t, err, clustercache.ErrUnsupported)
		err = r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "none"}, &corev1.ConfigMap{})
		require.True(t, apierrors.IsNotFound(err))
		require.NoError(t, r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"},
			clustercache.Kind(fleettest.ConfigMap)))
		require.NoError(t, r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"},
			&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}))
	})
}

// TestObjectsAreSharedWithThoseThatAsk: in every form, by the read or by the
// cache's default. All other reads own what they get, from the same cache.
func TestObjectsAreSharedWithThoseThatAsk(t *testing.T) {
	forms := map[string]func() (client.Object, client.ObjectList){
		"typed": func() (client.Object, client.ObjectList) { return &corev1.ConfigMap{}, &corev1.ConfigMapList{} },
		"metadata": func() (client.Object, client.ObjectList) {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(fleettest.ConfigMap)
			return clustercache.Kind(fleettest.ConfigMap), list
		},
		"unstructured": func() (client.Object, client.ObjectList) {
			list := fleettest.ListOf(fleettest.ConfigMap)
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(fleettest.ConfigMap)
			return object, list
		},
	}
	for name, form := range forms {
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, default %v", name, always), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cc, api, _ := fleettest.OneCluster(t, func(o *clustercache.Options) {
						o.UnsafeDisableDeepCopy = always
					})
					fleettest.Synced(t, cc, api)
					r := cc.Cluster(fleettest.Key("a")).Reader()
					read := func(opts ...client.GetOption) uintptr {
						object, _ := form()
						key := client.ObjectKey{Namespace: "default", Name: "one"}
						require.NoError(t, r.Get(t.Context(), key, object, append(opts, clustercache.CacheOnly)...))
						return labelsOf(object)
					}
					list := func(opts ...client.ListOption) uintptr {
						_, list := form()
						require.NoError(t, r.List(t.Context(), list, append(opts, clustercache.CacheOnly,
							client.MatchingLabels{"app": "x"})...))
						objects, err := meta.ExtractList(list)
						require.NoError(t, err)
						require.Len(t, objects, 1)
						return labelsOf(objects[0].(client.Object))
					}
					for range 3 {
						read(client.UnsafeDisableDeepCopy)
					}
					shared := read(client.UnsafeDisableDeepCopy)
					require.Equal(t, shared, list(client.UnsafeDisableDeepCopy))
					require.Equal(t, always, shared == read())
					require.Equal(t, always, shared == list())
					require.NotEqual(t, shared, read(client.UnsafeDisableDeepCopyOption(false)))
					require.NotEqual(t, shared, list(client.UnsafeDisableDeepCopyOption(false)))
					require.Equal(t, shared, read(&client.GetOptions{UnsafeDisableDeepCopy: new(true)}))
				})
			})
		}
	}
}

// labelsOf returns where the labels of an object are.
func labelsOf(o client.Object) uintptr {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return reflect.ValueOf(u.Object["metadata"]).Pointer()
	}
	return reflect.ValueOf(o.GetLabels()).Pointer()
}

func TestAutoWatchedInformerEndsWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		require.NoError(t, fleettest.Get(t, cc, clustercache.AutoWatch))
		synctest.Wait()
		require.Equal(t, 1, api.Count("stream /api/v1/configmaps"))
		for range 5 {
			time.Sleep(9 * time.Minute)
			require.NoError(t, fleettest.Get(t, cc, clustercache.AutoWatch))
		}
		status, err := cc.Cluster(fleettest.Key("a")).Status()
		require.NoError(t, err)
		require.Equal(t, 1, status.Watches)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		status, err = cc.Cluster(fleettest.Key("a")).Status()
		require.NoError(t, err)
		require.Zero(t, status.Watches)
		require.Zero(t, status.Informers)

		// A hold of another user is not affected by reads.
		w := fleettest.Watch(t, cc)
		for range 3 {
			require.NoError(t, fleettest.Get(t, cc, clustercache.AutoWatch))
			time.Sleep(time.Hour)
			require.True(t, w.HasSynced())
			require.Equal(t, 1, w.Status().References)
		}
	})
}

func TestWatchAndReadIsLiveUntilSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, _ := fleettest.OneCluster(t)
		r, synced, err := cc.Cluster(fleettest.Key("a")).WatchAndRead(t.Context(), fleettest.ConfigMap)
		require.NoError(t, err)
		require.False(t, synced)
		origin := clustercache.Origin{}
		require.NoError(t, r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, &corev1.ConfigMap{},
			&origin))
		time.Sleep(time.Second) // the watch may have made a connection, which is proven first
		synctest.Wait()
		_, synced, err = cc.Cluster(fleettest.Key("a")).WatchAndRead(t.Context(), fleettest.ConfigMap)
		require.NoError(t, err)
		require.True(t, synced)
		require.NoError(t, r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, &corev1.ConfigMap{},
			&origin))
		require.True(t, origin.Cached)
	})
}

func TestReaderOfKnownClusterAllocatesNothing(t *testing.T) {
	cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
	require.NoError(t, err)
	require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
	require.Zero(t, testing.AllocsPerRun(1000, func() { _ = cc.Cluster(fleettest.Key("a")).Reader() }))
	err = fleettest.Get(t, cc)
	require.ErrorIs(t, err, clustercache.ErrNotConnected)
	require.EqualError(t, err, "get v1 ConfigMap in cluster fleet/a: cluster not connected: cluster cache not started")
}
