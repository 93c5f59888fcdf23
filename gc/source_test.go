// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImportsNoKubernetes keeps the package usable for any kind of resource.
func TestImportsNoKubernetes(t *testing.T) {
	allowed := []string{
		"github.com/fleetcache/fleetcache/internal/timetable", // which imports only the standard library
		"github.com/go-logr/logr",
		"golang.org/x/time/rate",
	}
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	seen := 0
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			seen++
			if strings.Contains(path, ".") {
				require.Contains(t, allowed, path, file.Name())
			}
		}
	}
	require.Positive(t, seen)
}

// TestDocNamesTestsThatExist checks that the package documentation names only
// existing tests as proof.
func TestDocNamesTestsThatExist(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var tests strings.Builder
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file.Name(), "_test.go") {
			text, err := os.ReadFile(file.Name())
			require.NoError(t, err)
			tests.Write(text)
		}
	}
	named := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(doc), -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		require.Contains(t, tests.String(), "func "+name+"(t *testing.T)")
	}
}
