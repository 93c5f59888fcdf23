// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHazardWallClockJumpsOfAnInformer(t *testing.T) {
	c := clock{zero: time.Now()}
	require.Contains(t, c.At(c.Now()).String(), " m=",
		"an age is computed from the monotonic clock, whatever the wall clock says")
	require.True(t, c.At(0).IsZero())
}
