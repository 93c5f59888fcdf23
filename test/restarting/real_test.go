// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restarting_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestRealRestart restarts an operator of a real API server: with its history,
// after a restore of an older one, and after it became another cluster.
func TestRealRestart(t *testing.T) {
	t.Parallel()
	c, path := testenv.Start(t, 1)[0], filepath.Join(t.TempDir(), "cache.db")
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), c.Config())
	restart := func() *operator {
		t.Helper()
		o := begin(t, d, path, func(o *clustercache.Options) {
			quick := fleettest.Quick(d)
			quick.Logger, quick.MetricsRegisterer, quick.Persist = o.Logger, o.MetricsRegisterer, o.Persist
			*o = quick
		})
		require.NoError(t, o.Cluster(fleettest.Key("a")).Engage())
		o.watch(fleettest.Key("a"), &corev1.ConfigMap{}, &appsv1.Deployment{})
		require.Equal(t, namesIn(t, c.Client()), o.names(fleettest.Key("a")))
		return o
	}
	require.NoError(t, c.Client().Create(t.Context(), fleettest.ColoredConfigMap("changed", "red")))
	require.NoError(t, c.Client().Create(t.Context(), fleettest.ColoredConfigMap("deleted", "red")))
	snapshot, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	restart().end()

	require.NoError(t, c.Client().Update(t.Context(), fleettest.ColoredConfigMap("changed", "blue")))
	require.NoError(t, c.Client().Delete(t.Context(), fleettest.ColoredConfigMap("deleted", "")))
	require.NoError(t, c.Client().Create(t.Context(), fleettest.ColoredConfigMap("created", "green")))
	second := restart()
	require.InDelta(t, 2, second.metric("fleetcache_restores_total"), 0)
	require.Zero(t, second.metric("fleetcache_list_requests_total"))
	require.NoError(t, c.Client().Create(t.Context(), fleettest.ColoredConfigMap("followed", "green")))
	require.Eventually(t, func() bool { return second.names(fleettest.Key("a"))["followed"] == "green" },
		fleettest.Patience, fleettest.Patience/1000)
	for i := range 1000 { // further than a server comes while it starts
		require.NoError(t, c.Client().Update(t.Context(), fleettest.ColoredConfigMap("changed", fmt.Sprint(i))))
	}
	require.Eventually(t, func() bool { return second.names(fleettest.Key("a"))["changed"] == "999" },
		fleettest.Patience, fleettest.Patience/1000)
	second.end()

	require.NoError(t, c.Rollback(t.Context(), snapshot))
	third := restart()
	require.Positive(t, third.metric("fleetcache_persist_dropped_total"), "the ConfigMaps; no Deployment had changed")
	require.Equal(t, "red", third.names(fleettest.Key("a"))["deleted"])
	third.end()

	require.NoError(t, c.Wipe(t.Context()))
	d.Set(fleettest.Key("a"), c.Config())
	fourth := restart()
	require.Zero(t, fourth.metric("fleetcache_restores_total"))
	require.NotContains(t, fourth.names(fleettest.Key("a")), "deleted")
	fourth.end()
}
