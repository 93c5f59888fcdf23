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
