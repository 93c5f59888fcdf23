// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestReplicaIsReadyOnceItHasItsShare has a real hub, and a replica whose caches
// are filled when the test says so.
func TestReplicaIsReadyOnceItHasItsShare(t *testing.T) {
	t.Parallel() // it mostly waits
	g := newGroup(t, 60)
	g.config, g.options.Standbys = testenv.Start(t, 1)[0].Config(), 1
	g.options.WarmTimeout = time.Hour
	defer g.stop()
	ready := func(r *replica) func() bool { return func() bool { return r.ReadyzCheck()(nil) == nil } }
	a := g.start(1)[0]
	require.Eventually(t, ready(a), time.Minute, 50*time.Millisecond)
	g.waitOwned(0)

	var mu sync.Mutex
	var cold []sharding.Event
	filled := false
	g.prepare = func(s *sharding.Sharding) {
		require.ErrorContains(t, s.ReadyzCheck()(nil), "no valid Lease")
		s.Subscribe(func(e sharding.Event) {
			mu.Lock()
			defer mu.Unlock()
			if filled || e.Type != sharding.Warm {
				e.Done()
			} else {
				cold = append(cold, e)
			}
		})
	}
	b := g.start(1)[0]
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(cold) == 64
	}, time.Minute, 50*time.Millisecond, "it stands by for all slots")
	require.ErrorContains(t, b.ReadyzCheck()(nil), "does not own")
	counts, _ := g.owned()
	require.Zero(t, counts[1])

	mu.Lock()
	filled = true
	last := cold[0]
	for _, e := range cold[1:] {
		e.Done()
	}
	mu.Unlock()
	require.Eventually(t, func() bool {
		err := b.ReadyzCheck()(nil)
		require.Error(t, err)
		return err.Error() == "the caches of 1 slots are not filled yet" ||
			err.Error() == "this replica does not own 1 slots of its share yet"
	}, time.Minute, 50*time.Millisecond)
	last.Done()
	require.Eventually(t, ready(b), time.Minute, 50*time.Millisecond)
	counts, without := g.owned()
	require.Zero(t, without)
	require.InDelta(t, 30, counts[1], 10)
	require.Eventually(t, ready(a), time.Minute, 50*time.Millisecond)

	require.NoError(t, b.Close(t.Context()))
	require.ErrorContains(t, b.ReadyzCheck()(nil), "no valid Lease")
}
