// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/fleet"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/stillapi"
)

const (
	benchClusters = 1000
	benchPods     = 100
)

// podLabels are those of the Pods of 20 Deployments with five replicas each.
func podLabels(i int) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       fmt.Sprintf("service-%d", i/5),
		"app.kubernetes.io/part-of":    fmt.Sprintf("shop-%d", i/20),
		"app.kubernetes.io/managed-by": "helm",
		"pod-template-hash":            fmt.Sprintf("%010x", (i/5)*7919),
	}
}

// BenchmarkCount counts the Pods of 1,000 clusters with 100 Pods each by a
// label. Beside it are the reader of each cluster, and what informers of typed
// Pods with controller-runtime's reader do: from a store, with a copy of each
// Pod, and without (cache.UnsafeDisableDeepCopy).
func BenchmarkCount(b *testing.B) {
	const by = "app.kubernetes.io/name"
	cc := benchFleet(b)
	ctx := b.Context()
	run := func(name string, count func(counts map[string]int)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			began := cpuTime(b)
			for b.Loop() {
				counts := map[string]int{}
				count(counts)
				require.Len(b, counts, 20)
				require.Equal(b, 5*benchClusters, counts["service-7"])
			}
			b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}

	list := func(opts ...client.ListOption) func(map[string]int) {
		return func(counts map[string]int) {
			for pod, err := range fleet.List(ctx, cc, &corev1.Pod{}, opts...) {
				if err != nil {
					b.Fatal(err)
				}
				name, _ := pod.Label(by)
				counts[name]++
			}
		}
	}
	run("fleet", list())
	run("fleet/sorted", list(fleet.Options{Sorted: true}))
	run("fleet/selectors", list(client.HasLabels{by}, fleet.Options{ClusterSelector: labels.Everything()}))
	run("reader/metadata", func(counts map[string]int) {
		for _, key := range cc.Clusters() {
			pods := &metav1.PartialObjectMetadataList{}
			pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
			require.NoError(b, cc.Cluster(key).Reader().List(ctx, pods))
			for _, pod := range pods.Items {
				counts[pod.Labels[by]]++
			}
		}
	})

	stores := typedStores()
	typed := func(copied func(*corev1.Pod) *corev1.Pod) func(map[string]int) {
		return func(counts map[string]int) {
			for _, store := range stores {
				for _, o := range store.List() {
					counts[copied(o.(*corev1.Pod)).Labels[by]]++
				}
			}
		}
	}
	run("informers/copied", typed((*corev1.Pod).DeepCopy))
	run("informers/shared", typed(func(pod *corev1.Pod) *corev1.Pod { return pod }))
}

// cpuTime returns the processor time that the process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchFleet returns a cache of the Pods of all clusters.
func benchFleet(b *testing.B) *clustercache.ClusterCache {
	b.Helper()
	configs := map[client.ObjectKey]*rest.Config{}
	for i := range benchClusters {
		server := &stillapi.Server{
			Name:    fmt.Sprintf("cluster-%04d", i),
			Objects: benchPods,
			Labels:  podLabels,
		}
		configs[fleettest.Key(server.Name)] = server.Config()
	}
	r, err := resolver.Static(configs)
	require.NoError(b, err)
	cc, err := clustercache.New(fleettest.Silent(r))
	require.NoError(b, err)
	fleettest.Run(b, cc)
	for key := range configs {
		_, err := cc.Cluster(key).Watch(b.Context(), &corev1.Pod{})
		require.NoError(b, err)
	}
	for key := range configs {
		watch, err := cc.Cluster(key).Watch(b.Context(), &corev1.Pod{})
		require.NoError(b, err)
		require.NoError(b, watch.WaitForSync(b.Context()))
	}

	return cc
}

// typedStores returns the same Pods in the stores of informers.
func typedStores() (stores []toolscache.Store) {
	for range benchClusters {
		store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
		for j := range benchPods {
			_ = store.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default",
				Name:      fmt.Sprintf("object-%d", j),
				Labels:    podLabels(j),
			}})
		}
		stores = append(stores, store)
	}
	return stores
}
