// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardNamesOfClustersEndTheScrape: colliding names made all of /metrics
// fail, and a name that is not UTF-8 ended the process.
func TestHazardNamesOfClustersEndTheScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		cc := fleettest.Start(t, fleettest.SilentWith(fleettest.NewDirectory(), registry))
		names := map[string]client.ObjectKey{
			"hub":  {},
			"/hub": {Name: "hub"},
			"a/b":  {Namespace: "a", Name: "b"},
			"/a/b": {Name: "a/b"},
			"%FF":  {Name: "\xff"},
		}
		for _, key := range names {
			require.NoError(t, cc.Cluster(key).Engage())
		}
		synctest.Wait()
		_, err := registry.Gather()
		require.NoError(t, err)
		for name := range names {
			require.Positive(t, fleettest.SeriesOf(t, registry, name), name)
		}
	})
}
