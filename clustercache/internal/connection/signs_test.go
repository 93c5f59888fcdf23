// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHazardOneGroupsHistoryRenewsTheCluster: a cluster's history has ended if
// the core group's has, or if two groups' have together.
func TestHazardOneGroupsHistoryRenewsTheCluster(t *testing.T) {
	now := time.Now()
	var r rollbacks
	for range 3 { // an extension server that restarts every hour
		require.False(t, r.spread("metrics.example.org", now))
		require.False(t, r.spread("metrics.example.org", now.Add(time.Second)))
		now = now.Add(time.Hour)
	}
	require.False(t, r.spread("apps", now))
	require.True(t, r.spread("batch", now.Add(time.Second)))
	require.True(t, r.spread("", now.Add(time.Hour)))
	now = now.Add(2 * time.Hour)
	require.False(t, r.spread("apps", now))

	for range 3 { // two groups that may be of one extension server, which begins anew every 10 minutes
		now = now.Add(2 * time.Hour)
		require.False(t, r.spread("a.example.org", now))
		require.True(t, r.spread("b.example.org", now), "a restored cluster is not missed")
		for range 5 {
			now = now.Add(10 * time.Minute)
			require.False(t, r.spread("a.example.org", now))
			require.False(t, r.spread("b.example.org", now))
		}
	}
	now = now.Add(time.Minute)
	require.True(t, r.spread("apps", now), "a group of Kubernetes agrees with another one")
	now = now.Add(time.Hour)
	require.False(t, r.spread("apps", now))
	require.True(t, r.spread("a.example.org", now))
}
