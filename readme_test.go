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

// TestPackagesNameTestsThatExist reads the section Tests of package comments.
func TestPackagesNameTestsThatExist(t *testing.T) {
	var sections []string
	var tests strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		source := read(t, path)
		if strings.HasSuffix(path, "_test.go") {
			tests.WriteString(source)
			return nil
		}
		comment, _, _ := strings.Cut(source, "\npackage ")
		if _, section, found := strings.Cut(comment, "\n// # Tests\n"); found {
			sections = append(sections, section)
		}
		return nil
	}))
	require.Greater(t, len(sections), 30)
	var missing []string
	for _, section := range sections {
		names := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(section, -1)
		require.NotEmpty(t, names, section)
		for _, name := range names {
			if !strings.Contains(tests.String(), "\nfunc "+name+"(") {
				missing = append(missing, name)
			}
		}
	}
	require.Empty(t, missing, "packages name tests that do not exist")
}

// TestEveryPackageThatProgramsMayImportIsNamed compares the lists of README.md,
// of doc.go and of docs/architecture.md with the packages of the library's
// modules.
func TestEveryPackageThatProgramsMayImportIsNamed(t *testing.T) {
	var packages []string
	for _, root := range []string{"clustercache", "gc", "informerpool"} {
		require.NoError(t, filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if d.Name() == "internal" || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			if importable(t, dir) {
				packages = append(packages, filepath.ToSlash(dir))
			}
			return nil
		}))
	}
	require.Greater(t, len(packages), 15)

	names := func(text, pattern string) (names []string) {
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			names = append(names, match[1])
		}
		return names
	}
	readme := read(t, "README.md")
	_, readme, _ = strings.Cut(readme, "\n| package | content |\n")
	readme, _, _ = strings.Cut(readme, "\n\n")
	require.ElementsMatch(t, packages, names(readme, "(?m)^\\| \\[`([^`]+)`\\]"), "the table of README.md")

	architecture := read(t, "docs/architecture.md")
	_, architecture, _ = strings.Cut(architecture, "What operators import:")
	architecture, _, _ = strings.Cut(architecture, "Internal packages")
	require.ElementsMatch(t, packages, names(architecture, "(?m)^\\| `([^`]+)` \\|"),
		"the table of docs/architecture.md")

	inText := `\b((?:clustercache|gc|informerpool)(?:/[a-z]+)*)\b`
	require.ElementsMatch(t, packages, names(read(t, "doc.go"), inText), "doc.go")
}

// importable reports whether a folder has a package that programs can import.
func importable(t *testing.T, dir string) bool {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, source := range sources {
		if !strings.HasSuffix(source, "_test.go") {
			return parse(t, source).Name.Name != "main"
		}
	}
	return false
}
