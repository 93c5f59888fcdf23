// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree is a module with another one inside, which requires it.
func tree() map[string]string {
	return map[string]string{
		".gitignore":    "ignored.txt\n",
		"LICENSE":       "as you like\n",
		"README.md":     "# Fixture\n\n```go\n" + readmeProgram + "```\n",
		"go.mod":        "module github.com/fleetcache/fixture\n\ngo 1.26.0\n",
		"fixture.go":    "package fixture\n\nconst Greeting = \"hello\"\n",
		"hello/main.go": "package main\n\nfunc main() {}\n",
		"part/go.mod": "module github.com/fleetcache/fixture/part\n\ngo 1.26.0\n\n" +
			"replace github.com/fleetcache/fixture => ..\n\nrequire github.com/fleetcache/fixture v0.25.0\n",
		"part/part.go": "package part\n\nimport \"github.com/fleetcache/fixture\"\n\n" +
			"const Greeting = fixture.Greeting + fixture.Greeting\n",
		"tools/go.mod": "module github.com/fleetcache/fixture/tools\n\ngo 1.25.0\n",
	}
}

const readmeProgram = `package main

import "github.com/fleetcache/fixture"

func main() { println(fixture.Greeting) }
`

const embedding = `package main

import _ "embed"

//go:embed ignored.txt
var text string

func main() { println(text) }
`

// write returns the directory of a tree, in which some files are others.
func write(t *testing.T, changed map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := tree()
	maps.Copy(files, changed)
	for name, text := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return dir
}

// offline makes the go command use a module cache that is empty, and nothing
// else. It returns the cache, and the directory of temporary files.
func offline(t *testing.T) (cache, temporary string) {
	t.Helper()
	cache, temporary = t.TempDir(), t.TempDir()
	t.Setenv("GOMODCACHE", cache)
	t.Setenv("GOPROXY", "off")
	t.Setenv("TMPDIR", temporary)
	return cache, temporary
}

// useRelease releases a tree, and uses the release.
func useRelease(t *testing.T, dir string) error {
	t.Helper()
	ms, err := readModules(t.Context(), dir)
	require.NoError(t, err)
	r, err := newRelease(t.Context(), dir, ms, "v0.25.0")
	require.NoError(t, err)
	defer r.remove()
	return r.use(t.Context(), []program{{path: "hello"}}, func(string) {})
}

func TestAReleaseIsUsedAndLeavesNothing(t *testing.T) {
	cache, temporary := offline(t)
	dir := write(t, nil)
	require.NoError(t, useRelease(t, dir))

	for _, left := range []string{cache, temporary} {
		entries, err := os.ReadDir(left)
		require.NoError(t, err)
		require.Empty(t, entries)
	}
	require.NoDirExists(t, filepath.Join(dir, ".git"))
}

func TestHazardReleaseThatOthersCannotUse(t *testing.T) {
	part := tree()["part/go.mod"]
	for name, c := range map[string]struct {
		changed map[string]string
		want    string
	}{
		"requires what its replacement alone provides": {
			map[string]string{"part/go.mod": strings.Replace(part, "v0.25.0", "v0.0.0-00010101000000-000000000000", 1)},
			"unknown revision 000000000000",
		},
		"requires a version that was never released": {
			map[string]string{"part/go.mod": strings.Replace(part, "v0.25.0", "v0.24.9", 1)},
			"unknown revision v0.24.9",
		},
		"program of the README": {
			map[string]string{"README.md": strings.Replace(tree()["README.md"], ".Greeting", ".Farewell", 1)},
			"undefined: fixture.Farewell",
		},
		"no program in the README": {map[string]string{"README.md": "# Fixture\n"}, "there is none"},
		"no license":               {map[string]string{"LICENSE": "", ".gitignore": "LICENSE\n"}, "it has no LICENSE"},
		"a program was committed": {
			map[string]string{"hello/hello": strings.Repeat("\x7fELF", maxFile/4+1)},
			"hello/hello has 1048580 bytes",
		},
		"embeds a file that git ignores": {
			map[string]string{
				"hello/ignored.txt": "text",
				"hello/main.go":     embedding,
			},
			"pattern ignored.txt: no matching files found",
		},
		"program fails": {
			map[string]string{"hello/main.go": "package main\n\nfunc main() { panic(\"no servers\") }\n"},
			"no servers",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, temporary := offline(t)
			require.ErrorContains(t, useRelease(t, write(t, c.changed)), c.want)
			entries, err := os.ReadDir(temporary)
			require.NoError(t, err)
			require.Empty(t, entries)
		})
	}
}

// TestTheTreeNamesOneVersion checks this repository.
func TestTheTreeNamesOneVersion(t *testing.T) {
	ms, err := readModules(t.Context(), "../..")
	require.NoError(t, err)
	require.Len(t, ms, 2)
	version, err := ms.version(nil)
	require.NoError(t, err)
	require.NoError(t, ms.agree("../..", version, false))
	require.Equal(t, []string{version, "clustercache/clusterapi/" + version}, ms.tags(version))

	text, err := os.ReadFile("../../clustercache/clusterapi/README.md")
	require.NoError(t, err)
	clusterAPI := minor(ms[1].requires("sigs.k8s.io/cluster-api"))
	require.Contains(t, string(text), "\n| "+minor(version)+".x | "+clusterAPI+".x |\n")
}

func TestVersionsThatDisagreeAreNamed(t *testing.T) {
	part := tree()["part/go.mod"]
	agreeing := map[string]string{
		"go.mod": tree()["go.mod"] +
			"\nrequire (\n\tk8s.io/client-go v0.37.2\n\tsigs.k8s.io/controller-runtime v0.25.2\n)\n",
		"README.md":    "# Fixture\n\n| fixture |\n| v0.25.x | v0.25.x | v0.37.x | 1.26 | 1.36 |\n",
		"CHANGELOG.md": "# Changelog\n\n## v0.25.0 - 2026-12-01\n\n## v0.24.0 - 2026-06-01\n",
	}
	for name, c := range map[string]struct {
		args    []string
		changed map[string]string
		want    string
	}{
		"agree":                     {},
		"agree, and is given":       {args: []string{"v0.25.0"}},
		"is no version":             {args: []string{"0.25.0"}, want: "usage: rehearse [version, such as v0.25.1]"},
		"several versions":          {args: []string{"v0.25.0", "v0.25.1"}, want: "usage"},
		"is given and not required": {args: []string{"v0.25.1"}, want: "fixture at v0.25.0, not v0.25.1"},
		"is not in the changelog": {
			args:    []string{"v0.25.0"},
			changed: map[string]string{"CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n## v0.25.0\n"},
			want:    `the first heading of CHANGELOG.md is not "## v0.25.0"`,
		},
		"nested modules require different versions": {
			changed: map[string]string{
				"q/go.mod": strings.NewReplacer("/part", "/q", "v0.25.0", "v0.24.0").Replace(part),
			},
			want: "q/go.mod requires github.com/fleetcache/fixture at v0.24.0, not v0.25.0",
		},
		"Go of modules": {
			changed: map[string]string{"part/go.mod": strings.Replace(part, "go 1.26.0", "go 1.26.9", 1)},
			want:    "part/go.mod is for go 1.26.9, go.mod for go 1.26.0",
		},
		"a toolchain": {
			changed: map[string]string{"part/go.mod": part + "\ntoolchain go1.27.0\n"},
			want:    "part/go.mod names a toolchain",
		},
		"the README's table": {
			changed: map[string]string{"README.md": strings.Replace(agreeing["README.md"], "v0.37", "v0.36", 1)},
			want:    `no row of versions that begins with "| v0.25.x | v0.25.x | v0.37.x | 1.26 |"`,
		},
		"no module": {changed: map[string]string{"go.mod": "modul"}, want: "go.mod:1: unknown directive: modul"},
		"nothing requires the root": {
			changed: map[string]string{"part/go.mod": "module github.com/fleetcache/fixture/part\n\ngo 1.26.0\n"},
			want:    "the version has to be given",
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := maps.Clone(agreeing)
			maps.Copy(changed, c.changed)
			err := check(t, write(t, changed), c.args)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestOutsideOfATreeNothingIsReleased(t *testing.T) {
	dir := write(t, nil)
	require.ErrorContains(t, check(t, filepath.Join(dir, "hello"), nil), "not run from the root of the tree?")
}

// check does what rehearse does before it releases anything.
func check(t *testing.T, dir string, args []string) error {
	t.Helper()
	ms, err := readModules(t.Context(), dir)
	if err != nil {
		return err
	}
	version, err := ms.version(args)
	if err != nil {
		return err
	}
	return ms.agree(dir, version, len(args) > 0)
}

func TestProxiesAreNotPrinted(t *testing.T) {
	r := strings.NewReplacer(replacements("https://user:word@proxy.example/go/,direct|https://other.example,off")...)
	require.Equal(t, "Get $GOPROXY/x/@v/list: no", r.Replace("Get https://user:word@proxy.example/go/x/@v/list: no"))
	require.Equal(t, "$GOPROXY is off", r.Replace("https://other.example is off"))
}
