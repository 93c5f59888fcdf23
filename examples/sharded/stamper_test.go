// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// oneReplica is a replica with fake clusters, east and west, each with a door.
// The test decides what it owns.
type oneReplica struct {
	t          *testing.T
	share      *clustercachetest.Sharding
	clusters   *clustercache.ClusterCache
	east, west *clustercachetest.Cluster

	mu      sync.Mutex // protects reports
	reports []report
}

func newOneReplica(t *testing.T) *oneReplica {
	t.Helper()
	r := &oneReplica{t: t, share: clustercachetest.NewSharding()}
	fleet := clustercachetest.New(t, clustercachetest.Options{
		Kinds: []clustercachetest.Kind{{GVK: widgetKind}},
		Cache: clustercache.Options{Sharding: r.share, UserAgent: "replica-0"},
	})
	r.east, r.west = fleet.Add("fleet/east", newWidget("door")), fleet.Add("fleet/west", newWidget("door"))
	r.clusters = fleet.ClusterCache()
	mgr := fleettest.NewManager()
	require.NoError(t, addController(mgr, r.clusters, "replica-0", r.say))
	fleettest.Run(t, mgr.Added[0])
	return r
}

func (r *oneReplica) say(x report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports = append(r.reports, x)
}

// heard returns the reports so far.
func (r *oneReplica) heard() []report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reports
}

// stamp returns the stamp of a cluster's door, after a time in which everything
// has settled.
func (r *oneReplica) stamp(c *clustercachetest.Cluster) stamp {
	r.t.Helper()
	time.Sleep(5 * time.Second)
	synctest.Wait()
	door := newWidget("door")
	require.NoError(r.t, c.Client().Get(r.t.Context(), client.ObjectKeyFromObject(door), door))
	s, err := stampOf(door)
	require.NoError(r.t, err)
	return s
}

// change gives a cluster's door a new generation.
func (r *oneReplica) change(c *clustercachetest.Cluster, size string) {
	r.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"size":`+size+`}}`))
	require.NoError(r.t, c.Client().Patch(r.t.Context(), newWidget("door"), patch))
}

// writesTo returns how many writes a cluster has received.
func writesTo(c *clustercachetest.Cluster) int {
	return len(c.Requests(func(r clustercachetest.Request) bool { return r.Verb == "update" }))
}

func TestReplicaStampsWhatItOwnsOncePerGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newOneReplica(t)
		r.share.StandBy(r.west.Key())
		r.share.Gain(r.east.Key())
		require.Equal(t, stamp{1, "replica-0", 1}, r.stamp(r.east))
		require.Zero(t, r.stamp(r.west))

		r.change(r.east, "2")
		r.change(r.west, "2")
		require.Equal(t, stamp{2, "replica-0", 2}, r.stamp(r.east))
		require.Zero(t, r.stamp(r.west))
		require.Equal(t, 2, writesTo(r.east))
		require.Zero(t, writesTo(r.west))

		r.share.Gain(r.west.Key())
		require.Equal(t, stamp{2, "replica-0", 1}, r.stamp(r.west))
		require.Empty(t, r.heard())
	})
}

// TestReplicaThatLosesAClusterInTheMidstOfItsWorkWritesNothing also sees that
// it reports that.
func TestReplicaThatLosesAClusterInTheMidstOfItsWorkWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newOneReplica(t)
		r.share.Gain(r.east.Key())
		require.Equal(t, stamp{1, "replica-0", 1}, r.stamp(r.east))
		r.change(r.east, "2")
		time.Sleep(work / 2)
		r.share.Lose(r.east.Key())
		require.Equal(t, stamp{1, "replica-0", 1}, r.stamp(r.east))
		require.Equal(t, 1, writesTo(r.east))
		require.Equal(t, []report{{Event: refused, Cluster: "east", Widget: "door"}}, r.heard())
	})
}

// TestReplicaReadsWhatItStandsByFor also has the owner lost.
func TestReplicaReadsWhatItStandsByFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newOneReplica(t)
		r.share.StandBy(r.west.Key())
		r.share.Gain(r.east.Key())
		r.stamp(r.east)
		r.share.Lose(r.east.Key())
		r.change(r.east, "2")
		r.stamp(r.east)
		got := (&reader{clusters: r.clusters}).read(t.Context())
		require.ElementsMatch(t, []reading{{"east", "door", 2}, {"west", "door", 1}}, got)
	})
}
