// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/persist/bolt"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestFailingDiskDisturbsNothing: informers work, and writing goes on when the
// disk does.
func TestFailingDiskDisturbsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(20), newMemory()
		disk.fail = errors.New("no space left on device")
		first := start(t, s, disk, nil)
		l := first.synced()
		time.Sleep(10 * round)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		require.Zero(t, disk.count())
		disk.mu.Lock()
		disk.fail = nil
		disk.mu.Unlock()
		time.Sleep(round)
		require.Equal(t, 21, disk.count())
		s.Put("ns", "w1", 1000)
		synctest.Wait()
		left := first.killed(disk)
		require.Equal(t, int64(1), restored(requireSameAs(t, s, left, nil)))
	})
}

// TestBoundsAreKept: on the bytes that are kept and on the rate of writing.
func TestBoundsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(200), newMemory()
		tight := func(_ *informerpool.Options, o *persist.Options) { o.MaxBytes = 10_000 }
		first := start(t, s, disk, tight)
		first.synced()
		time.Sleep(round)
		require.Zero(t, disk.count(), "there is no room for all of it")
		for i := range 190 {
			s.Delete("ns", fmt.Sprint("w", i))
		}
		time.Sleep(round)
		require.Equal(t, 11, disk.count())
		first.stop()
		require.Equal(t, int64(1), restored(requireSameAs(t, s, disk, tight)))
	})
	synctest.Test(t, func(t *testing.T) {
		s, disk := pooltest.NewServer(), newMemory()
		for i := range 8000 {
			s.Put("ns", fmt.Sprint("w", i), i, "noise="+pooltest.Noise(i, 300))
		}
		slow := func(_ *informerpool.Options, o *persist.Options) { o.BytesPerSecond = 100_000 }
		first := start(t, s, disk, slow)
		first.synced()
		began := time.Now()
		time.Sleep(round)
		for disk.count() < 8001 {
			disk.mu.Lock()
			rate := float64(disk.applied) / (time.Since(began) - persist.DefaultInterval + 20*time.Second).Seconds()
			headers := len(disk.buckets["headers"])
			disk.mu.Unlock()
			require.LessOrEqual(t, rate, 110_000.0)
			require.Zero(t, headers, "a part of a state has no header")
			time.Sleep(time.Second)
		}
		first.stop()
		require.Equal(t, int64(1), restored(requireSameAs(t, s, disk, slow)))
	})
}

// TestStateThatDoesNotFitIsNotBegunAgain in each round, before it is smaller or
// there is more room.
func TestStateThatDoesNotFitIsNotBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := pooltest.NewServer(), newMemory()
		put := func(namespace string, n int) {
			for i := range n {
				s.Put(namespace, fmt.Sprint("w", i), i, "noise="+pooltest.Noise(i, 600))
			}
		}
		put("small", 2000)
		put("large", 4000)
		first := start(t, s, disk, func(_ *informerpool.Options, o *persist.Options) { o.MaxBytes = 2 << 20 })
		defer first.stop()
		pooltest.AcquireSynced(t, first.pool, pooltest.In("small"))
		time.Sleep(round)
		require.Equal(t, 2001, disk.count())
		pooltest.AcquireSynced(t, first.pool, pooltest.In("large"))
		time.Sleep(round)
		for i := range 5 {
			disk.written()
			s.Put("large", "w0", 10_000+i)
			time.Sleep(round)
			require.Equal(t, 2001, disk.count())
			require.Less(t, disk.written(), 1000)
		}
		for i := range 2500 {
			s.Delete("large", fmt.Sprint("w", i))
		}
		time.Sleep(round)
		require.Equal(t, 2001+1501, disk.count(), "it is smaller")
		put("large", 4000)
		time.Sleep(2 * round)
		disk.written()
		time.Sleep(round)
		require.Less(t, disk.written(), 1000)
		for i := range 2000 {
			s.Delete("small", fmt.Sprint("w", i))
		}
		time.Sleep(2 * round)
		require.Equal(t, 4002, disk.count(), "there is more room")
	})
}

// TestKilledAtAnyWriteLeavesACompleteStateOrNone, in a state so large that it is
// written in many transactions.
func TestKilledAtAnyWriteLeavesACompleteStateOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := pooltest.NewServer(), newMemory()
		var left []*memory
		disk.onApply = func() { left = append(left, disk.copy()) }
		for i := range 3000 {
			s.Put("ns", fmt.Sprint("w", i), i, "noise="+pooltest.Noise(i, 600))
		}
		first := start(t, s, disk, nil)
		first.synced()
		time.Sleep(round)
		for i := range 3000 {
			switch {
			case i%2 == 0:
				s.Put("ns", fmt.Sprint("w", i), i+1, "noise="+pooltest.Noise(i+1, 600))
			case i%5 == 0:
				s.Delete("ns", fmt.Sprint("w", i))
			}
		}
		time.Sleep(round)
		first.stop()
		require.Greater(t, len(left), 3)
		used := int64(0)
		for _, m := range left {
			used += restored(requireSameAs(t, s, m, nil))
		}
		require.GreaterOrEqual(t, used, int64(2))
		require.Less(t, used, int64(len(left)))
	})
}

// TestStateOfAGoneClusterIsDeleted: at once if it is evicted, and otherwise
// when it is too old.
func TestStateOfAGoneClusterIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(10), newMemory()
		first := start(t, s, disk, nil)
		l := first.synced()
		time.Sleep(round)
		require.Equal(t, 11, disk.count())
		s.Set(func(s *pooltest.Server) { s.NotReady = pooltest.Hang() })
		first.pool.Evict(pooltest.Everything.Cluster)
		synctest.Wait()
		require.Zero(t, disk.count())
		l.ReleaseNow()
		first.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(10), newMemory()
		first := start(t, s, disk, nil)
		first.synced()
		first.stop()
		second := start(t, s, disk, nil)
		time.Sleep(23 * time.Hour)
		require.Equal(t, 11, disk.count())
		time.Sleep(2 * time.Hour)
		require.Zero(t, disk.count())
		second.stop()
	})
}

// TestEvictedStateIsNotUsedAgain: Evict is how a user gets a list.
func TestEvictedStateIsNotUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(10), newMemory()
		first := start(t, s, disk, nil)
		first.synced()
		first.stop()
		second := start(t, s, disk, nil)
		defer second.stop()
		l := second.synced()
		require.Equal(t, int64(1), second.pool.Totals().Restores)
		requests(s)
		second.pool.Evict(pooltest.Everything.Cluster)
		synctest.Wait()
		require.NoError(t, l.WaitForSync(t.Context()))
		require.Equal(t, 1, requests(s)["stream"])
	})
}

// TestInexactStateIsNotKept: while an object is unknown, what was kept before
// stays, since it was exact.
func TestInexactStateIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(10), newMemory()
		first := start(t, s, disk, nil)
		first.synced()
		time.Sleep(round)
		before := disk.copy()
		pooltest.Push(s, "MODIFIED", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w1",`+
			`"namespace":"ns","resourceVersion":"5000"}}`)
		s.Put("ns", "w2", 1000)
		time.Sleep(2 * round)
		require.Equal(t, before.buckets, disk.buckets)
		first.stop()
	})
}

// TestBoltServesProcesses: the same with the store of production.
func TestBoltServesProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, path := filled(200), filepath.Join(t.TempDir(), "cache.db")
		for i := range 6 {
			disk, err := bolt.Open(path, bolt.Options{})
			require.NoError(t, err)
			require.Equal(t, int64(min(i, 1)), restored(requireSameAs(t, s, disk, nil)))
			require.NoError(t, disk.Close())
			for j := range 20 {
				s.Put("ns", fmt.Sprint("w", i*20+j), 1000+i)
				s.Delete("ns", fmt.Sprint("w", i*20+j+10))
			}
		}
	})
}
