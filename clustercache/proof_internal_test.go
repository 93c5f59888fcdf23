// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHazardProofOfTheNextEpoch: an attempt to connect has just proven another
// cluster, whose epoch has not begun yet. That proof does not count for
// requests of the epoch that ends.
func TestHazardProofOfTheNextEpoch(t *testing.T) {
	c := &cluster{}
	former := &view{uid: "a", epoch: "a/0", connected: true}
	c.view.Store(former)
	c.prover.init(c)
	p := &c.prover
	p.uid, p.sent = "a", time.Now()
	require.NoError(t, p.prove(t.Context(), claim{view: former, age: proofAge}))

	p.uid, p.sent = "b", time.Now()
	require.ErrorIs(t, p.prove(t.Context(), claim{view: former, age: proofAge}), errMoved)
	k := &provenConn{p: p}
	require.ErrorIs(t, p.over(claim{view: former, age: proofAge})(t.Context(), k), errMoved)

	p.failing = time.Now().Add(-time.Minute)
	require.Nil(t, p.verdictLocked(errMoved))
}
