// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/persist/bolt"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestRollingUpdateKeepsTheCaches: the new process begins while the one before
// still has the file. It works as well, takes the file up once the other has
// ended, and leaves its caches to the next.
func TestRollingUpdateKeepsTheCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, path := filled(50), filepath.Join(t.TempDir(), "cache.db")
		open := func() *bolt.Store {
			disk, err := bolt.Open(path, bolt.Options{Later: true})
			require.NoError(t, err)
			return disk
		}
		s.Put("other", "w", 1)
		before := open()
		old := start(t, s, before, nil)
		pooltest.AcquireSynced(t, old.pool, pooltest.In("ns"))
		pooltest.AcquireSynced(t, old.pool, pooltest.In("other"))
		for update := range 3 {
			requests(s)
			disk := open()
			next := start(t, s, disk, nil)
			pooltest.AcquireSynced(t, next.pool, pooltest.In("other"))
			require.Equal(t, 1, requests(s)["stream"], "it lists, and does not wait")
			time.Sleep(10 * round)
			s.Put("ns", "w1", 1000+update)
			synctest.Wait()
			old.stop()
			require.NoError(t, before.Close())
			time.Sleep(2 * time.Second)

			pooltest.AcquireSynced(t, next.pool, pooltest.In("ns"))
			require.Equal(t, int64(1), next.pool.Totals().Restores, "what is watched from now on begins with the file")
			s.Put("ns", "w2", 2000+update)
			s.Put("other", "w", 1000+update)
			synctest.Wait()
			require.Empty(t, next.dropped())
			old, before = next, disk
		}
		old.stop()
		require.NoError(t, before.Close())

		disk := open()
		last := start(t, s, disk, nil)
		pooltest.AcquireSynced(t, last.pool, pooltest.In("ns"))
		pooltest.AcquireSynced(t, last.pool, pooltest.In("other"))
		require.Equal(t, int64(2), restored(last))
		require.NoError(t, disk.Close())
	})
}

// TestWhatWasWrongWhileTheStoreWasInUseIsNotUsed: the process before has kept a
// state of a cluster that this one knows to be another since.
func TestWhatWasWrongWhileTheStoreWasInUseIsNotUsed(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, path := filled(5), filepath.Join(t.TempDir(), "cache.db")
			s.Put("other", "w", 1)
			before, err := bolt.Open(path, bolt.Options{})
			require.NoError(t, err)
			first := start(t, s, before, nil)
			pooltest.AcquireSynced(t, first.pool, pooltest.In("ns"))
			disk, err := bolt.Open(path, bolt.Options{Later: true})
			require.NoError(t, err)
			next := start(t, s, disk, nil)
			pooltest.AcquireSynced(t, next.pool, pooltest.In("other"))
			time.Sleep(round)
			if wrong {
				next.keeper.DropCluster(pooltest.Everything.Cluster, errors.New("another cluster"))
			}
			first.stop()
			require.NoError(t, before.Close())
			time.Sleep(2 * time.Second)
			synctest.Wait()
			pooltest.AcquireSynced(t, next.pool, pooltest.In("ns"))
			require.Equal(t, !wrong, next.pool.Totals().Restores == 1)
			next.stop()
			require.NoError(t, disk.Close())
		})
	}
}

// TestProcessThatNeverGetsTheStoreEnds at once, and is a failure of nothing.
func TestProcessThatNeverGetsTheStoreEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, path := filled(5), filepath.Join(t.TempDir(), "cache.db")
		before, err := bolt.Open(path, bolt.Options{})
		require.NoError(t, err)
		disk, err := bolt.Open(path, bolt.Options{Later: true})
		require.NoError(t, err)
		p := start(t, s, disk, nil)
		p.synced()
		time.Sleep(10 * round)
		began := time.Now()
		p.stop()
		require.Less(t, time.Since(began), time.Second)
		require.NoError(t, disk.Close())
		require.NoError(t, before.Close())
	})
}

// TestProcessThatEndsBeforeItHasTheStoreWritesNothing: it does not know what is
// kept, and to read that may take longer than FlushTimeout.
func TestProcessThatEndsBeforeItHasTheStoreWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newMemory()
		disk.fail = persist.ErrLocked
		p := start(t, filled(5), disk, nil)
		p.synced()
		time.Sleep(round)
		synctest.Wait()
		disk.mu.Lock()
		disk.fail = nil
		disk.mu.Unlock()
		p.stop()
		require.Zero(t, disk.count())
	})
}

// TestForeignBucketsAreNeverDeleted: the store may be another program's as well.
func TestForeignBucketsAreNeverDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := filled(5), newMemory()
		theirs := []string{
			"objects", "objects ", "objects of others", "objects 0123456789ABCDEF0123456789ABCDEF",
			"objects 0123456789abcdef", "theirs", "header", "headers ",
		}
		for _, bucket := range theirs {
			disk.buckets[bucket] = map[string][]byte{"k": []byte("v")}
		}
		disk.buckets["objects 0123456789abcdef0123456789abcdef"] = map[string][]byte{"k": []byte("v")}
		require.Zero(t, restored(requireSameAs(t, s, disk, nil)))
		require.Equal(t, int64(1), restored(requireSameAs(t, s, disk, nil)))
		disk.buckets["headers"]["short"] = []byte("v") // all that is kept is dropped
		require.Zero(t, restored(requireSameAs(t, s, disk, nil)))
		require.NotContains(t, disk.buckets, "objects 0123456789abcdef0123456789abcdef")
		for _, bucket := range theirs {
			require.Equal(t, map[string][]byte{"k": []byte("v")}, disk.buckets[bucket], bucket)
		}
	})
}
