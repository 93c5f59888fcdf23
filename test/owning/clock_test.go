// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package owning_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/sharding"
)

// hang makes a subscriber of a replica's sharding hang, and with it the delivery
// of all events, until the returned function is called, or the test ends.
func (r *replica) hang(t *testing.T) (end func()) {
	t.Helper()
	hung := make(chan struct{})
	end = sync.OnceFunc(func() { close(hung) })
	t.Cleanup(end)
	r.sharding.Subscribe(func(sharding.Event) { <-hung })
	synctest.Wait()
	return end
}

// TestHazardNoEventTellsThatTheLeaseHasEnded: the hub is away, and a subscriber
// hangs.
func TestHazardNoEventTellsThatTheLeaseHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 4)
		a := g.start("operator-0")
		time.Sleep(20 * time.Second)
		g.settled(time.Second)
		end := a.hang(t)
		key := g.clusters[0]
		work, done, err := a.cc.Cluster(key).Work(t.Context())
		require.NoError(t, err)
		defer done()
		time.Sleep(time.Minute)
		require.NoError(t, work.Err(), "the lease is renewed")

		close(a.net.cut)
		time.Sleep(7 * time.Second)
		require.True(t, a.cc.Cluster(key).Owned())
		require.NoError(t, work.Err())
		time.Sleep(3 * time.Second)
		require.False(t, a.cc.Cluster(key).Owned())
		require.ErrorIs(t, context.Cause(work), clustercache.ErrNotOwner)
		_, _, err = a.cc.Cluster(key).Work(t.Context())
		require.ErrorIs(t, err, clustercache.ErrNotOwner)
		status, err := a.cc.Cluster(key).Status()
		require.NoError(t, err)
		require.False(t, status.Ownership.Owned)
		g.change(1)
		time.Sleep(time.Minute)
		end()
		a.stop()
		require.Empty(t, g.wrong)
	})
}

// TestHazardNoEventTellsThatASlotHasMoved: a replica joins, and gets its share
// once the drain has taken too long, since a subscriber of the first hangs.
func TestHazardNoEventTellsThatASlotHasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 12)
		a := g.start("operator-0")
		time.Sleep(20 * time.Second)
		end := a.hang(t)
		b := g.start("operator-1")
		for range 120 {
			time.Sleep(time.Second)
			synctest.Wait()
			for _, key := range g.clusters {
				require.False(t, a.cc.Cluster(key).Owned() && b.cc.Cluster(key).Owned(), key)
			}
		}
		of := 0
		for _, key := range g.clusters {
			require.True(t, a.cc.Cluster(key).Owned() || b.cc.Cluster(key).Owned(), key)
			if b.cc.Cluster(key).Owned() {
				of++
			}
		}
		require.InDelta(t, 6, of, 3)
		end()
		g.change(1)
		require.Less(t, g.settled(time.Second), time.Second)
		a.stop()
		b.stop()
		require.Empty(t, g.wrong)
	})
}
