// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// settled is a real cluster that is connected and watched, with two objects
// whose events have been delivered.
func settled(t *testing.T) (*testenv.Cluster, *clustercache.ClusterCache, *fleettest.Directory, *fleettest.ObjectLog) {
	t.Helper()
	c := testenv.Start(t, 1)[0]
	fleettest.Create(t, c, "one", "two")
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), c.Config())
	cc := fleettest.Start(t, fleettest.Quick(d))
	w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace("default"))
	require.NoError(t, err)
	objects := fleettest.FollowObjects(t, cc, events.Selection{})
	require.NoError(t, w.WaitForSync(t.Context()))
	objects.WaitAll("one", "two")
	return c, cc, d, objects
}

func TestRealEndpointMovedResumes(t *testing.T) {
	t.Parallel()
	c, cc, d, objects := settled(t)
	proxy := c.Proxy(t)
	d.Set(fleettest.Key("a"), proxy.Config())
	require.NoError(t, proxy.WaitAccepted(t.Context(), 1))
	fleettest.Create(t, c, "three")
	_, before := objects.Wait(fleettest.Named(fleettest.Key("a"), "three"))
	require.Empty(t, before)
	lists, _ := counted(t, c, "configmaps")
	require.Equal(t, 1, lists)
	require.Equal(t, 1, fleettest.Status(t, cc).Connects)
	require.Zero(t, fleettest.Status(t, cc).HistoryResets)

	t.Run("apply", func(t *testing.T) { requireApplyKeepsTheRest(t, c) })
}

func TestRealNewCertificateAuthorityHealsWithTheNewAccess(t *testing.T) {
	t.Parallel()
	c, cc, d, objects := settled(t)
	clusters := fleettest.Follow(t, cc)
	require.NoError(t, c.RestartWithNewCA(t.Context()))
	clusters.Wait(fleettest.Key("a"), events.Disconnected)
	require.Eventually(t, func() bool { return fleettest.Status(t, cc).Reason == "TLSUnknownAuthority" },
		fleettest.Patience, 10*time.Millisecond)
	d.Set(fleettest.Key("a"), c.Config())
	clusters.Wait(fleettest.Key("a"), events.Connected)
	fleettest.Create(t, c, "three")
	_, before := objects.Wait(fleettest.Named(fleettest.Key("a"), "three"))
	require.Empty(t, before, "an event for an unchanged object")
	require.Zero(t, fleettest.Status(t, cc).HistoryResets)
}

func TestRealRolledBackHistoryIsANewEpoch(t *testing.T) {
	t.Parallel()
	c, cc, _, objects := settled(t)
	epoch := fleettest.Status(t, cc).Epoch
	snapshot, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	// More writes than a server makes when it starts: a history that has grown
	// beyond the versions seen looks sound.
	for i := range 100 {
		fleettest.Create(t, c, fmt.Sprintf("padding-%d", i))
	}
	fleettest.Create(t, c, "ghost")
	objects.WaitAll("ghost")
	require.NoError(t, c.Rollback(t.Context(), snapshot))
	objects.Wait(func(e events.Object) bool { return e.Type == "Deleted" && e.Old.GetName() == "ghost" })
	fleettest.Create(t, c, "after")
	objects.WaitAll("after")
	require.Eventually(t, func() bool { return fleettest.Status(t, cc).Epoch != epoch }, fleettest.Patience,
		10*time.Millisecond)
	require.Equal(t, 1, fleettest.Status(t, cc).HistoryResets)
}

func TestRealWipedClusterIsANewEpoch(t *testing.T) {
	t.Parallel()
	c, cc, d, objects := settled(t)
	require.NoError(t, c.Wipe(t.Context()))
	d.Set(fleettest.Key("a"), c.Config())
	fleettest.Create(t, c, "two")
	gone, _ := objects.Wait(
		func(e events.Object) bool { return e.Type == "Deleted" && e.Old.GetName() == "one" })
	require.True(t, gone.FinalStateUnknown)
	objects.Wait(func(e events.Object) bool { return e.Type != "Deleted" && e.New.GetName() == "two" })
	require.Equal(t, 1, fleettest.Status(t, cc).HistoryResets)
}
