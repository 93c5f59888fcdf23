// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFindingsAgePerGroup: an upgraded server is asked again, and a group does
// not speak for another one.
func TestFindingsAgePerGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fallbackGroups
		require.False(t, g.Has("apps"))
		g.Add("apps")
		time.Sleep(fallbackAge)
		g.Add("batch")
		require.True(t, g.Has("apps"))
		time.Sleep(time.Second)
		require.False(t, g.Has("apps"))
		require.True(t, g.Has("batch"))
		require.False(t, g.Has(""), "nothing is known of the core group")

		g.Forget()
		require.False(t, g.Has("batch"))
	})
}
