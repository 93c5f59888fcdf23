// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package backoff_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool/internal/backoff"
)

// TestHazardWhatSucceedsHappensAgain: a success between two relapses does not
// shorten the wait, and time without one does.
func TestHazardWhatSucceedsHappensAgain(t *testing.T) {
	now := time.Now()
	for name, between := range map[string]time.Duration{"at once": 0, "after a minute": time.Minute,
		"after nine": 9 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			var r backoff.Relapse
			require.Zero(t, r.After(now, 5*time.Minute), "the first one is no relapse")
			times, last := 0, time.Duration(0)
			for at := now; at.Sub(now) < 24*time.Hour; times++ {
				at = at.Add(last + between)
				wait := r.After(at, 5*time.Minute)
				require.GreaterOrEqual(t, wait, last)
				last = wait
			}
			require.Equal(t, 5*time.Minute, last)
			require.Less(t, times, 24*60/5+15)
		})
	}

	var r backoff.Relapse
	for range 100 {
		r.After(now, 5*time.Minute)
	}
	require.Zero(t, r.After(now.Add(15*time.Minute), 5*time.Minute), "it is over")
	require.Positive(t, r.After(now.Add(15*time.Minute), 5*time.Minute))
}
