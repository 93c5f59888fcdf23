// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// requireAllOwned fails if a slot has no owner.
func requireAllOwned(t *testing.T, w *world) {
	t.Helper()
	for n := range w.slots {
		require.NotNil(t, w.owner(n), "slot %d at %v", n, w.now)
	}
	require.Empty(t, w.failures)
}

// TestHazardAnswersToOneReplicaAreLate: its writes are carried out, and it sees
// them in its watch. It keeps its slots, and, as the eldest member, gives others
// their share.
func TestHazardAnswersToOneReplicaAreLate(t *testing.T) {
	for _, late := range []time.Duration{3 * time.Second, 5 * time.Second, 9 * time.Second, time.Hour} {
		w := newWorld(1, 8)
		a := w.start("a", 1)
		w.run(5 * time.Second)
		b := w.start("b", 1)
		w.run(time.Minute)
		before := maps.Clone(a.losses)

		a.late = late
		for range 120 {
			w.run(time.Second)
			requireAllOwned(t, w)
		}
		require.Equal(t, before, a.losses)
		requireOwns(t, w, a, 4)

		// The eldest member plans all the same.
		c := w.start("c", 1)
		w.run(2 * time.Minute)
		requireAllOwned(t, w)
		owned := map[*process]int{}
		for n := range w.slots {
			owned[w.owner(n)]++
		}
		for _, p := range []*process{a, b, c} {
			require.InDelta(t, 3, owned[p], 1, "%s, late by %v", p.name, late)
		}
	}
}

// TestHazardWritesTakeLong: a hub that takes up to eight seconds for each write
// costs nothing but slowness: a group is founded, and what is owned stays so.
func TestHazardWritesTakeLong(t *testing.T) {
	for _, slow := range []time.Duration{3100 * time.Millisecond, 5 * time.Second, 7900 * time.Millisecond} {
		w := newWorld(1, 8)
		w.weather.slow = slow
		a := w.start("a", 1)
		b := w.start("b", 1)
		w.run(8*slow + 10*time.Second)
		requireAllOwned(t, w)
		ofA, ofB := maps.Clone(a.losses), maps.Clone(b.losses)
		for range 120 {
			w.run(time.Second)
			requireAllOwned(t, w)
		}
		require.Equal(t, ofA, a.losses, "writes take %v", slow)
		require.Equal(t, ofB, b.losses, "writes take %v", slow)
		require.Zero(t, a.refreshes+b.refreshes, "writes take %v", slow)
	}
}

// silencedFor is how long it takes until the others own the slots of a replica
// that the hub hears, and that does not hear the hub: it renews until OwnFor after
// the last renewal of which it knows that it succeeded, and they wait for DeadAfter
// from then on, or from when they can renew themselves.
const silencedFor = 30 * time.Second

// TestHazardReplicaHearsNothingAndIsHeard: its renewals arrive, and no answer,
// nor what its watch should show, reaches it. It owns nothing any more, and so it
// does not renew: the others take its slots, the eldest member or not.
func TestHazardReplicaHearsNothingAndIsHeard(t *testing.T) {
	for silenced := range 2 {
		for _, others := range []int{1, 2} {
			w := newWorld(1, 8)
			a := w.start("a", 1)
			w.run(5 * time.Second)
			all := []*process{a, w.start("b", 1)}
			if others == 2 {
				all = append(all, w.start("c", 1))
			}
			w.run(2 * time.Minute)
			requireAllOwned(t, w)

			p := all[silenced]
			p.silenced, p.deaf = true, true
			w.run(silencedFor)
			for range 120 {
				requireAllOwned(t, w)
				w.run(time.Second)
			}
			d := w.start("d", 1) // the next eldest member plans
			w.run(time.Minute)
			require.InDelta(t, 8/(others+1), owns(d), 1)
			require.Zero(t, owns(p))

			p.silenced = false
			w.run(haltedFor)
			requireAllOwned(t, w)
			w.run(time.Minute)
			require.InDelta(t, 8/(others+2), owns(p), 1)
		}
	}
}

// TestHazardReplicaJoinsAndHearsNothing: the first renewal of a replica, and
// those that follow, arrive, and it knows of none. The others do not wait for it
// to take what the plan gives it.
func TestHazardReplicaJoinsAndHearsNothing(t *testing.T) {
	w := newWorld(1, 8)
	w.start("a", 1)
	w.run(time.Minute)
	b := w.start("b", 1)
	for b.replica.ID() == "" {
		w.run(time.Millisecond)
	}
	b.silenced, b.deaf = true, true
	w.run(w.config.WarmFor + silencedFor)
	for range 120 {
		requireAllOwned(t, w)
		w.run(time.Second)
	}
}

// TestHazardAnswersAreLostAndTheWatchIsSilent: each is replaced by a list, before
// anything is lost.
func TestHazardAnswersAreLostAndTheWatchIsSilent(t *testing.T) {
	for _, test := range []struct {
		late   time.Duration
		silent bool
	}{{time.Hour, false}, {0, true}, {time.Hour, true}} {
		w := newWorld(1, 8)
		a := w.start("a", 1)
		w.run(5 * time.Second)
		w.start("b", 1)
		w.run(time.Minute)
		before := maps.Clone(a.losses)
		a.late = test.late
		for range 120 {
			a.deaf = test.silent // each watch falls silent
			w.run(time.Second)
			requireAllOwned(t, w)
		}
		require.Equal(t, before, a.losses, "%v", test)
	}
}
