// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetcache_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadmeProgramsAreCompiled compares the programs of the README with the
// examples they are taken from: a whole one, and a function's body.
func TestReadmeProgramsAreCompiled(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "README.md"), -1)
	require.Len(t, blocks, 2)
	whole, body := blocks[0][1], blocks[1][1]
	require.True(t, strings.HasSuffix(read(t, "examples/kubeconfig/main.go"), "\n"+whole))

	indented := "\t" + strings.ReplaceAll(strings.TrimSuffix(body, "\n"), "\n", "\n\t")
	require.Contains(t, read(t, "examples/readme/main.go"), strings.ReplaceAll(indented, "\n\t\n", "\n\n"))
}

// TestEveryFileSaysItsLicense checks the two-line header.
func TestEveryFileSaysItsLicense(t *testing.T) {
	const header = "// SPDX-FileCopyrightText: The fleetcache authors\n// SPDX-License-Identifier: Apache-2.0\n"
	files := 0
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		files++
		require.True(t, strings.HasPrefix(string(text), header), path)
		return err
	}))
	require.Greater(t, files, 50)
}

var testName = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")

// TestEveryGuaranteeNamesATestThatExists reads the pages that name tests.
func TestEveryGuaranteeNamesATestThatExists(t *testing.T) {
	text := read(t, "docs/GUARANTEES.md") + read(t, "SECURITY.md") + read(t, "docs/migrating.md")
	var tests strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		tests.Write(source)
		return err
	}))
	names := testName.FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.Contains(t, tests.String(), "func "+name[1]+"(", "a page names a test that does not exist")
	}
}
