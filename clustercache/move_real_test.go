// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// settled is a real cluster that is connected and watched, with two objects
// whose events have been delivered.
func settled(t *testing.T) (*testenv.Cluster, *clustercache.ClusterCache, *directory, *objectFeed) {
	t.Helper()
	c := testenv.Start(t, 1)[0]
	create(t, c, "one", "two")
	d := newDirectory()
	d.set(key("a"), c.Config())
	cc := start(t, quick(d))
	w, err := cc.Watch(t.Context(), key("a"), &corev1.ConfigMap{}, client.InNamespace("default"))
	require.NoError(t, err)
	objects := followObjects(t, cc, clustercache.ObjectFeed{})
	require.NoError(t, w.WaitForSync(t.Context()))
	objects.waitAll("one", "two")
	return c, cc, d, objects
}

func TestRealEndpointMovedResumes(t *testing.T) {
	t.Parallel()
	c, cc, d, objects := settled(t)
	proxy := c.Proxy(t)
	d.set(key("a"), proxy.Config())
	require.NoError(t, proxy.WaitAccepted(t.Context(), 1))
	create(t, c, "three")
	_, before := objects.wait(named(key("a"), "three"))
	require.Empty(t, before)
	lists, _ := counted(t, c, "configmaps")
	require.Equal(t, 1, lists)
	require.Equal(t, 1, status(t, cc).Connects)
	require.Zero(t, status(t, cc).HistoryResets)

	t.Run("apply", func(t *testing.T) { requireApplyKeepsTheRest(t, c) })
}

func TestRealNewCertificateAuthorityHealsWithTheNewAccess(t *testing.T) {
	t.Parallel()
	c, cc, d, objects := settled(t)
	clusters := follow(t, cc)
	require.NoError(t, c.RestartWithNewCA(t.Context()))
	clusters.wait(key("a"), clustercache.Disconnected)
	require.Eventually(t, func() bool { return status(t, cc).Reason == "TLSUnknownAuthority" }, 20*time.Second, 10*time.Millisecond)
	d.set(key("a"), c.Config())
	clusters.wait(key("a"), clustercache.Connected)
	create(t, c, "three")
	_, before := objects.wait(named(key("a"), "three"))
	require.Empty(t, before, "an event for an unchanged object")
	require.Zero(t, status(t, cc).HistoryResets)
}

func TestRealRolledBackHistoryIsANewEpoch(t *testing.T) {
	t.Parallel()
	c, cc, _, objects := settled(t)
	epoch := status(t, cc).Epoch
	snapshot, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	// More writes than a server makes when it starts: a history that has grown
	// beyond the versions seen looks sound.
	for i := range 100 {
		create(t, c, fmt.Sprintf("padding-%d", i))
	}
	create(t, c, "ghost")
	objects.waitAll("ghost")
	require.NoError(t, c.Rollback(t.Context(), snapshot))
	objects.wait(func(e clustercache.ObjectEvent) bool { return e.Type == "Deleted" && e.Old.GetName() == "ghost" })
	create(t, c, "after")
	objects.waitAll("after")
	require.Eventually(t, func() bool { return status(t, cc).Epoch != epoch }, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, 1, status(t, cc).HistoryResets)
}

func TestRealWipedClusterIsANewEpoch(t *testing.T) {
	t.Parallel()
	c, cc, d, objects := settled(t)
	require.NoError(t, c.Wipe(t.Context()))
	d.set(key("a"), c.Config())
	create(t, c, "two")
	gone, _ := objects.wait(func(e clustercache.ObjectEvent) bool { return e.Type == "Deleted" && e.Old.GetName() == "one" })
	require.True(t, gone.FinalStateUnknown)
	objects.wait(func(e clustercache.ObjectEvent) bool { return e.Type != "Deleted" && e.New.GetName() == "two" })
	require.Equal(t, 1, status(t, cc).HistoryResets)
}
