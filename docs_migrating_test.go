// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetcache_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sources returns the examples that docs/migrating.md is made of, in one
// string.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, root := range []string{"examples/migrating", "examples/adopt"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".go" {
				all.WriteString(read(t, path))
			}
			return err
		}))
	}
	return all.String()
}

// TestMigratingIsCompiled compares every block of the page with the code it is
// taken from, and every call in the right column of its tables that has
// arguments.
func TestMigratingIsCompiled(t *testing.T) {
	page, code := read(t, "docs/migrating.md"), sources(t)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(page, -1)
	require.Len(t, blocks, 19)
	for _, block := range blocks {
		require.Contains(t, code, block[1])
	}
	calls := 0
	for line := range strings.SplitSeq(page, "\n") {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) != 2 {
			continue
		}
		for _, span := range regexp.MustCompile(
			"`((?:cc|clustercache|controller|resolver|clustercachetest|multicluster)\\.[A-Z][^`]*\\))`",
		).FindAllStringSubmatch(cells[1], -1) {
			calls++
			require.Contains(t, code, span[1])
		}
	}
	require.Greater(t, calls, 10)
}
