// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package bolt_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/persist/bolt"
)

// TestOpenWaitsForTheProcessBefore, for LockTimeout and no longer.
func TestOpenWaitsForTheProcessBefore(t *testing.T) {
	for ends, opened := range map[time.Duration]bool{3 * time.Second: true, time.Minute: false} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			before := open(t, path, bolt.Options{})
			closed := make(chan error, 1)
			time.AfterFunc(ends, func() { closed <- before.Close() })
			began := time.Now()
			s, err := bolt.Open(path, bolt.Options{LockTimeout: 10 * time.Second})
			if opened {
				require.NoError(t, err)
				require.Less(t, time.Since(began), ends+time.Second)
				require.NoError(t, s.Close())
			} else {
				require.ErrorIs(t, err, persist.ErrLocked)
				require.Equal(t, 10*time.Second, time.Since(began))
			}
			require.NoError(t, <-closed)
		})
	}
}

// TestFileIsOpenedLater: a Store of a file that is in use fails until it is
// not, and then has what the other process wrote last.
func TestFileIsOpenedLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	before := open(t, path, bolt.Options{})
	s := open(t, path, bolt.Options{Later: true})
	unopened := open(t, path, bolt.Options{Later: true})
	change := func(value string) []persist.Change {
		return []persist.Change{{Bucket: "b", Key: []byte("k"), Value: []byte(value)}}
	}
	for range 3 {
		_, err := s.Buckets()
		require.ErrorIs(t, err, persist.ErrLocked)
		require.ErrorIs(t, s.Read("b", nil), persist.ErrLocked)
		err = s.Apply(change("early"))
		var typed *bolt.Error
		require.ErrorAs(t, err, &typed)
		require.Equal(t, path, typed.Path)
		require.ErrorIs(t, err, persist.ErrLocked)
	}
	require.NoError(t, before.Apply(change("last")))
	require.NoError(t, before.Close())
	require.Equal(t, map[string]map[string]string{"b": {"k": "last"}}, contents(t, s))
	require.NoError(t, s.Apply(change("ours")))
	_, err := unopened.Buckets()
	require.ErrorIs(t, err, persist.ErrLocked)
	require.NoError(t, unopened.Close())
	require.NoError(t, s.Close())
	_, err = unopened.Buckets()
	require.Error(t, err, "it is closed")
	s = open(t, path, bolt.Options{})
	require.Equal(t, map[string]map[string]string{"b": {"k": "ours"}}, contents(t, s))
	require.NoError(t, s.Close())
}
