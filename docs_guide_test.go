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

// TestGuidesAreCompiled compares every block of Go in the guides with
// examples/guide.
func TestGuidesAreCompiled(t *testing.T) {
	var code strings.Builder
	require.NoError(t, filepath.WalkDir("examples/guide", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" {
			code.WriteString(read(t, path))
		}
		return err
	}))
	blocks := 0
	for _, page := range []string{"docs/watching.md", "docs/reading.md", "docs/reaching.md"} {
		for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
			blocks++
			require.Contains(t, code.String(), block[1], page)
		}
	}
	require.Greater(t, blocks, 12)
}
