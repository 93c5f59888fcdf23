// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestRealOtherClusterReplacesEveryKind: three informers meet another cluster
// at the address. Objects that only the first cluster held are delivered as
// deleted, objects that both hold under one name as deleted and added, and no
// list of any kind mixes the two.
func TestRealOtherClusterReplacesEveryKind(t *testing.T) {
	t.Parallel()
	envs := testenv.Start(t, 2, testenv.WithSharedPKI(), withWidgets())
	first, second := envs[0], envs[1]
	createAll(t, first, "both", "only-first")
	createAll(t, second, "both", "only-second")
	proxy := first.Proxy(t)
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), proxy.Config())
	cc := fleettest.Start(t, fleettest.Brisk(d))
	clusters := fleettest.Follow(t, cc)
	objects := fleettest.FollowObjects(t, cc, events.Selection{})
	watchAll(t, cc)
	known := fleettest.Replica{}
	known.Follow(t, objects, first)
	epoch := clusters.Wait(fleettest.Key("a"), events.Connected).Epoch

	for _, to := range []*testenv.Cluster{second, first, second} {
		proxy.SetBackend(to.Addr())
		proxy.ResetAll()
		listed := map[string]bool{} // kinds whose list shows the other cluster
		require.Eventually(t, func() bool {
			for _, gvk := range fleettest.ThreeKinds {
				list := fleettest.ListOf(gvk)
				if cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), list, client.InNamespace("default"),
					client.MatchingLabels{"ours": "yes"}, clustercache.CacheOnly) != nil {
					continue // not synced yet with the other history
				}
				in := map[string]bool{}
				for i := range list.Items {
					in[list.Items[i].GetLabels()["in"]] = true
				}
				require.Len(t, in, 1, "a list of %s mixes two clusters", gvk.Kind)
				require.Len(t, list.Items, 2)
				listed[gvk.Kind] = in[to.Name()]
			}
			return listed["ConfigMap"] && listed["Secret"] && listed["Widget"]
		}, fleettest.Patience, 10*time.Millisecond)
		known.Follow(t, objects, to)
		clusters.Wait(fleettest.Key("a"), events.Disconnected)
		now := clusters.Wait(fleettest.Key("a"), events.Connected).Epoch
		require.NotEqual(t, epoch, now)
		epoch = now
	}
}

// TestRealRollbackIsToldForEveryKind: writes after the snapshot are delivered
// as undone: deleted, added again, changed back.
func TestRealRollbackIsToldForEveryKind(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1, withWidgets())[0]
	createAll(t, c, "stays", "two", "gone")
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), c.Config())
	cc := fleettest.Start(t, fleettest.Brisk(d))
	objects := fleettest.FollowObjects(t, cc, events.Selection{})
	watchAll(t, cc)
	known := fleettest.Replica{}
	known.Follow(t, objects, c)
	snapshot, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	// More writes than a server makes by itself when it starts: a history that
	// has grown past the last seen version looks intact.
	for i := range 100 {
		fleettest.Create(t, c, fmt.Sprintf("padding-%d", i))
	}
	change(t, c)
	known.Follow(t, objects, c)
	require.NoError(t, c.Rollback(t.Context(), snapshot))
	known.Follow(t, objects, c)
	createAll(t, c, "after")
	known.Follow(t, objects, c)
	require.Equal(t, 1, fleettest.Status(t, cc).HistoryResets)
}
