// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/sharding"
)

// seen returns who has what, by the Leases of the group.
func (g *group) seen() *ownership.Group {
	g.t.Helper()
	out, err := sharding.Owners(g.leases(), time.Now())
	require.NoError(g.t, err)
	return out
}

// agree requires that the Leases, and each replica, say who owns each cluster
// and who stands by for it, and that these do. It returns what they say.
func (g *group) agree() *ownership.Group {
	g.t.Helper()
	seen := g.seen()
	for _, r := range g.replicas {
		own := r.Owners(g.t.Context())
		require.Empty(g.t, own.Trouble)
		require.Equal(g.t, seen.Slots, own.Slots)
		for i := range own.Replicas {
			require.WithinDuration(g.t, seen.Replicas[i].Renewed, own.Replicas[i].Renewed, time.Second)
			own.Replicas[i].Renewed = seen.Replicas[i].Renewed
		}
		require.Equal(g.t, seen.Replicas, own.Replicas)
	}
	for _, c := range g.clusters {
		for _, r := range g.replicas {
			slot := seen.Slots[r.Slot(c)]
			lease, owns := r.Lease(c)
			require.Equal(g.t, owns, slot.Owner == r.name, "%s: %+v", r.name, slot)
			if slot.Reason == "" { // an heir fills its caches without being a standby
				require.Equal(g.t, r.StandsBy(c), strings.Join(slot.Standbys, " ") == r.name, "%s: %+v", r.name, slot)
			}
			if owns {
				require.Equal(g.t, lease.Token, slot.Token)
			}
		}
	}
	return seen
}

// reasons returns the reasons of slots without an owner, and of those with one.
func reasons(g *ownership.Group) (unowned, owned map[string]int) {
	unowned, owned = map[string]int{}, map[string]int{}
	for _, s := range g.Slots {
		if s.Owner == "" {
			unowned[s.Reason]++
		} else if s.Reason != "" {
			owned[s.Reason]++
		}
	}
	return unowned, owned
}

// TestOwnersAreKnownSinceWhenAndWhyNot kills a replica, and takes the hub away.
func TestOwnersAreKnownSinceWhenAndWhyNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 300)
		g.options.Standbys = 1
		defer g.stop()
		begin := time.Now()
		g.start(3)
		g.waitOwned(10 * time.Second)
		time.Sleep(time.Minute)
		seen := g.agree()
		require.Empty(t, seen.Trouble)
		weight := 0
		for _, s := range seen.Slots {
			require.Empty(t, s.Reason)
			require.WithinRange(t, s.Since, begin, begin.Add(10*time.Second))
			weight += s.Weight
		}
		require.Equal(t, 300, weight)
		require.Len(t, seen.Replicas, 3)
		for i, r := range seen.Replicas {
			require.Equal(t, g.replicas[i].name, r.Identity)
			require.Empty(t, r.State)
			require.WithinRange(t, r.Renewed, time.Now().Add(-3*time.Second), time.Now())
			require.Positive(t, r.StandsBy)
		}
		held := seen.Replicas[1].Owned

		g.replicas[1].cut.Store(true)
		killed := time.Now()
		time.Sleep(12 * time.Second)
		seen = g.seen()
		require.Equal(t, "silent", seen.Replicas[1].State)
		require.Zero(t, seen.Replicas[1].Owned)
		unowned, _ := reasons(seen)
		require.Len(t, unowned, 1)
		for reason, slots := range unowned {
			require.Regexp(t,
				`^operator-1 has it, and has not renewed its Lease for 1[2-4]s; others take over after 15s$`, reason)
			require.Equal(t, held, slots)
		}
		require.Equal(t, seen.Slots, g.replicas[0].Owners(t.Context()).Slots)
		cut := g.replicas[1].Owners(t.Context())
		require.Regexp(t, `^this replica has not reached the hub for 1[2-4]s$`, cut.Trouble)
		unowned, _ = reasons(cut)
		require.Equal(t, map[string]int{"unknown: " + cut.Trouble: 64}, unowned)

		time.Sleep(10 * time.Second)
		seen = g.seen()
		require.Len(t, seen.Replicas, 2)
		moved := 0
		for _, s := range seen.Slots {
			require.NotEmpty(t, s.Owner)
			if s.Since.After(killed) {
				moved++
			}
		}
		require.Equal(t, held, moved)
	})
}

// TestOwnersOfAGroupWithoutAHub: no replica pretends to know.
func TestOwnersOfAGroupWithoutAHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 30)
		g.prepare = func(s *sharding.Sharding) {
			require.Contains(t, s.Owners(t.Context()).Trouble, "this replica does not run")
		}
		g.away.Store(true)
		defer g.stop()
		g.start(2)
		time.Sleep(time.Minute)
		for _, r := range g.replicas {
			require.Contains(t, r.Owners(t.Context()).Trouble, "the hub has not answered it yet")
		}
		g.away.Store(false)
		g.waitOwned(time.Minute)
		time.Sleep(10 * time.Second)
		g.agree()

		g.away.Store(true)
		time.Sleep(30 * time.Second)
		for _, r := range g.replicas {
			seen := r.Owners(t.Context())
			require.Regexp(t, `^this replica has not reached the hub for 3[0-2]s$`, seen.Trouble)
			for _, x := range seen.Replicas {
				require.Zero(t, x.Owned)
			}
		}
		seen := g.seen()
		require.Equal(t, "no replica renews its Lease: none runs, or none reaches the hub", seen.Trouble)

		g.away.Store(false)
		g.waitOwned(time.Minute)
		time.Sleep(10 * time.Second)
		g.agree()
		ended := time.Now()
		g.stop()
		require.Equal(t, "this replica has ended", g.replicas[0].Owners(t.Context()).Trouble)
		seen = g.seen()
		require.Empty(t, seen.Replicas)
		unowned, _ := reasons(seen)
		require.Equal(t, map[string]int{"no replica runs": 64}, unowned)
		for _, s := range seen.Slots {
			require.False(t, s.Since.Before(ended.Truncate(time.Microsecond)), "released then")
		}
		_, err := sharding.Owners(nil, time.Now())
		require.ErrorContains(t, err, "leases: the Lease of the group is required, and is not among them")
	})
}

// TestOwnersOfSlotsThatMove drains a replica whose heir has caches to fill and
// whose own work does not end.
func TestOwnersOfSlotsThatMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 30)
		g.options.WarmTimeout, g.options.DrainTimeout = 5*time.Minute, 5*time.Minute
		defer g.stop()
		var warms, drains []sharding.Event
		block := false
		g.prepare = func(s *sharding.Sharding) {
			s.Subscribe(func(e sharding.Event) {
				switch {
				case !block:
					e.Done()
				case e.Type == sharding.Warm:
					warms = append(warms, e)
				case e.Type == sharding.Draining:
					drains = append(drains, e)
				}
			})
		}
		g.start(2)
		g.waitOwned(10 * time.Second)
		time.Sleep(10 * time.Second)
		held := g.agree().Replicas[0].Owned
		synctest.Wait()
		block = true

		g.replicas[0].SetDraining(true)
		time.Sleep(10 * time.Second)
		seen := g.agree()
		require.Equal(t, "draining", seen.Replicas[0].State)
		_, owned := reasons(seen)
		require.Equal(t, map[string]int{"operator-1 gets it once its caches are filled": held}, owned)

		synctest.Wait()
		for _, e := range warms {
			e.Done()
		}
		time.Sleep(10 * time.Second)
		_, owned = reasons(g.agree())
		require.Equal(t, map[string]int{"operator-1 gets it once the work on it has ended": held}, owned)
		synctest.Wait()
		block = false
		for _, e := range drains {
			e.Done()
		}
		time.Sleep(10 * time.Second)
		seen = g.agree()
		require.Equal(t, "draining", seen.Replicas[0].State)
		require.Zero(t, seen.Replicas[0].Owned)
		require.Equal(t, 64, seen.Replicas[1].Owned)
	})
}

// TestOwnersOfASlotWhoseNameIsTaken is known to the replica that was to take it.
func TestOwnersOfASlotWhoseNameIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 12)
		g.options.Slots = 2
		defer g.stop()
		g.put("operator-slot-001", "somebody", nil, nil)
		r := g.start(1)[0]
		time.Sleep(time.Minute)
		unowned, _ := reasons(r.Owners(t.Context()))
		require.Equal(t, map[string]int{
			"the name of its Lease, operator-slot-001, is taken by another program": 1,
		}, unowned)
		unowned, _ = reasons(g.seen())
		require.Equal(t, map[string]int{"operator-0 is to have it, and has not taken it yet": 1}, unowned)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		require.Contains(t, []string{"", "context canceled"}, r.Owners(canceled).Trouble, "it blocks on nothing else")
	})
}
