// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// keysOfOneServer starts an implementation with a number of keys that lead to
// one server, as those of test environments do, and returns one of them.
func keysOfOneServer(tb testing.TB, envs []*testenv.Cluster, i implementation, n int) (*site, client.ObjectKey) {
	tb.Helper()
	s := newSite(tb, envs, fmt.Sprintf("%s-keys-%d", i.name, n), i, capi.Options{}, false)
	name := func(k int) string { return fmt.Sprintf("key-%02d", k) }
	for k := range n {
		s.secretOf(tb, name(k), s.remote.Kubeconfig())
		s.clusterOf(tb, name(k), true)
	}
	s.start(tb)
	for k := range n {
		eventually(tb, name(k)+" is connected", func() bool {
			_, err := s.GetClient(tb.Context(), client.ObjectKey{Namespace: s.namespace, Name: name(k)})
			return err == nil
		})
	}
	return s, client.ObjectKey{Namespace: s.namespace, Name: name(n / 2)}
}

func startForKeys(tb testing.TB) []*testenv.Cluster {
	tb.Helper()
	return testenv.Start(tb, 2, testenv.WithNames("hub", "remote"), testenv.WithCRDs(clusterDefinition()))
}

// TestGetClientCostsTheSameForManyKeysOfOneServer: in both implementations, and
// here no more allocations than there.
func TestGetClientCostsTheSameForManyKeysOfOneServer(t *testing.T) {
	envs := startForKeys(t)
	allocations := func(i implementation, n int) float64 {
		s, key := keysOfOneServer(t, envs, i, n)
		return testing.AllocsPerRun(1000, func() { _, _ = s.GetClient(t.Context(), key) })
	}
	for _, i := range implementations {
		one, many := allocations(i, 1), allocations(i, 20)
		t.Logf("%s: %v allocations with one key, %v with 20", i.name, one, many)
		require.InDelta(t, one, many, 0.5, i.name)
	}
}

// BenchmarkGetClient compares the implementations with one key of a server and
// with 80.
func BenchmarkGetClient(b *testing.B) {
	envs := startForKeys(b)
	for _, n := range []int{1, 80} {
		for _, i := range implementations {
			s, key := keysOfOneServer(b, envs, i, n)
			get := func(b *testing.B) {
				b.Helper()
				if _, err := s.GetClient(b.Context(), key); err != nil {
					b.Fatal(err)
				}
			}
			b.Run(fmt.Sprintf("%d keys/%s", n, i.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					get(b)
				}
			})
			b.Run(fmt.Sprintf("%d keys at once/%s", n, i.name), func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						get(b)
					}
				})
			})
		}
	}
}
