// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetcache_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	inFolder    = regexp.MustCompile("in `([^`]+)`: ([^|;]+)")
	tree        = regexp.MustCompile(`^(bench|clustercache|examples|gc|informerpool|internal|test)/`)
	inBackticks = regexp.MustCompile("`([^` ]+)`")
)

// TestArchitectureNamesWhatExists checks each file and package that the page
// names, and that it names each package that other packages may import.
func TestArchitectureNamesWhatExists(t *testing.T) {
	page := fence.ReplaceAllString(read(t, "docs/architecture.md"), "")
	checked := 0
	files := inFolder.ReplaceAllStringFunc(page, func(phrase string) string {
		parts := inFolder.FindStringSubmatch(phrase)
		for _, name := range inBackticks.FindAllStringSubmatch(parts[2], -1) {
			_, err := os.Stat(path.Join(parts[1], name[1]))
			require.NoError(t, err)
			checked++
		}
		return "`" + parts[1] + "`"
	})
	for _, span := range inBackticks.FindAllStringSubmatch(files, -1) {
		if !strings.Contains(span[1], "/") || !tree.MatchString(span[1]) {
			continue // a type, a field or a package of another module
		}
		_, err := os.Stat(span[1])
		require.NoError(t, err)
		checked++
	}
	require.Greater(t, checked, 80)

	require.NoError(t, filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		dir := filepath.ToSlash(file)
		if slices.Contains([]string{
			"bench", "examples", "tools", "test",
			"internal/testenv", "internal/wire/wiretest",
		}, dir) || len(dir) > 1 && d.Name()[0] == '.' || d.Name() == "testdata" {
			return filepath.SkipDir
		}
		sources, err := filepath.Glob(filepath.Join(file, "*.go"))
		if dir != "." && len(sources) > 0 {
			require.Contains(t, page, "`"+dir+"`", "docs/architecture.md lacks a package")
		}
		return err
	}))
}

// TestArchitectureDrawsArrowsThatExist compares the drawing of the packages
// with the imports that are allowed.
func TestArchitectureDrawsArrowsThatExist(t *testing.T) {
	drawing, _, _ := strings.Cut(read(t, "docs/architecture.md"), "classDef")
	packages := map[string]string{}
	for _, node := range regexp.MustCompile(`(\w+)\["([^"]+)"\]`).FindAllStringSubmatch(drawing, -1) {
		packages[node[1]] = node[2]
	}
	arrows := regexp.MustCompile(`(?m)^  (\w+)\S* --> (\w+)`).FindAllStringSubmatch(drawing, -1)
	require.Greater(t, len(arrows), 15)
	for _, arrow := range arrows {
		require.Contains(t, allowed[packages[arrow[1]]], packages[arrow[2]], arrow[0])
	}
}
