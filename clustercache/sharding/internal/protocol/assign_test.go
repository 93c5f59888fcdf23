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
			owners := assign(names(members), free(256), counts)
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
			before := assign(names(n), free(256), counts)

			joined := assign(names(n+1), before, counts)
			requireEven(t, n+1, joined, counts, clusters)
			requireMoved(t, clusters, counts, before, joined, 1/float64(n+1)+0.05)

			// The last one leaves again.
			left := slices.Clone(joined)
			for s, m := range left {
				if m == n {
					left[s] = -1
				}
			}
			after := assign(names(n), left, counts)
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
	for range 2_000 {
		members, counts := names(3), make([]int, 24)
		for _, s := range r.Perm(len(counts))[:6] {
			counts[s] = 1
		}
		owners := assign(members, free(len(counts)), counts)
		require.Equal(t, []int{2, 2, 2}, owned(make([]int, 3), owners, counts))

		members[2] = fmt.Sprintf("operator-%d", r.IntN(100)+3)
		for s, m := range owners {
			if m == 2 {
				owners[s] = -1
			}
		}
		owners = assign(members[:2], owners, counts)
		require.Equal(t, []int{3, 3}, owned(make([]int, 2), owners, counts))
		owners = assign(members, owners, counts)
		require.Equal(t, []int{2, 2, 2}, owned(make([]int, 3), owners, counts))
	}
}

// TestAssignmentIsAFixedPoint is what makes replicas agree once their views
// are equal, and slots stay where they are.
func TestAssignmentIsAFixedPoint(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 2_000 {
		slots, members := 1+r.IntN(300), 1+r.IntN(12)
		holders, counts := free(slots), make([]int, slots)
		for s := range slots {
			if r.IntN(3) > 0 {
				holders[s] = r.IntN(members)
			}
			if r.IntN(2) == 0 {
				counts[s] = r.IntN(1 + r.IntN(200))
			}
		}
		owners := assign(names(members), holders, counts)
		require.NotContains(t, owners, -1)
		require.Equal(t, owners, assign(names(members), owners, counts))
	}
}

// TestASlotIsTakenByItsFirstStandby compares the forecast with what happens.
func TestASlotIsTakenByItsFirstStandby(t *testing.T) {
	members, counts := names(5), spread(1_000, 64)
	owners := assign(members, free(64), counts)
	line := nextInLine(members, owners, counts, 2)
	for gone := range members {
		rest := slices.Delete(slices.Clone(members), gone, gone+1)
		holders := slices.Clone(owners)
		for s, m := range holders {
			switch {
			case m == gone:
				holders[s] = -1
			case m > gone:
				holders[s]--
			}
		}
		after := assign(rest, holders, counts)
		for s, m := range owners {
			if m == gone {
				require.Equal(t, members[line[s][0]], rest[after[s]], "slot %d", s)
				require.Len(t, line[s], 2)
				require.NotContains(t, line[s], gone)
			}
		}
	}
}

// TestSlotsOfKeysDoNotChange protects running groups: members of different
// versions must put a cluster into the same slot.
func TestSlotsOfKeysDoNotChange(t *testing.T) {
	require.Equal(t, []int{155, 11, 187}, []int{SlotOf("", 256), SlotOf("default/a", 256), SlotOf("fleet/east", 256)})
}
