// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache"
)

// perCluster is the maximum number of series for one cluster.
const perCluster = 11

func TestMetricsOfRemovedClustersEndAndInstancesDoNotClash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		api := newFakeAPI(t, "uid-a")
		api.put("one", "1", nil)
		d := newDirectory()
		d.set(key("a"), api.config())
		o := silent(d)
		o.MetricsRegisterer = registry
		one := start(t, o)
		synctest.Wait() // the first one registered gets the name
		two := start(t, silentWith(newDirectory(), registry))
		require.NoError(t, watch(t, one).WaitForSync(t.Context()))
		time.Sleep(time.Minute)
		problems, err := testutil.GatherAndLint(registry)
		require.NoError(t, err)
		require.Empty(t, problems)
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP fleetcache_cluster_up Whether the cluster is connected.
# TYPE fleetcache_cluster_up gauge
fleetcache_cluster_up{cache="default",cluster="fleet/a"} 1
# HELP fleetcache_cached_objects Objects in the cache.
# TYPE fleetcache_cached_objects gauge
fleetcache_cached_objects{cache="default",cluster="fleet/a"} 1
# HELP fleetcache_connects_total Connections made, the first one included.
# TYPE fleetcache_connects_total counter
fleetcache_connects_total{cache="default",cluster="fleet/a"} 1
`), "fleetcache_cluster_up", "fleetcache_cached_objects", "fleetcache_connects_total"))
		require.LessOrEqual(t, seriesOf(t, registry, "fleet/a"), perCluster)

		require.NoError(t, two.Engage(key("b")))
		synctest.Wait()
		require.Positive(t, seriesOf(t, registry, "fleet/b"))
		two.Disengage(key("b"))
		synctest.Wait()
		require.Zero(t, seriesOf(t, registry, "fleet/b"))
	})
}

func silentWith(r clustercache.Resolver, registry prometheus.Registerer) clustercache.Options {
	o := silent(r)
	o.MetricsRegisterer = registry
	return o
}

func seriesOf(t *testing.T, registry prometheus.Gatherer, cluster string) int {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	n := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "cluster" && l.GetValue() == cluster {
					n++
				}
			}
		}
	}
	return n
}
