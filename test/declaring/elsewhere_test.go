// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/internal/directory"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardOwnersAreCalledForEverWhileAnotherClusterAnswers: a cluster moves to
// a server that cannot be reached, and its old address becomes another cluster.
// Owners are called when that answers, and not again while it does.
func TestHazardOwnersAreCalledForEverWhileAnotherClusterAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, at := clustercachetest.New(t, clustercachetest.Options{}), directory.New()
		before, after := fleet.Add("before"), fleet.Add("after")
		at.Set(fleettest.Key("a"), before.Config)
		cc := fleettest.Start(t, clustercache.Options{Resolver: at, Discover: true, QPS: -1})
		owners := ownersOf(t, cc)
		read := func() error {
			return cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.ConfigMapList{})
		}
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		require.Equal(t, one, owners.take(time.Minute))

		after.Disconnect()
		at.Set(fleettest.Key("a"), after.Config)
		owners.take(time.Minute)
		before.NewEpoch()
		require.Equal(t, one, owners.take(5*time.Minute))
		require.ErrorContains(t, read(), "another cluster answers")
		require.Empty(t, owners.take(10*time.Minute))

		after.Connect()
		require.Equal(t, one, owners.take(time.Minute))
		require.NoError(t, read())
	})
}
