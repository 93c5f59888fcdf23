// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// alone returns a world with one replica that owns all four slots.
func alone(t *testing.T) (*world, *process) {
	t.Helper()
	w := newWorld(1, 4)
	p := w.start("a", 1)
	w.run(10 * time.Second)
	requireOwns(t, w, p, 4)
	return w, p
}

func requireOwns(t *testing.T, _ *world, p *process, slots int) {
	t.Helper()
	require.Equal(t, slots, owns(p))
}

// owns returns how many slots a process owns.
func owns(p *process) int {
	owned := 0
	for n := range p.w.slots {
		if _, ok := p.owns(n); ok {
			owned++
		}
	}
	return owned
}

// TestReplicaThatLeavesWhileItJoinsWaitsForItsLease has requests that take long:
// the Lease appears after the replica was asked to leave.
func TestReplicaThatLeavesWhileItJoinsWaitsForItsLease(t *testing.T) {
	w, _ := alone(t)
	w.weather.latency = 500 * time.Millisecond
	for range 20 {
		p := w.start("b", 1)
		w.run(w.upTo(2 * time.Second))
		p.do(func() { p.replica.Leave(p.clock()) })
		w.run(10 * time.Second)
		require.True(t, p.dead, "it has left")
		require.NotContains(t, w.hub.leases, p.name)
	}
}

// TestReplicaWhoseRenewalIsRefusedOwnsNothing has a watch that does not show
// the deletion of the Lease.
func TestReplicaWhoseRenewalIsRefusedOwnsNothing(t *testing.T) {
	w, p := alone(t)
	p.deaf = true
	delete(w.hub.leases, p.name)
	w.run(w.config.Renew + 100*time.Millisecond)
	requireOwns(t, w, p, 0)
}

// TestReplicaOwnsNothingWhenTheGroupBecomesAnother has a charter that was
// deleted, and founded again with other slots, while replicas run.
func TestReplicaOwnsNothingWhenTheGroupBecomesAnother(t *testing.T) {
	w, p := alone(t)
	charter := w.hub.leases[w.config.Charter]
	charter.Slots = 8
	w.hub.put(charter)
	w.notify()
	w.run(time.Second)
	requireOwns(t, w, p, 0)
	_, mismatch := p.replica.Mismatch()
	require.True(t, mismatch)
}

// TestTokensGrowAlthoughALeaseWasDeleted has a slot whose Lease was deleted, and
// created by a replica that did not know its tokens.
func TestTokensGrowAlthoughALeaseWasDeleted(t *testing.T) {
	w, p := alone(t)
	slot := w.hub.leases[w.config.Slot(0)]
	slot.Holder, slot.Token = protocol.HolderID("b", "uid"), 7
	w.hub.put(slot)
	slot.Token = 1
	w.hub.put(slot)
	w.notify()
	w.run(5 * time.Second)
	token, _ := p.replica.Holds(0)
	require.EqualValues(t, 8, token)
}

// TestHazardDrainIsUndone: a renewal that arrives late, a hub that is set back,
// and a Lease that is created anew say something else about draining than the
// replica said last. Its next renewal says it again. What people write stays.
func TestHazardDrainIsUndone(t *testing.T) {
	for _, draining := range []bool{true, false} {
		w, p := alone(t)
		says := func() bool { return w.hub.leases[p.name].Draining }
		p.do(func() { p.replica.SetDraining(!draining) })
		w.run(5 * time.Second)
		require.Equal(t, !draining, says())
		backup, late := maps.Clone(w.hub.leases), w.hub.leases[p.name]
		p.do(func() { p.replica.SetDraining(draining) })
		w.run(5 * time.Second)
		requireStays := func(want bool) {
			t.Helper()
			w.run(2 * w.config.Renew)
			for range 20 {
				require.Equal(t, want, says())
				w.run(time.Second)
			}
		}
		requireStays(draining)

		w.apply(p, protocol.Action{
			Kind:     protocol.Renew,
			Name:     p.name,
			UID:      late.UID,
			Renewal:  late.Renewal,
			Draining: new(!draining),
		})
		require.Equal(t, !draining, says())
		requireStays(draining)

		w.hub.leases = backup
		p.listing = true
		p.watch()
		require.Equal(t, !draining, says())
		requireStays(draining)

		w.hub.apply(protocol.Action{Kind: protocol.Bury, Name: p.name}, nil)
		w.notify()
		w.run(time.Second)
		requireStays(draining)
		require.NotEqual(t, late.UID, w.hub.leases[p.name].UID)

		byHand := w.hub.leases[p.name]
		byHand.Draining = !draining
		w.hub.put(byHand)
		w.notify()
		requireStays(!draining)
		require.Empty(t, w.failures)
	}
}
