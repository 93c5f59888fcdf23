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

	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// perCluster is the maximum number of series for one cluster.
const perCluster = 11

func TestMetricsOfRemovedClustersEndAndInstancesDoNotClash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		o := fleettest.Silent(d)
		o.MetricsRegisterer = registry
		one := fleettest.Start(t, o)
		synctest.Wait() // the first one registered gets the name
		two := fleettest.Start(t, fleettest.SilentWith(fleettest.NewDirectory(), registry))
		require.NoError(t, fleettest.Watch(t, one).WaitForSync(t.Context()))
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
		require.LessOrEqual(t, fleettest.SeriesOf(t, registry, "fleet/a"), perCluster)

		require.NoError(t, two.Engage(fleettest.Key("b")))
		synctest.Wait()
		require.Positive(t, fleettest.SeriesOf(t, registry, "fleet/b"))
		two.Disengage(fleettest.Key("b"))
		synctest.Wait()
		require.Zero(t, fleettest.SeriesOf(t, registry, "fleet/b"))
	})
}
