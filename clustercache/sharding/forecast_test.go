// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
)

// leases returns those of the group.
func (g *group) leases() []coordinationv1.Lease {
	g.t.Helper()
	api, err := coordinationclient.NewForConfig(g.config)
	require.NoError(g.t, err)
	list, err := api.Leases("default").List(g.t.Context(), metav1.ListOptions{
		LabelSelector: "fleetcache.github.io/sharding=operator",
	})
	require.NoError(g.t, err)
	return list.Items
}

// TestForecastIsWhatHappens compares dry runs with what the group does then.
func TestForecastIsWhatHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 300)
		g.options.Standbys = 1
		defer g.stop()
		g.start(4)
		g.waitOwned(10 * time.Second)
		time.Sleep(2 * time.Minute)
		clusters := map[client.ObjectKey]int{}
		for _, c := range g.clusters {
			clusters[c] = 1
		}

		for _, step := range []struct {
			name   string
			change sharding.Change
			do     func()
			cold   bool // slots move to replicas that do not hold them
		}{
			{name: "nothing", do: func() {}},
			{
				name:   "a replica leaves",
				change: sharding.Change{Leave: []string{"operator-1"}},
				do:     func() { require.NoError(t, g.replicas[1].Close(t.Context())) },
			},
			{
				name:   "a replica joins",
				change: sharding.Change{Join: []string{"operator-4"}},
				do:     func() { g.start(1) },
				cold:   true,
			},
			{
				name:   "a replica drains",
				change: sharding.Change{Weights: map[string]int{"operator-2": 0}},
				do:     func() { g.replicas[2].SetDraining(true) },
			},
		} {
			step.change.Clusters = clusters
			forecast, err := sharding.Predict(g.leases(), step.change)
			require.NoError(t, err, step.name)
			before := g.owners()
			step.do()
			time.Sleep(2 * time.Minute)

			want := map[client.ObjectKey]string{}
			for _, m := range forecast.Moves {
				require.Equal(t, len(m.Clusters), m.Weight)
				require.True(t, m.Warm || step.cold, "%s: slot %d", step.name, m.Slot)
				for _, c := range m.Clusters {
					require.Equal(t, before[c], m.From, step.name)
					want[c] = m.To
				}
			}
			got := map[client.ObjectKey]string{}
			for c, owner := range g.owners() {
				if owner != before[c] {
					got[c] = owner
				}
			}
			require.Equal(t, want, got, step.name)
			for _, share := range forecast.Replicas {
				owned, held := 0, 0
				for i, r := range g.replicas {
					if r.name != share.Identity {
						continue
					}
					for _, c := range g.clusters {
						if g.replicas[i].Owns(c) {
							owned++
						}
						if g.replicas[i].Owns(c) || g.replicas[i].StandsBy(c) {
							held++
						}
					}
				}
				require.Equal(t, share.Owned, owned, "%s: %s", step.name, share.Identity)
				require.Equal(t, share.Held, held, "%s: %s", step.name, share.Identity)
			}
		}
	})
}

// TestForecastOfOtherSlots is about a group that is founded anew.
func TestForecastOfOtherSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 300)
		g.options.Standbys = 1
		defer g.stop()
		g.start(3)
		g.waitOwned(10 * time.Second)
		clusters := map[client.ObjectKey]int{}
		for _, c := range g.clusters {
			clusters[c] = 1
		}
		forecast, err := sharding.Predict(g.leases(), sharding.Change{Slots: 128, Standbys: -1, Clusters: clusters})
		require.NoError(t, err)
		owners, after := g.owners(), map[string]int{}
		for c, owner := range owners {
			require.NotEmpty(t, owner, c)
			after[owner]++
		}
		require.NotEmpty(t, forecast.Moves)
		for _, m := range forecast.Moves {
			require.NotEqual(t, m.From, m.To)
			for _, c := range m.Clusters {
				require.Equal(t, owners[c], m.From)
				after[m.From]--
				after[m.To]++
			}
		}
		for _, share := range forecast.Replicas {
			require.InDelta(t, 100, share.Owned, 15)
			require.Equal(t, after[share.Identity], share.Owned)
			require.Equal(t, share.Owned, share.Held)
		}
	})
}

// TestForecastIsByTheWeightsOfClusters has every tenth weigh as much as ten
// others, with the slots of the group and with others, and without weights those
// that the plan has.
func TestForecastIsByTheWeightsOfClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 300)
		g.options.Slots = 256
		defer g.stop()
		g.start(3)
		g.waitOwned(10 * time.Second)
		time.Sleep(time.Minute)
		leases, clusters, total := g.leases(), map[client.ObjectKey]int{}, 0
		for i, c := range g.clusters {
			clusters[c] = 1
			if i%10 == 0 {
				clusters[c] = 10
			}
			total += clusters[c]
		}
		for _, slots := range []int{256, 200} {
			forecast, err := sharding.Predict(leases, sharding.Change{Slots: slots, Clusters: clusters})
			require.NoError(t, err)
			sum := 0
			for _, share := range forecast.Replicas {
				require.InDelta(t, total/3, share.Owned, 0.15*float64(total)/3)
				sum += share.Owned
			}
			require.Equal(t, total, sum)
			for _, m := range forecast.Moves {
				weight := 0
				for _, c := range m.Clusters {
					weight += clusters[c]
				}
				require.Equal(t, weight, m.Weight)
			}
		}

		forecast, err := sharding.Predict(leases, sharding.Change{Weights: map[string]int{"operator-1": 400}})
		require.NoError(t, err)
		for i, want := range []float64{50, 200, 50} {
			require.InDelta(t, want, forecast.Replicas[i].Owned, 0.15*want)
			require.LessOrEqual(t, forecast.Replicas[i].Fills, forecast.Replicas[i].Owned)
		}
		require.Zero(t, forecast.Replicas[0].Fills)

		for i := range leases {
			if l := &leases[i]; l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == "operator-2" {
				l.Annotations["fleetcache.github.io/sharding-leaving"] = "true"
			}
		}
		forecast, err = sharding.Predict(leases, sharding.Change{})
		require.NoError(t, err)
		require.Len(t, forecast.Replicas, 2, "one leaves")
	})
}

// TestForecastRefusesWhatCannotBe names the field.
func TestForecastRefusesWhatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 30)
		defer g.stop()
		g.start(2)
		g.waitOwned(10 * time.Second)
		leases := g.leases()
		for field, change := range map[string]sharding.Change{
			"Change.Join":    {Join: []string{"operator-0"}},
			"Change.Leave":   {Leave: []string{"operator-9"}},
			"Change.Slots":   {Slots: 128},
			"Change.Weights": {Weights: map[string]int{"operator-9": 50}},
		} {
			_, err := sharding.Predict(leases, change)
			var option *sharding.OptionError
			require.ErrorAs(t, err, &option)
			require.Equal(t, field, option.Field)
		}
		clusters := map[client.ObjectKey]int{{Name: "a"}: 1}
		_, err := sharding.Predict(leases, sharding.Change{Slots: 4097, Clusters: clusters})
		require.ErrorContains(t, err, "4097 is not between 1 and 4096")
		_, err = sharding.Predict(leases, sharding.Change{Weights: map[string]int{"operator-0": 1001}})
		require.ErrorContains(t, err, "1001 of operator-0 is not between 0 and 1000")
		_, err = sharding.Predict(leases, sharding.Change{Leave: []string{"operator-0", "operator-1"}})
		require.ErrorContains(t, err, "no replica is left")
		_, err = sharding.Predict(slices.Clone(leases)[:0], sharding.Change{})
		require.ErrorContains(t, err, "no Lease of the group has a plan")
	})
}

// owners returns the identity of each cluster's owner.
func (g *group) owners() map[client.ObjectKey]string {
	out := map[client.ObjectKey]string{}
	for _, r := range g.replicas {
		for _, c := range g.clusters {
			if r.Owns(c) {
				out[c] = r.name
			}
		}
	}
	return out
}
