// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestRealServerWithoutStorageIsNotDead suspends etcd, and kills it, under a
// living API server: the cluster stays connected for many times what would
// disconnect a dead one, its caches answer, and another process can connect.
func TestRealServerWithoutStorageIsNotDead(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(c *testenv.Cluster) error{
		"suspended": (*testenv.Cluster).PauseEtcd,
		"killed":    (*testenv.Cluster).KillEtcd,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testenv.Start(t, 1)[0]
			fleettest.Create(t, c, "one")
			d := fleettest.NewDirectory()
			d.Set(fleettest.Key("a"), c.Config())
			cc := fleettest.Start(t, fleettest.Brisk(d))
			require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
			require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly))

			require.NoError(t, stop(c))
			require.Eventually(t, func() bool {
				return fleettest.Status(t, cc).Reason == status.ReasonUnhealthy
			}, time.Minute, 100*time.Millisecond)
			require.Never(t, func() bool {
				return fleettest.Status(t, cc).Phase != status.PhaseDegraded ||
					fleettest.Get(t, cc, clustercache.CacheOnly) != nil
			}, 20*time.Second, 100*time.Millisecond)
			s := fleettest.Status(t, cc)
			require.ErrorContains(t, s.LastError, "failing checks: etcd")
			require.Equal(t, 1, s.Connects)

			another := fleettest.Start(t, fleettest.Brisk(d))
			require.NoError(t, another.Cluster(fleettest.Key("a")).Engage())
			require.NoError(t, another.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
			require.Equal(t, s.UID, fleettest.Status(t, another).UID)

			if name == "suspended" {
				require.NoError(t, c.ResumeEtcd())
			} else {
				require.NoError(t, c.StartEtcd(t.Context()))
			}
			require.Eventually(t, func() bool {
				return fleettest.Status(t, cc).Phase == status.PhaseReady
			}, time.Minute, 100*time.Millisecond)
			require.Equal(t, 1, fleettest.Status(t, cc).Connects)
			require.Zero(t, fleettest.Status(t, cc).HistoryResets)
		})
	}
}
