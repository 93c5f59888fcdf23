// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// rollout is a group at rest that is updated replica by replica. A replica is
// ready when its share is owned, and its standbys are warm: only then the next
// one ends.
type rollout struct {
	t        *testing.T
	w        *world
	clusters []int // by slot
	all      []*process
}

const (
	rolloutReplicas = 10
	rolloutClusters = 1_000
)

func newRollout(t *testing.T, seed uint64, slots int) *rollout {
	t.Helper()
	r := &rollout{
		t:        t,
		w:        newWorld(seed, slots),
		clusters: make([]int, slots),
	}
	for i := range rolloutClusters {
		r.clusters[protocol.SlotOf(fmt.Sprintf("fleet/cluster-%d-%d", seed, i), slots)]++
	}
	for i := range rolloutReplicas {
		r.start(fmt.Sprintf("operator-%d", i))
	}
	r.await(r.w.processes...)
	return r
}

// start starts a replica, which takes up to 10 s to fill the caches of a slot.
func (r *rollout) start(identity string) *process {
	p := r.w.start(identity, 1)
	p.warming = 10 * time.Second
	r.all = append(r.all, p)
	p.do(func() { p.replica.SetCounts(r.clusters) })
	return p
}

// end ends a replica as SIGTERM does, and waits for it if that is asked for.
func (r *rollout) end(p *process, wait bool) {
	p.do(func() { p.replica.Leave(p.clock()) })
	for wait && !p.dead {
		r.w.run(time.Second)
	}
}

// await waits until replicas are ready for a few seconds, and judges the
// balance.
func (r *rollout) await(processes ...*process) {
	r.t.Helper()
	limit := r.w.now + 5*time.Minute
	for readyFor := 0; readyFor < 5; readyFor++ {
		require.Less(r.t, r.w.now, limit, "the replicas are not ready")
		r.w.run(time.Second)
		if slices.ContainsFunc(processes, func(p *process) bool { return !p.dead && !r.ready(p) }) {
			readyFor = 0
		}
	}
	require.Empty(r.t, r.w.failures)
}

// plan returns that of the eldest member.
func (r *rollout) plan() protocol.Plan {
	for _, l := range r.w.hub.leases {
		if len(l.Plan.Owners) > 0 && !l.Leaving {
			return l.Plan
		}
	}
	return protocol.Plan{}
}

func (r *rollout) ready(p *process) bool {
	plan := r.plan()
	self := slices.Index(plan.Members, p.replica.ID())
	if self < 0 {
		return false
	}
	for n, owner := range plan.Owners {
		_, owns := p.owns(n)
		if owner == self && !owns || p.replica.StandsBy(n) && !p.filled[n] {
			return false
		}
	}
	return true
}

// held returns the clusters that each replica owns or stands by for, as a
// fraction of their mean.
func (r *rollout) held() (deviations []float64) {
	total := 0
	for _, p := range r.w.processes {
		held := 0
		for n, clusters := range r.clusters {
			if _, owns := p.owns(n); owns || p.replica.StandsBy(n) {
				held += clusters
			}
		}
		deviations = append(deviations, float64(held))
		total += held
	}
	for i := range deviations {
		deviations[i] *= float64(len(r.w.processes)) / float64(total)
	}
	return deviations
}

// cost is what a rollout has cost.
type cost struct {
	fills       float64 // of caches, as a multiple of the fleet
	cold, gains int
	least, most float64 // clusters held by a replica, as a fraction of the mean
}

// measure returns the cost of what f does, until all has settled.
func (r *rollout) measure(f func()) cost {
	cold := func() (n int) {
		for _, p := range r.all {
			n += p.cold
		}
		return n
	}
	fills, colds, gains := slices.Clone(r.w.fills), cold(), r.w.moves
	f()
	r.w.run(3 * time.Minute)

	c := cost{
		cold:  cold() - colds,
		gains: r.w.moves - gains,
	}
	filled := 0
	for n := range r.w.fills {
		filled += (r.w.fills[n] - fills[n]) * r.clusters[n]
	}
	c.fills = float64(filled) / rolloutClusters
	held := r.held()
	c.least, c.most = slices.Min(held), slices.Max(held)
	return c
}

// restartInPlace is what a StatefulSet does: each replica ends, and one of its
// name starts.
func (r *rollout) restartInPlace() {
	for i := rolloutReplicas - 1; i >= 0; i-- {
		identity := fmt.Sprintf("operator-%d", i)
		old := slices.IndexFunc(r.w.processes, func(p *process) bool { return p.identity == identity })
		r.end(r.w.processes[old], true)
		r.w.run(10 * time.Second)
		r.await(r.start(identity))
	}
}

// surge is what a Deployment does with maxSurge 1 and maxUnavailable 0: one
// ends when a new one of another name is ready, and the next starts at once.
func (r *rollout) surge() {
	for i, old := range slices.Clone(r.w.processes) {
		r.start(fmt.Sprintf("operator-new-%d", i))
		r.await(slices.DeleteFunc(slices.Clone(r.w.processes), func(p *process) bool { return p == old })...)
		r.end(old, false)
	}
}

// TestHazardRollingRestartFillsCachesOverAndOver restarts ten replicas with a
// standby each. The least that this can fill are two fleets: what each replica
// owns, and what it stands by for.
func TestHazardRollingRestartFillsCachesOverAndOver(t *testing.T) {
	for name, restart := range map[string]func(*rollout){
		"in place":   (*rollout).restartInPlace,
		"with surge": (*rollout).surge,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slots := 256
			if testing.Short() {
				slots = 128
			}
			r := newRollout(t, 1, slots)
			c := r.measure(func() { restart(r) })
			t.Logf("filled %.2f fleets; %d of %d gains were cold; held: %.2f to %.2f of the mean",
				c.fills, c.cold, c.gains, c.least, c.most)
			require.LessOrEqual(t, c.fills, 3.)
			require.LessOrEqual(t, c.cold, c.gains/20)
			require.GreaterOrEqual(t, c.least, 0.85)
			require.LessOrEqual(t, c.most, 1.15)
		})
	}
}
