// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wants

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHazardWallClockJumpsOfAWant: the time of the last read in mode AutoWatch
// has a monotonic reading, which time.Time prints as "m=". A number of
// nanoseconds since 1970 would make a read look a year old when the wall clock
// is set.
func TestHazardWallClockJumpsOfAWant(t *testing.T) {
	s := newSite(t)
	require.Contains(t, s.LastRead(s.Keep(configMaps)).String(), " m=")
}
