// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
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
	o.ProbeInterval, o.ResolveInterval = time.Hour, -1
	cc, err := clustercache.New(o)
	require.NoError(tb, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cc.Start(ctx) }()
	tb.Cleanup(func() {
		cancel()
		require.NoError(tb, <-done)
	})
	var watches []*clustercache.Watch
	for _, k := range keys {
		for _, kind := range stillapi.Kinds {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind})
			w, err := cc.Watch(ctx, k, o)
			require.NoError(tb, err)
			watches = append(watches, w)
		}
	}
	for _, w := range watches {
		require.NoError(tb, w.WaitForSync(ctx))
	}
	return cc, keys
}

// TestStatusOfAClusterDoesNotDependOnTheFleet counts allocations as a proxy for
// the clusters that Status visits.
func TestStatusOfAClusterDoesNotDependOnTheFleet(t *testing.T) {
	allocations := func(clusters int) float64 {
		cc, keys := stillFleet(t, clusters)
		s, err := cc.Status(keys[0])
		require.NoError(t, err)
		require.Equal(t, 5, s.Synced)
		require.Equal(t, 10, s.Objects)
		return testing.AllocsPerRun(100, func() { _, _ = cc.Status(keys[0]) })
	}
	require.InDelta(t, allocations(1), allocations(50), 0.5)
}

func BenchmarkReader(b *testing.B) {
	cc, keys := stillFleet(b, 1000)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		_ = cc.Reader(keys[i%len(keys)])
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
				if _, err := cc.Status(k); err != nil {
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

// BenchmarkGetBesideNamedWatches gets an object from a watch of its kind, beside
// watches of other single objects.
func BenchmarkGetBesideNamedWatches(b *testing.B) {
	for _, n := range []int{0, 250, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			cc, keys := stillFleet(b, 1)
			for i := range n {
				w, err := cc.Watch(b.Context(), keys[0], &corev1.ConfigMap{}, client.InNamespace("default"),
					client.MatchingFields{"metadata.name": fmt.Sprint("one-", i)})
				require.NoError(b, err)
				require.NoError(b, w.WaitForSync(b.Context()))
			}
			list := &corev1.ConfigMapList{}
			require.NoError(b, cc.Reader(keys[0]).List(b.Context(), list))
			key := client.ObjectKeyFromObject(&list.Items[0])
			b.ReportAllocs()
			for b.Loop() {
				if err := cc.Reader(keys[0]).Get(b.Context(), key, &corev1.ConfigMap{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
