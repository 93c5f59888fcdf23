// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/persist"
)

// residentFiles returns how many bytes of files are in the resident memory.
func residentFiles(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, found)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return n << 10
}

// TestReadFileDoesNotStayInMemory: what was read is in the caches already. Many
// reads and a writer at once see what they should.
func TestReadFileDoesNotStayInMemory(t *testing.T) {
	const buckets, size = 64, 1 << 20
	s, err := Open(filepath.Join(t.TempDir(), "cache.db"), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for i := range buckets {
		var changes []persist.Change
		for j := range 16 {
			changes = append(changes, persist.Change{
				Bucket: fmt.Sprint("b", i),
				Key:    []byte{byte(j)},
				Value:  bytes.Repeat([]byte{byte(i + 1)}, size/16),
			})
		}
		require.NoError(t, s.Apply(changes))
	}
	before := residentFiles(t)
	var readers sync.WaitGroup
	for i := range buckets {
		readers.Go(func() {
			for range 3 {
				err := s.Read(fmt.Sprint("b", i), func(_, value []byte) error {
					if !bytes.Equal(value, bytes.Repeat([]byte{byte(i + 1)}, size/16)) {
						return fmt.Errorf("another value in bucket %d", i)
					}
					return nil
				})
				if err == nil {
					change := persist.Change{Bucket: "more", Key: []byte{byte(i)}, Value: make([]byte, size/16)}
					err = s.Apply([]persist.Change{change})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	readers.Wait()
	require.Less(t, residentFiles(t)-before, 16<<20, "of more than 64 MiB")
}
