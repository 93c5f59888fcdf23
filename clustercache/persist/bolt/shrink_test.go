// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package bolt

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/persist"
)

// all returns all records of a store.
func all(t *testing.T, s *Store) map[string]string {
	t.Helper()
	out := map[string]string{}
	buckets, err := s.Buckets()
	require.NoError(t, err)
	for _, b := range buckets {
		require.NoError(t, s.Read(b, func(key, value []byte) error {
			out[b+"/"+string(key)] = string(value)
			return nil
		}))
	}
	return out
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

// sparse makes a file of which little is in use, and returns its records.
func sparse(t *testing.T, path string) map[string]string {
	t.Helper()
	s, err := Open(path, Options{})
	require.NoError(t, err)
	for i := range 40 {
		var changes []persist.Change
		for j := range 100 {
			changes = append(changes, persist.Change{
				Bucket: fmt.Sprint("b", i),
				Key:    fmt.Appendf(nil, "%03d", j),
				Value:  bytes.Repeat([]byte{byte(i)}, 10<<10),
			})
		}
		require.NoError(t, s.Apply(changes))
	}
	for i := range 35 {
		require.NoError(t, s.Apply([]persist.Change{{Bucket: fmt.Sprint("b", i)}}))
	}
	kept := all(t, s)
	require.Len(t, kept, 500)
	require.NoError(t, s.Close())

	return kept
}

// TestSparseFileShrinks when it is opened, and stays what it was.
func TestSparseFileShrinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	kept := sparse(t, path)
	before := sizeOf(t, path)
	require.Greater(t, before, int64(40<<20))
	// A file that a killed process leaves does not stop the next one.
	require.NoError(t, os.WriteFile(path+smallerSuffix, initial(os.Getpagesize()), 0o600))

	for range 2 {
		s, err := Open(path, Options{OnDamage: func(why error) { require.NoError(t, why) }})
		require.NoError(t, err)
		require.Equal(t, kept, all(t, s))
		require.Less(t, sizeOf(t, path), int64(10<<20))
		require.NoFileExists(t, path+smallerSuffix)
		_, err = Open(path, Options{})
		require.ErrorIs(t, err, persist.ErrLocked)
		require.NoError(t, s.Apply([]persist.Change{{Bucket: "more", Key: []byte("k"), Value: []byte("v")}}))
		kept["more/k"] = "v"
		require.NoError(t, s.Close())
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

// TestFileThatCannotShrinkStaysAsItIs, and a file of others beside it as well.
func TestFileThatCannotShrinkStaysAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	kept := sparse(t, path)
	before := sizeOf(t, path)
	require.NoError(t, os.WriteFile(path+smallerSuffix, []byte("another program's"), 0o600))

	s, err := Open(path, Options{})
	require.NoError(t, err)
	require.Equal(t, kept, all(t, s))
	require.NoError(t, s.Apply([]persist.Change{{Bucket: "more", Key: []byte("k"), Value: []byte("v")}}))
	require.NoError(t, s.Close())
	require.Equal(t, before, sizeOf(t, path))
	content, err := os.ReadFile(path + smallerSuffix)
	require.NoError(t, err)
	require.Equal(t, "another program's", string(content))
}
