// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache"
)

// TestHazardRemovedClusterIsKnownAgainForAMoment: the Secret, the cluster's
// object and its finalizers are removed one after the other, and each removal
// is a change.
func TestHazardRemovedClusterIsKnownAgainForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, "uid-a")
		d := newDirectory()
		d.set(key("a"), api.config())
		o := silent(d)
		o.Discover = true
		cc := start(t, o)
		time.Sleep(time.Second)
		require.NoError(t, cc.WaitConnected(t.Context(), key("a")))

		d.forget(key("a"))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Empty(t, cc.Clusters())
		asked := d.timesAsked(key("a"))
		clusters := follow(t, cc)
		d.changed(key("a"))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, asked, d.timesAsked(key("a")), "nothing asks for a cluster that no list has")
		require.Empty(t, clusters.events)

		d.set(key("a"), api.config())
		time.Sleep(time.Second)
		synctest.Wait()
		s, err := cc.Status(key("a"))
		require.NoError(t, err)
		require.Equal(t, clustercache.PhaseReady, s.Phase, "it is back")
	})
}
