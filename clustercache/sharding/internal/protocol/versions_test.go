// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHazardReplicasOfTwoVersionsFightOverAPlan has replicas that plan weights
// and standbys beside some of a former version, which do not know of them,
// whichever is the eldest: every slot has an owner, and none moves without end.
// Once all are of the later version, weights count.
func TestHazardReplicasOfTwoVersionsFightOverAPlan(t *testing.T) {
	for _, former := range []bool{true, false} {
		t.Run(fmt.Sprintf("the eldest is of the former version: %v", former), func(t *testing.T) {
			w := newWorld(1, 64)
			counts := make([]int, w.slots)
			for n := range counts {
				counts[n] = n % 5
			}
			start := func(identity string, former bool) *process {
				w.config.Weight = map[string]int{"c": 50}[identity]
				p := w.start(identity, 1)
				p.old = former
				loads := make([]int, w.slots)
				for n := range loads {
					loads[n] = counts[n] * (1 + n%3) * 10
				}
				p.do(func() {
					p.replica.SetCounts(counts)
					p.replica.SetLoads(loads)
					p.replica.SetDraining(identity == "drained")
				})
				w.run(2 * time.Second)
				return p
			}
			settled := func() {
				t.Helper()
				w.run(3 * time.Minute)
				moves, fills := w.moves, slices.Clone(w.fills)
				w.run(3 * time.Minute)
				require.Equal(t, moves, w.moves)
				require.Equal(t, fills, w.fills)
				for n := range w.slots {
					require.NotNil(t, w.owner(n), "slot %d", n)
				}
				require.Empty(t, w.failures)
			}

			var replicas []*process
			for i, identity := range []string{"a", "b", "c", "drained"} {
				replicas = append(replicas, start(identity, former == (i%2 == 0)))
			}
			settled()
			for i, p := range replicas {
				if p.old {
					p.do(func() { p.replica.Leave(p.clock()) })
					w.run(20 * time.Second)
					require.True(t, p.dead)
					replicas[i] = start(p.identity, false)
				}
				settled()
			}
			owned := map[string]int{}
			for n := range w.slots {
				owned[w.owner(n).identity] += counts[n] * (1 + n%3)
			}
			total := owned["a"] + owned["b"] + owned["c"]
			require.Zero(t, owned["drained"])
			require.InDelta(t, 0.2, float64(owned["c"])/float64(total), 0.03)
			require.InDelta(t, 0.4, float64(owned["a"])/float64(total), 0.06)
		})
	}
}
