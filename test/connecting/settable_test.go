// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/settable"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestClustersThatAReconcilerSets follows a cluster that is set before the list
// is complete, fails, is rotated, and is deleted.
func TestClustersThatAReconcilerSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid")
		clusters := settable.New()
		o := fleettest.Brisk(clusters)
		o.Discover, o.Grace = true, 5*time.Second
		cc := fleettest.Start(t, o)
		received := fleettest.Follow(t, cc)
		ready := cc.ReadyzCheck()
		key := fleettest.Key("a")
		set := func() {
			access, err := resolver.NewAccess(api.Config())
			clusters.Set(key, access, err)
		}

		set()
		received.Wait(key, events.Connected)
		time.Sleep(time.Minute)
		require.Error(t, ready(nil), "which clusters exist is not known yet")
		clusters.Synced()
		synctest.Wait()
		require.NoError(t, ready(nil))

		clusters.Set(key, resolver.Access{}, errors.New("quota is used up"))
		synctest.Wait()
		status := fleettest.Status(t, cc)
		require.True(t, status.Connected)
		require.EqualError(t, status.LastError, "cluster fleet/a: quota is used up")
		time.Sleep(time.Minute)
		require.True(t, fleettest.Status(t, cc).Connected, "an error does not end a connection that works")

		clusters.Delete(key)
		time.Sleep(time.Second)
		set()
		time.Sleep(time.Minute)
		require.True(t, fleettest.Status(t, cc).Connected, "it was back within the grace")
		require.Equal(t, 1, fleettest.Status(t, cc).Connects)

		clusters.Delete(key)
		synctest.Wait()
		require.True(t, fleettest.Status(t, cc).Connected)
		received.Wait(key, events.Removed)
		synctest.Wait()
		require.Empty(t, cc.Clusters())
	})
}
