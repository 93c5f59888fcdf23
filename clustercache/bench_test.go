// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/stillapi"
)

// stillFleet runs a ClusterCache over the given number of idle clusters, with
// five informers on each.
func stillFleet(tb testing.TB, clusters int) (*clustercache.ClusterCache, []client.ObjectKey) {
	tb.Helper()
	cc, keys := fleetOf(tb, clusters)
	var watches []*clustercache.Watch
	for _, k := range keys {
		for _, kind := range stillapi.Kinds {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind})
			w, err := cc.Cluster(k).Watch(tb.Context(), o)
			require.NoError(tb, err)
			watches = append(watches, w)
		}
	}
	for _, w := range watches {
		require.NoError(tb, w.WaitForSync(tb.Context()))
	}
	return cc, keys
}

// fleetOf runs a ClusterCache over the given number of idle clusters, of which
// nothing is watched.
func fleetOf(tb testing.TB, clusters int) (*clustercache.ClusterCache, []client.ObjectKey) {
	tb.Helper()
	configs := map[client.ObjectKey]*rest.Config{}
	var keys []client.ObjectKey
	for i := range clusters {
		k := fleettest.Key(fmt.Sprintf("cluster-%04d", i))
		keys = append(keys, k)
		configs[k] = (&stillapi.Server{Name: k.Name, Objects: 2}).Config()
	}
	r, err := resolver.Static(configs)
	require.NoError(tb, err)
	o := fleettest.Silent(r)
	o.ProbeInterval, o.ResolveInterval, o.GC.Grace, o.Informers.Linger = time.Hour, -1, -1, -1
	cc, err := clustercache.New(o)
	require.NoError(tb, err)
	fleettest.Run(tb, cc)
	return cc, keys
}

// TestStatusOfAClusterDoesNotDependOnTheFleet counts allocations as a proxy for
// the clusters that Status visits.
func TestStatusOfAClusterDoesNotDependOnTheFleet(t *testing.T) {
	allocations := func(clusters int) float64 {
		cc, keys := stillFleet(t, clusters)
		s, err := cc.Cluster(keys[0]).Status()
		require.NoError(t, err)
		require.Equal(t, 5, s.Synced)
		require.Equal(t, 10, s.Objects)
		least := math.Inf(1)
		for range 10 { // the fleet's own goroutines allocate as well
			least = min(least, testing.AllocsPerRun(100, func() { _, _ = cc.Cluster(keys[0]).Status() }))
		}
		return least
	}
	require.InDelta(t, allocations(1), allocations(50), 0.5)
}

func BenchmarkReader(b *testing.B) {
	cc, keys := stillFleet(b, 1000)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		_ = cc.Cluster(keys[i%len(keys)]).Reader()
		i++
	}
}

// BenchmarkStatus gets the status of each of 1000 clusters, with 5000
// informers.
func BenchmarkStatus(b *testing.B) {
	cc, keys := stillFleet(b, 1000)
	b.Run("each", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, k := range keys {
				if _, err := cc.Cluster(k).Status(); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if len(cc.Statuses()) != len(keys) {
				b.Fatal("missing")
			}
		}
	})
}

// BenchmarkGetBesideOtherWatches gets an object from a watch of its kind, beside
// watches of other single objects, labels and namespaces, and from
// controller-runtime's cache. The others have informers of their own, or are
// served by that of the wide watch.
func BenchmarkGetBesideOtherWatches(b *testing.B) {
	b.Run("controller-runtime", func(b *testing.B) {
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
		read, err := cache.New((&stillapi.Server{Name: "a", Objects: 2}).Config(),
			cache.Options{Scheme: scheme.Scheme, Mapper: mapper})
		require.NoError(b, err)
		fleettest.Run(b, read)
		require.True(b, read.WaitForCacheSync(b.Context()))
		getOne(b, read)
	})
	for _, own := range []bool{true, false} {
		for _, n := range []int{0, 1, 4} {
			b.Run(fmt.Sprintf("own=%v/%d", own, 425*n), func(b *testing.B) {
				cc, keys := fleetOf(b, 1)
				wide := func() { watched(b, cc, keys[0]) }
				if !own {
					wide()
				}
				for _, part := range parts(250*n, 125*n, 50*n) {
					watched(b, cc, keys[0], part...)
				}
				if own {
					wide()
				}
				getOne(b, cc.Cluster(keys[0]).Reader())
			})
		}
	}
}

// parts are selections of parts of a kind.
func parts(named, labeled, namespaced int) (parts [][]client.ListOption) {
	for i := range named {
		parts = append(parts, []client.ListOption{
			client.InNamespace("default"), client.MatchingFields{"metadata.name": fmt.Sprint("one-", i)},
		})
	}
	for i := range labeled {
		parts = append(parts, []client.ListOption{client.MatchingLabels{"app": fmt.Sprint("app-", i)}})
	}
	for i := range namespaced {
		parts = append(parts, []client.ListOption{client.InNamespace(fmt.Sprint("ns-", i))})
	}
	return parts
}

func watched(b *testing.B, cc *clustercache.ClusterCache, key client.ObjectKey, part ...client.ListOption) {
	b.Helper()
	w, err := cc.Cluster(key).Watch(b.Context(), &corev1.ConfigMap{}, part...)
	require.NoError(b, err)
	require.NoError(b, w.WaitForSync(b.Context()))
}

func getOne(b *testing.B, from client.Reader) {
	b.Helper()
	list := &corev1.ConfigMapList{}
	require.NoError(b, from.List(b.Context(), list))
	key := client.ObjectKeyFromObject(&list.Items[0])
	b.ReportAllocs()
	for b.Loop() {
		if err := from.Get(b.Context(), key, &corev1.ConfigMap{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTargets declares targets of an owner, waits until they have synced,
// and drops them.
func BenchmarkTargets(b *testing.B) {
	for _, n := range []int{250, 500, 1000, 2000} {
		for kind, parts := range map[string][][]client.ListOption{
			"named": parts(n, 0, 0), "labeled": parts(0, n, 0), "namespaced": parts(0, 0, n),
		} {
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) {
				cc, keys := fleetOf(b, 1)
				var targets []clustercache.Target
				for _, part := range parts {
					targets = append(targets,
						clustercache.Target{Cluster: keys[0], Kind: &corev1.ConfigMap{}, Options: part})
				}
				owner := fleettest.Owner("one")
				var declare, release time.Duration
				for b.Loop() {
					began := time.Now()
					_, err := cc.Declare(b.Context(), owner, targets...)
					require.NoError(b, err)
					require.NoError(b, cc.WaitForSync(b.Context(), owner))
					declare += time.Since(began)
					began = time.Now()
					cc.Drop(owner)
					_, err = cc.Sweep(b.Context())
					require.NoError(b, err)
					require.Empty(b, cc.Declared(owner))
					release += time.Since(began)
				}
				per := float64(b.N * n * int(time.Microsecond))
				b.ReportMetric(float64(declare)/per, "µs-declare/target")
				b.ReportMetric(float64(release)/per, "µs-release/target")
			})
		}
	}
}
