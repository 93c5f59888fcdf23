// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/informerpool"
)

// TestHundredClusters proves 003.6 with in-memory clusters: a hundred clusters
// start with two kinds each, with a bounded number of concurrent lists and of
// goroutines, and a cluster that hangs does not affect the others.
func TestHundredClusters(t *testing.T) {
	t.Run("003.6 hundred clusters start within bounds, and one that hangs costs nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { hundredClusters(t, 100, 7) })
	})
}

func hundredClusters(t *testing.T, number, lists int) {
	t.Helper()
	fleet := clustercachetest.New(t, clustercachetest.Options{Cache: clustercache.Options{
		// Two lines for each cluster would be of little use.
		Logger:            funcr.New(func(string, string) {}, funcr.Options{}),
		MetricsRegisterer: prometheus.NewRegistry(), Informers: informerpool.Options{ListConcurrency: lists},
	}})
	var listing atomic.Int64
	open := make(chan struct{})
	var remote []client.ObjectKey
	var hung *clustercachetest.Cluster
	for i := range number {
		c := fleet.Add(fmt.Sprintf("fleet/c%d", i), configMap("default", "one", fmt.Sprint(i)))
		c.Fail(clustercachetest.Status(503), func(r clustercachetest.Request) bool {
			if r.Verb == "list" || r.Initial {
				listing.Add(1)
				<-open
				listing.Add(-1)
			}
			return false // it only observes
		})
		if i == 0 {
			hung = c
			continue
		}
		remote = append(remote, c.Key())
	}
	hung.Hang()
	before := runtime.NumGoroutine()
	cc := fleet.ClusterCache()
	var watches []*clustercache.Watch
	for _, k := range append([]client.ObjectKey{hung.Key()}, remote...) {
		for _, kind := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}} {
			w, err := cc.Cluster(k).Watch(t.Context(), kind)
			require.NoError(t, err)
			watches = append(watches, w)
		}
	}
	begin := time.Now()
	synctest.Wait()
	require.EqualValues(t, lists, listing.Load(), "lists at once")
	close(open)
	for _, w := range watches[2:] {
		require.NoError(t, w.WaitForSync(t.Context()))
	}
	// Time is virtual: nothing waited for the cluster that hangs, whose
	// timeouts take five seconds.
	require.Less(t, time.Since(begin), time.Second)
	synctest.Wait()
	each := float64(runtime.NumGoroutine()-before) / float64(number)
	t.Logf("%.1f goroutines for each cluster, those of its API server included", each)
	require.LessOrEqual(t, each, 20.0)
	for i, k := range remote {
		got, err := readCached(t, cc, k, "default", "one")
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i+1), got.Data["value"])
	}
	require.False(t, watches[0].HasSynced())
	hung.Connect()
	require.NoError(t, watches[0].WaitForSync(t.Context()))
}
