// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/repeat"
)

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("operator-%d", i)
	}
	return out
}

// spread hashes clusters to slots.
func spread(clusters, slots int) []int {
	counts := make([]int, slots)
	for i := range clusters {
		counts[SlotOf("default/cluster-"+strconv.Itoa(i), slots)]++
	}
	return counts
}

func free(slots int) []int { return slices.Repeat([]int{-1}, slots) }

// owning assigns slots to members without standbys.
func owning(members []string, holders, counts []int) []int {
	return assign(crewOf(members), seats{owners: holders}, counts, true).owners
}

func crewOf(members []string) crew {
	return crew{identities: members, weights: slices.Repeat([]int{DefaultWeight}, len(members))}
}

// vacancies are the seats of slots that no member has.
func vacancies(slots, standbys int) seats {
	out := seats{owners: free(slots)}
	for range standbys {
		out.standbys = append(out.standbys, free(slots))
	}
	return out
}

// owned returns the clusters of each member.
func owned(members, owners, counts []int) []int {
	out := slices.Clone(members)
	for s, m := range owners {
		out[m] += counts[s]
	}
	return out
}

func requireEven(t *testing.T, members int, owners, counts []int, clusters int) {
	t.Helper()
	mean := float64(clusters) / float64(members)
	for m, n := range owned(make([]int, members), owners, counts) {
		require.InDelta(t, mean, n, 0.15*mean, "member %d", m)
	}
}

// TestOwnedCountsAreWithin15PercentOfTheMean has at least 50 clusters per
// replica, at which hashing alone deviates by 14 % on average.
func TestOwnedCountsAreWithin15PercentOfTheMean(t *testing.T) {
	for members := 2; members <= 12; members++ {
		for _, clusters := range []int{50 * members, 1_000, 10_000} {
			counts := spread(clusters, 256)
			owners := owning(names(members), free(256), counts)
			requireEven(t, members, owners, counts, clusters)
		}
	}
}

// TestMembersThatComeAndGoMoveTheirShareAlone also checks that the rest stays
// even.
func TestMembersThatComeAndGoMoveTheirShareAlone(t *testing.T) {
	for n := 2; n <= 11; n++ {
		for _, clusters := range []int{50 * (n + 1), 10_000} {
			counts := spread(clusters, 256)
			before := owning(names(n), free(256), counts)

			joined := owning(names(n+1), before, counts)
			requireEven(t, n+1, joined, counts, clusters)
			requireMoved(t, clusters, counts, before, joined, 1/float64(n+1)+0.05)

			// The last one leaves again.
			left := slices.Clone(joined)
			for s, m := range left {
				if m == n {
					left[s] = -1
				}
			}
			after := owning(names(n), left, counts)
			requireEven(t, n, after, counts, clusters)
			requireMoved(t, clusters, counts, joined, after, 1/float64(n+1)+0.05)
		}
	}
}

func requireMoved(t *testing.T, clusters int, counts, before, after []int, most float64) {
	t.Helper()
	moved := 0
	for s := range before {
		if before[s] != after[s] {
			moved += counts[s]
		}
	}
	require.LessOrEqual(t, float64(moved), most*float64(clusters))
}

// TestFewClustersAreSharedEvenly has six clusters in slots of their own, and a
// member that leaves and comes back. Light slots that moved first would leave a
// difference that no heavy one fits into.
func TestFewClustersAreSharedEvenly(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range repeat.Times(2_000) {
		members, counts := names(3), make([]int, 24)
		for _, s := range r.Perm(len(counts))[:6] {
			counts[s] = 1
		}
		owners := owning(members, free(len(counts)), counts)
		require.Equal(t, []int{2, 2, 2}, owned(make([]int, 3), owners, counts))

		members[2] = fmt.Sprintf("operator-%d", r.IntN(100)+3)
		for s, m := range owners {
			if m == 2 {
				owners[s] = -1
			}
		}
		owners = owning(members[:2], owners, counts)
		require.Equal(t, []int{3, 3}, owned(make([]int, 2), owners, counts))
		owners = owning(members, owners, counts)
		require.Equal(t, []int{2, 2, 2}, owned(make([]int, 3), owners, counts))
	}
}

// TestAssignmentIsAFixedPoint is what makes slots and standbys stay where they
// are. Seats that are vacant stay so until they are filled.
func TestAssignmentIsAFixedPoint(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range repeat.Times(2_000) {
		slots, members := 1+r.IntN(300), 1+r.IntN(12)
		crew, have, counts := crewOf(names(members)), vacancies(slots, r.IntN(3)), make([]int, slots)
		for m := range members {
			crew.weights[m] = []int{0, 50, 100, 100, 100, 300}[r.IntN(6)]
		}
		for s := range slots {
			for _, rank := range append(have.standbys, have.owners) {
				if r.IntN(3) > 0 {
					rank[s] = r.IntN(members)
				}
			}
			if r.IntN(2) == 0 {
				counts[s] = r.IntN(1 + r.IntN(200))
			}
		}
		fill := r.IntN(2) == 0
		got := assign(crew, have, counts, fill)
		require.NotContains(t, got.owners, -1)
		for s := range slots {
			requireDistinct(t, got, s)
		}
		if !fill {
			got = assign(crew, got, counts, fill) // what standbys had to take over moves now
		}
		require.Equal(t, got, assign(crew, got, counts, fill), "case %d", i)
	}
}

func requireDistinct(t *testing.T, s seats, slot int) {
	t.Helper()
	seen := map[int]bool{s.owners[slot]: true}
	for _, rank := range s.standbys {
		if m := rank[slot]; m >= 0 {
			require.False(t, seen[m], "slot %d has a member twice", slot)
			seen[m] = true
		}
	}
}

// heldBy returns the clusters that each member owns or stands by for.
func heldBy(members int, have seats, counts []int) []int {
	out := owned(make([]int, members), have.owners, counts)
	for _, rank := range have.standbys {
		for s, m := range rank {
			if m >= 0 {
				out[m] += counts[s]
			}
		}
	}
	return out
}

// filled returns the clusters whose caches each member has to fill, as a share
// of all clusters.
func filled(members int, before, after seats, counts []int) (fills []float64) {
	fills = make([]float64, members)
	total := 0
	for s, n := range counts {
		total += n
		for m := range members {
			if after.has(s, m) && !before.has(s, m) {
				fills[m] += float64(n)
			}
		}
	}
	for m := range fills {
		fills[m] /= float64(total)
	}
	return fills
}

// without returns the seats when a member has gone.
func (s seats) without(member int) seats {
	out := s.clone()
	for _, rank := range append(out.standbys, out.owners) {
		for n, m := range rank {
			if m == member {
				rank[n] = -1
			}
		}
	}
	return out
}

func requireHeldEvenly(t *testing.T, members int, have seats, counts []int) {
	t.Helper()
	held, sum := heldBy(members, have, counts), 0
	for _, n := range held {
		sum += n
	}
	mean := float64(sum) / float64(members)
	for m, n := range held {
		require.InDelta(t, mean, n, 0.15*mean, "member %d of %d, %d standbys", m, members, len(have.standbys))
	}
}

// TestHeldClustersAreWithin15PercentOfTheMean has members that join, and that
// restart. Those that stay fill next to nothing; those that come fill what they
// hold then.
func TestHeldClustersAreWithin15PercentOfTheMean(t *testing.T) {
	for n := 3; n <= 12; n++ {
		counts, crew := spread(1_000, 256), crewOf(names(n))
		have := assign(crewOf(names(n-1)), vacancies(256, 1), counts, true)
		requireHeldEvenly(t, n-1, have, counts)

		joined := assign(crew, have, counts, true)
		requireHeldEvenly(t, n, joined, counts)
		share := 2 / float64(n)
		others := 0.
		fills := filled(n, have, joined, counts)
		for _, f := range fills[:n-1] {
			others += f
		}
		require.LessOrEqual(t, others, 0.06, "%d members", n)
		require.InDelta(t, share, fills[n-1], 0.15*share)

		for gone := range n { // and returns, one after another
			left := assign(crewWithout(n, gone), joined.without(gone), counts, false)
			returned := assign(crew, assign(crew, left, counts, false), counts, true)
			requireHeldEvenly(t, n, returned, counts)
			others, fills := 0., filled(n, left, returned, counts)
			for m, f := range filled(n, joined, left, counts) {
				if m != gone {
					others += f + fills[m]
				}
			}
			require.LessOrEqual(t, others, 0.06, "%d members", n)
			joined = returned
		}
	}
}

// TestStandbysTakeOverEvenly has ten members with 1,000 clusters, which restart
// three times each: then one goes for good. docs/sharding.md has the figures.
func TestStandbysTakeOverEvenly(t *testing.T) {
	const members, clusters = 10, 1_000
	for _, slots := range []int{64, 256, 1024} {
		for standbys := range 3 {
			counts, crew := spread(clusters, slots), crewOf(names(members))
			have := assign(crew, vacancies(slots, standbys), counts, true)
			var held []int // at any time
			for i := range 3 * members {
				gone := i % members
				have = assign(crewWithout(members, gone), have.without(gone), counts, false)
				have = assign(crew, have, counts, false)
				held = append(held, heldBy(members, have, counts)...)
			}
			mean := float64(clusters * (1 + standbys) / members)
			require.InDelta(t, mean, slices.Min(held), 0.15*mean)
			require.InDelta(t, mean, slices.Max(held), 0.15*mean)

			ownedMost, heldMost, filledMost := 0, 0, 0
			for gone := range members {
				rest := crewWithout(members, gone)
				left := assign(rest, have.without(gone), counts, false)
				ownedMost = max(ownedMost, slices.Max(owned(make([]int, members), left.owners, counts)))
				heldMost = max(heldMost, slices.Max(heldBy(members, left, counts)))
				full := assign(rest, left, counts, true)
				filledMost = max(filledMost, slices.Max(heldBy(members, full, counts)))
			}
			require.LessOrEqual(t, float64(ownedMost), 1.15*clusters/(members-1))
			require.LessOrEqual(t, float64(filledMost), 1.15*mean*members/(members-1))
			t.Logf("%d slots, %d standbys: each holds %d to %d; when one has gone, others own up to %d, "+
				"and hold up to %d, and %d later",
				slots, standbys, slices.Min(held), slices.Max(held), ownedMost, heldMost, filledMost)
		}
	}
}

// crewWithout has a member that gets nothing.
func crewWithout(members, gone int) crew {
	c := crewOf(names(members))
	c.weights[gone] = 0
	return c
}

// TestMembersOwnByTheirWeights also has standbys by them.
func TestMembersOwnByTheirWeights(t *testing.T) {
	counts := spread(1_000, 256)
	members := crew{identities: names(4), weights: []int{100, 100, 50, 0}}
	got := assign(members, vacancies(256, 1), counts, true)
	for m, want := range []float64{400, 400, 200, 0} {
		require.InDelta(t, want, owned(make([]int, 4), got.owners, counts)[m], 0.15*want)
	}
	require.Zero(t, heldBy(4, got, counts)[3])
}

// TestWeightOfAMember is what its Lease says, within bounds.
func TestWeightOfAMember(t *testing.T) {
	for says, want := range map[int]int{0: DefaultWeight, -1: DefaultWeight, 50: 50, 1000: 1000, 5000: MaxWeight} {
		lease := Lease{Weight: says}
		require.Equal(t, want, lease.Candidate().Weight, says)
		lease.Draining = true
		require.Zero(t, lease.Candidate().Weight)
	}
}

// TestLoadOfASlotIsWhatItsHolderSays, or another member that keeps its caches, or
// what was said last. Slots of unknown load have the mean of the others.
func TestLoadOfASlotIsWhatItsHolderSays(t *testing.T) {
	r := New(Config{Slots: 4, Slot: func(int) string { return "" }})
	says := func(id string, loads map[int]int) *member {
		return &member{id: id, held: held{Lease: Lease{Loads: loads}}}
	}
	r.own.counts = []int{2, 2, 2, 1}
	r.members = []*member{says("a", map[int]int{0: 10, 1: 30}), says("b", map[int]int{0: 20, 1: 99})}
	r.slots[0].Holder, r.slots[1].Holder = "b", "a"
	s := step{Replica: r}
	require.Equal(t, []int{20, 30, 25, 12}, s.counted())
	r.members = nil
	require.Equal(t, []int{20, 30, 25, 12}, s.counted(), "as was said last")
	r.own.counts[1] = 0
	require.Equal(t, []int{20, 0, 20, 10}, s.counted(), "without clusters")

	r.own.loads = []int{5, 6, 0, 8}
	r.slots[1].warm, r.slots[2].warm = true, true
	require.Equal(t, map[int]int{1: 6}, s.weighed(), "of the slots that it keeps warm, as far as it knows")
}

// TestASlotIsTakenByItsFirstStandby is what a standby is for.
func TestASlotIsTakenByItsFirstStandby(t *testing.T) {
	members, counts := crewOf(names(5)), spread(1_000, 64)
	before := assign(members, vacancies(64, 2), counts, true)
	for gone := range members.identities {
		have := before.clone()
		for s := range counts {
			for _, rank := range append(have.standbys, have.owners) {
				if rank[s] == gone {
					rank[s] = -1
				}
			}
		}
		after := succeed(members, have, counts, 2)
		for s, m := range before.owners {
			if m == gone {
				require.Equal(t, before.standbys[0][s], after.owners[s], "slot %d", s)
				require.Equal(t, []int{before.standbys[1][s], -1}, []int{after.standbys[0][s], after.standbys[1][s]})
			} else {
				require.Equal(t, m, after.owners[s])
			}
		}
	}
}

// TestSlotsOfKeysDoNotChange protects running groups: members of different
// versions must put a cluster into the same slot.
func TestSlotsOfKeysDoNotChange(t *testing.T) {
	require.Equal(t, []int{155, 11, 187}, []int{SlotOf("", 256), SlotOf("default/a", 256), SlotOf("fleet/east", 256)})
}

// TestHazardSlotOfAMemberThatHasGoneGoesToEmptyCaches has a member that goes,
// and loads that are uneven then: slots that wait for caches move, and those of
// the one that has gone go to their standbys.
func TestHazardSlotOfAMemberThatHasGoneGoesToEmptyCaches(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	for i := range repeat.Times(300) {
		members, counts := 3+r.IntN(6), make([]int, 16+r.IntN(64))
		for s := range counts {
			counts[s] = r.IntN(20)
		}
		crew := crewOf(names(members))
		before := assign(crew, vacancies(len(counts), 1), counts, true)
		gone := r.IntN(members)
		crew.weights[gone] = 0
		after := assign(crew, before, counts, false)
		for s, m := range before.owners {
			if m == gone {
				require.Equal(t, before.standbys[0][s], after.owners[s], "case %d, slot %d", i, s)
			}
		}
		require.NotContains(t, assign(crew, after, counts, true).owners, gone)
	}
}
