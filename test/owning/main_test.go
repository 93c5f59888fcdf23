// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Clusters that replicas share: each is worked on by its owner alone.
package owning_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

var keyA, keyB, keyC = fleettest.Key("a"), fleettest.Key("b"), fleettest.Key("c")

// newFleet returns fake clusters, a, b and c, and a replica that discovers
// them. It owns nothing yet.
func newFleet(t *testing.T) (*clustercache.ClusterCache, *clustercachetest.Sharding, []*fleettest.API) {
	t.Helper()
	s := clustercachetest.NewSharding()
	cc, apis := fleettest.NewFleet(t, 3, func(o *clustercache.Options) { o.Discover, o.Sharding = true, s })
	synctest.Wait()
	return cc, s, apis
}

// connected waits until clusters are connected.
func connected(t *testing.T, cc *clustercache.ClusterCache, keys ...client.ObjectKey) {
	t.Helper()
	time.Sleep(time.Second) // until they are known
	for _, key := range keys {
		require.NoError(t, cc.Cluster(key).WaitConnected(t.Context()))
	}
	synctest.Wait()
}
