// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardRemovedClusterIsKnownAgainForAMoment: the Secret, the cluster's
// object and its finalizers are removed one after the other, and each removal
// is a change.
func TestHazardRemovedClusterIsKnownAgainForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		o := fleettest.Silent(d)
		o.Discover = true
		cc := fleettest.Start(t, o)
		time.Sleep(time.Second)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))

		d.Remove(fleettest.Key("a"))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Empty(t, cc.Clusters())
		asked := d.TimesAsked(fleettest.Key("a"))
		clusters := fleettest.Follow(t, cc)
		d.Changed(fleettest.Key("a"))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, asked, d.TimesAsked(fleettest.Key("a")), "nothing asks for a cluster that no list has")
		require.Empty(t, clusters.Events)

		d.Set(fleettest.Key("a"), api.Config())
		time.Sleep(time.Second)
		synctest.Wait()
		s, err := cc.Cluster(fleettest.Key("a")).Status()
		require.NoError(t, err)
		require.Equal(t, status.PhaseReady, s.Phase, "it is back")
	})
}
