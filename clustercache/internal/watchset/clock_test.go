// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHazardWallClockJumps: the times from which ages are computed have a
// monotonic reading, which time.Time prints as "m=". A number of nanoseconds
// since 1970 would make a read look a year old when the wall clock is set.
func TestHazardWallClockJumps(t *testing.T) {
	var i instant
	now := time.Now()
	i.set(now)
	require.Contains(t, i.get().String(), " m=")
	require.Zero(t, i.get().Sub(now))

	// A jump of the wall clock falsifies a time without a monotonic reading.
	jumped := now.Round(0).Add(time.Hour)
	require.Zero(t, i.get().Sub(now))
	require.Equal(t, time.Hour, jumped.Sub(now.Round(0)))
}

// TestHazardWallClockJumpsOfAWant: the time of the last read in mode AutoWatch
// has a monotonic reading, too.
func TestHazardWallClockJumpsOfAWant(t *testing.T) {
	w := &Want{auto: true}
	w.used.set(time.Now())
	require.Contains(t, (&Set{}).LastRead(w).String(), " m=")
}
