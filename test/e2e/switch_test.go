// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build upgrades

package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestSwitchedBackend switches a proxy to another cluster while streams stay
// with the first one: only the age of the proof of identity reveals it.
func TestSwitchedBackend(t *testing.T) {
	const age = time.Minute // maximum age of a proof of identity
	both := testenv.Start(t, 2)
	s := newSwitched(t, both[0], both[1])
	require.NoError(t, s.gateway.SetBackend(both[1].APIServer))
	for began := time.Now(); ; {
		old := time.Since(began) > age
		blindly := s.use()
		require.False(t, old && blindly, "written where the cache does not know to be")
		if old && s.moved() {
			break
		}
		require.Less(t, time.Since(began), age+patience)
		<-time.After(200 * time.Millisecond)
	}
	s.settled()
}
