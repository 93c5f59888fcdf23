// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
)

// weighing starts a group whose replicas know the weights of the clusters that
// they hold, and of no others.
func weighing(t *testing.T, g *group, weight func(client.ObjectKey) int, replicas int) {
	t.Helper()
	for range replicas {
		var self atomic.Pointer[replica]
		g.options.ClusterWeight = func(c client.ObjectKey) int {
			if r := self.Load(); r == nil || !r.Owns(c) && !r.StandsBy(c) {
				return 0
			}
			return weight(c)
		}
		self.Store(g.start(1)[0])
	}
}

// TestReplicasOwnTheSameWeight has every tenth cluster weigh as much as ten
// others. Only replicas that hold it know that.
func TestReplicasOwnTheSameWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 300)
		g.options.Slots, g.options.Standbys = 256, 1
		defer g.stop()
		total := 0
		weight := func(c client.ObjectKey) int {
			if n, _ := strconv.Atoi(c.Name[1:]); n%10 == 0 {
				return 300
			}
			return 30
		}
		for _, c := range g.clusters {
			total += weight(c)
		}
		weighing(t, g, weight, 3)
		g.waitOwned(10 * time.Second)
		time.Sleep(5 * time.Minute)
		for _, r := range g.replicas {
			owned := 0
			for _, c := range g.clusters {
				if r.Owns(c) {
					owned += weight(c)
				}
			}
			require.InDelta(t, total/3, owned, 0.15*float64(total)/3)
		}
	})
}

// TestWeightsThatFlapMoveNothing has weights that change by a quarter all the
// time, and one replica that panics when it is asked.
func TestWeightsThatFlapMoveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 300)
		defer g.stop()
		var asked atomic.Int64
		weighing(t, g, func(c client.ObjectKey) int {
			n, _ := strconv.Atoi(c.Name[1:])
			if n%2 == int(asked.Add(1)/300)%2 {
				return 100
			}
			return 80
		}, 3)
		g.options.ClusterWeight = func(client.ObjectKey) int { panic("no weight") }
		g.start(1)
		g.waitOwned(10 * time.Second)
		time.Sleep(3 * time.Minute)
		before := g.tokens()
		time.Sleep(20 * time.Minute)
		require.Equal(t, before, g.tokens())
	})
}

// TestWeightsOfClustersAreBoundedAndKept asks for the weights of two clusters in
// one slot, again and again.
func TestWeightsOfClustersAreBoundedAndKept(t *testing.T) {
	a, b := client.ObjectKey{Name: "a"}, client.ObjectKey{Name: "b"}
	says := map[client.ObjectKey]int{}
	fails := false
	s, err := sharding.New(&rest.Config{Host: "http://hub"}, sharding.Options{
		Namespace: "default",
		Name:      "operator",
		Identity:  "a",
		Slots:     1,
		ClusterWeight: func(c client.ObjectKey) int {
			if fails {
				panic("no weight")
			}
			return says[c]
		},
	})
	require.NoError(t, err)
	weights, loads := map[client.ObjectKey]int{}, []int(nil)
	for _, step := range []struct{ saysA, saysB, a, b, load int }{
		{100, 5000, 100, 1000, 1100}, // at most 1000
		{125, 750, 100, 1000, 1100},  // a change by a quarter
		{126, 749, 126, 749, 875},    // and by more
		{0, 749, 0, 749, 0},          // a slot with a cluster of unknown weight has no load
		{-5, 749, 0, 749, 0},
		{1, 749, 1, 749, 750},
	} {
		says[a], says[b] = step.saysA, step.saysB
		weights, loads = s.Weigh([]client.ObjectKey{a, b}, weights)
		require.Equal(t, map[client.ObjectKey]int{a: step.a, b: step.b}, weights, step)
		require.Equal(t, []int{step.load}, loads, step)
	}
	fails = true
	kept, loads := s.Weigh([]client.ObjectKey{a, b}, weights)
	require.Equal(t, map[client.ObjectKey]int{a: 1, b: 749}, kept)
	require.Equal(t, []int{750}, loads)
}

// tokens returns those of all clusters.
func (g *group) tokens() map[client.ObjectKey]int64 {
	out := map[client.ObjectKey]int64{}
	for _, r := range g.replicas {
		for _, c := range g.clusters {
			if l, ok := r.Lease(c); ok {
				out[c] = l.Token
			}
		}
	}
	return out
}

func TestReplicaHasTheShareOfItsWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 300)
		g.options.Slots, g.options.Standbys = 256, 1
		defer g.stop()
		g.start(2)
		g.options.Weight = 50
		g.start(1)
		g.waitOwned(10 * time.Second)
		time.Sleep(time.Minute)
		counts, _ := g.owned()
		for i, want := range []float64{120, 120, 60} {
			require.InDelta(t, want, counts[i], 0.15*want)
		}
		for _, r := range g.replicas {
			held := 0
			for _, c := range g.clusters {
				if r.Owns(c) || r.StandsBy(c) {
					held++
				}
			}
			require.LessOrEqual(t, held, 300)
		}
	})
}

// TestDrainingReplicaGivesUpAllAndStays drains a replica by a call, and another
// one, the eldest, by the annotation of its Lease.
func TestDrainingReplicaGivesUpAllAndStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 300)
		g.options.Standbys = 1
		defer g.stop()
		g.start(1)
		time.Sleep(2 * time.Second)
		g.start(2)
		g.waitOwned(10 * time.Second)
		time.Sleep(20 * time.Second)
		drained := func(i int) {
			counts, without := g.owned()
			require.Zero(t, without)
			require.Zero(t, counts[i])
			for _, c := range g.clusters {
				require.False(t, g.replicas[i].StandsBy(c))
			}
		}

		g.replicas[1].SetDraining(true)
		time.Sleep(15 * time.Second)
		drained(1)
		g.annotate("operator-0", `"true"`)
		time.Sleep(15 * time.Second)
		drained(0)
		drained(1)
		counts, _ := g.owned()
		require.Equal(t, 300, counts[2])

		g.annotate("operator-0", "null")
		g.replicas[1].SetDraining(false)
		time.Sleep(30 * time.Second)
		counts, without := g.owned()
		require.Zero(t, without)
		for _, n := range counts {
			require.InDelta(t, 100, n, 15)
		}
	})
}

// TestGroupOfReplicasThatAllDrainKeepsItsClusters is what a mistake should do.
func TestGroupOfReplicasThatAllDrainKeepsItsClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 30)
		defer g.stop()
		g.start(2)
		g.waitOwned(10 * time.Second)
		for _, r := range g.replicas {
			r.SetDraining(true)
		}
		time.Sleep(time.Minute)
		_, without := g.owned()
		require.Zero(t, without)
	})
}

// annotate sets the annotation that drains a replica.
func (g *group) annotate(identity, value string) {
	g.t.Helper()
	api, err := coordinationclient.NewForConfig(g.config)
	require.NoError(g.t, err)
	for _, l := range g.leases() {
		if l.Labels["fleetcache.github.io/sharding-role"] == "member" && *l.Spec.HolderIdentity == identity {
			patch := []byte(`{"metadata":{"annotations":{"fleetcache.github.io/sharding-drain":` + value + `}}}`)
			_, err := api.Leases("default").Patch(
				g.t.Context(), l.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			require.NoError(g.t, err)
			return
		}
	}
	require.Fail(g.t, "no replica", identity)
}

// TestReplicaOfOtherClustersDoesNotJoin: two replicas of one group that discover
// different clusters would each leave some to the other.
func TestReplicaOfOtherClustersDoesNotJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 12)
		g.options.Selector = "region=east"
		g.start(1)
		defer g.stop()
		g.waitOwned(10 * time.Second)
		for _, selector := range []string{"", "region=west"} {
			g.options.Selector = selector
			r := g.startAs("other")
			r.wg.Wait()
			var mismatch *sharding.GroupError
			require.ErrorAs(t, r.err, &mismatch)
			require.Equal(t, "region=east", mismatch.Selector)
			require.ErrorContains(t, r.err, `selector "region=east"`)
		}
	})
}
