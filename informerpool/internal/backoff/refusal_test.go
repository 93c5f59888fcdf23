// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package backoff_test

import (
	"sync/atomic"
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
		var refused atomic.Int64
		r := backoff.Refusal{Refused: &refused}
		for age := time.Duration(0); age < 2*time.Hour; {
			wait := r.After(30 * time.Second)
			require.EqualValues(t, 1, refused.Load(), "it is the same refusal")
			longest := min(max(age/60, 900*time.Millisecond), 30*time.Second)
			require.LessOrEqual(t, wait, longest, age)
			require.Greater(t, wait, longest*3/4-1, age)
			time.Sleep(wait)
			age += wait
		}

		require.True(t, r.Lift())
		require.False(t, r.Lift())
		require.Greater(t, r.After(30*time.Second), 20*time.Second, "what was permitted was forbidden after all")
		require.EqualValues(t, 1, refused.Load())
		require.False(t, r.Lift())
		r.End()
		require.Zero(t, refused.Load())
		require.False(t, r.Lift(), "there is no refusal")
		r.End()
		require.Zero(t, refused.Load())
		require.Less(t, r.After(30*time.Second), time.Second, "a refusal after a success is a new one")
		require.EqualValues(t, 1, refused.Load())
	})
}

// TestHazardClusterForbidsManyKinds: however many informers a cluster refuses,
// it receives about two attempts per second, and not fewer than the longest
// wait of other failures allows.
func TestHazardClusterForbidsManyKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Int64
		r := backoff.Refusal{Refused: &refused}
		r.After(30 * time.Second)
		for range 100 {
			refused.Store(50)
			wait := r.After(30 * time.Second)
			require.GreaterOrEqual(t, wait, 50*500*time.Millisecond*3/4)
			require.LessOrEqual(t, wait, 50*500*time.Millisecond)
			refused.Store(5000)
			require.LessOrEqual(t, r.After(30*time.Second), 30*time.Second)
			refused.Store(1)
			require.Less(t, r.After(time.Millisecond), time.Second, "a limit below the shortest wait is that wait")
		}
	})
}
