// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package backoff_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool/internal/backoff"
)

// TestRefusalsAreRetriedSoonAtFirst: a right that is granted soon is used
// within a second, and one that is granted later within a sixtieth of the time
// for which it was missing.
func TestRefusalsAreRetriedSoonAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r backoff.Refusal
		require.True(t, r.Begin())
		for age := time.Duration(0); age < 2*time.Hour; {
			require.False(t, r.Begin(), "it is the same refusal")
			wait := r.After(1, 30*time.Second)
			longest := min(max(age/60, 900*time.Millisecond), 30*time.Second)
			require.LessOrEqual(t, wait, longest, age)
			require.Greater(t, wait, longest*3/4-1, age)
			time.Sleep(wait)
			age += wait
		}

		require.True(t, r.Lift())
		require.False(t, r.Lift())
		require.False(t, r.Begin(), "what was permitted was forbidden after all")
		require.False(t, r.Lift())
		require.Greater(t, r.After(1, 30*time.Second), 20*time.Second)
		require.True(t, r.End())
		require.False(t, r.Lift(), "there is no refusal")
		require.False(t, r.End())
		require.True(t, r.Begin())
		require.Less(t, r.After(1, 30*time.Second), time.Second, "a refusal after a success is a new one")
	})
}

// TestHazardClusterForbidsManyKinds: however many informers a cluster refuses,
// it receives about two attempts per second, and not fewer than the longest
// wait of other failures allows.
func TestHazardClusterForbidsManyKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r backoff.Refusal
		r.Begin()
		for range 100 {
			wait := r.After(50, 30*time.Second)
			require.GreaterOrEqual(t, wait, 50*500*time.Millisecond*3/4)
			require.LessOrEqual(t, wait, 50*500*time.Millisecond)
			require.LessOrEqual(t, r.After(5000, 30*time.Second), 30*time.Second)
			require.Less(t, r.After(1, time.Millisecond), time.Second, "a limit below the shortest wait is that wait")
		}
	})
}
