// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetcache_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/fleetcache/fleetcache/"

// allowed are the packages of this module that each package may import, in
// production code. A package that is not here may import none.
var allowed = map[string][]string{
	"clustercache": {
		"clustercache/events",
		"clustercache/internal/apistatus", "clustercache/internal/connection", "clustercache/internal/keeper",
		"clustercache/internal/liveclient", "clustercache/internal/markup",
		"clustercache/internal/members", "clustercache/internal/phase",
		"clustercache/internal/tenure", "clustercache/internal/wants",
		"clustercache/internal/writes",
		"clustercache/ownership", "clustercache/persist", "clustercache/resolver", "clustercache/status", "gc",
		"informerpool",
		"internal/callback", "internal/clustername", "internal/listopts",
		"internal/misfit",
		"internal/packed", "internal/restmap", "internal/timetable", "internal/transport", "internal/workpool",
	},
	"clustercache/controller": {
		"clustercache", "clustercache/events", "clustercache/internal/debounce", "clustercache/internal/fairqueue",
		"clustercache/internal/wants", "clustercache/ownership",
		"informerpool",
		"internal/clustername",
	},
	"clustercache/clusterapi": { // a module of its own
		"clustercache", "clustercache/controller", "clustercache/events", "clustercache/multicluster",
		"clustercache/resolver", "clustercache/status", "informerpool",
		"internal/clustername", "internal/listopts", "internal/misfit",
	},
	"clustercache/clusterapi/clusterapitest": {"clustercache/clusterapi", "clustercache/status"},
	"clustercache/conditions": {
		"clustercache", "clustercache/internal/wants", "clustercache/resolver", "clustercache/status",
		"internal/clustername", "internal/transport",
	},
	"clustercache/clustercachetest": {
		"clustercache", "clustercache/ownership", "clustercache/resolver", "clustercache/status", "informerpool",
		"internal/certs", "internal/directory", "internal/fakeapi", "internal/memnet",
	},
	"clustercache/events": {"clustercache/status", "informerpool"},
	"clustercache/fleet": {
		"clustercache", "informerpool",
		"internal/clustername",
	},
	"clustercache/internal/connection": {
		"clustercache/internal/apistatus", "clustercache/internal/phase", "clustercache/resolver",
		"internal/callback", "internal/clustername", "internal/identity", "internal/restmap", "internal/sanitize",
		"internal/timetable", "internal/transport",
	},
	"clustercache/internal/keeper": {
		"clustercache/persist", "informerpool",
		"internal/clustername", "internal/packed", "internal/timetable",
	},
	"clustercache/internal/liveclient": {
		"clustercache/internal/apistatus", "clustercache/internal/writes", "informerpool",
		"internal/listopts", "internal/meter", "internal/misfit", "internal/restmap", "internal/sanitize",
		"internal/transport",
		"internal/wire",
	},
	"clustercache/internal/debounce":    {"internal/timetable"},
	"clustercache/internal/definitions": {"informerpool", "internal/timetable", "internal/wire"},
	"clustercache/internal/tenure":      {"clustercache/ownership", "internal/timetable"},
	"clustercache/internal/wants": {
		"clustercache/internal/definitions", "informerpool", "internal/few",
		"internal/listopts", "internal/restmap", "internal/timetable", "internal/traits",
	},
	"clustercache/internal/writes": {"informerpool"},
	"clustercache/multicluster": {
		"clustercache", "clustercache/controller", "clustercache/events", "clustercache/resolver",
		"clustercache/resolver/settable", "clustercache/status", "informerpool",
		"internal/callback", "internal/clustername", "internal/listopts", "internal/misfit", "internal/timetable",
	},
	"clustercache/ownership": {"internal/clustername"},
	"clustercache/remote": {
		"clustercache", "clustercache/internal/apistatus",
		"internal/clustername", "internal/workpool",
	},
	"clustercache/persist/bolt": {"clustercache/persist"},
	"clustercache/resolver": {
		"clustercache/resolver/internal/digest",
		"internal/callback", "internal/changes", "internal/clustername", "internal/dial", "internal/listopts",
		"internal/timetable",
	},
	"clustercache/resolver/inventory": {"clustercache/resolver"},
	"clustercache/resolver/settable": {
		"clustercache/resolver",
		"internal/changes", "internal/clustername",
	},
	"clustercache/sharding": {
		"clustercache/ownership", "clustercache/sharding/internal/protocol",
		"internal/callback",
	},
	"clustercache/status": {
		"clustercache/internal/connection", "clustercache/internal/wants", "clustercache/ownership", "informerpool",
		"internal/clustername", "internal/transport",
	},
	"clustercache/watchset": {
		"clustercache", "clustercache/events", "clustercache/internal/debounce", "clustercache/internal/wants",
		"clustercache/status", "informerpool",
		"internal/callback", "internal/clustername",
	},
	"examples/internal/fleet": {
		"examples/internal/story",
		"internal/fakeapi", "internal/testenv", "internal/testenv/faultproxy",
	},
	"gc": {"internal/timetable"},
	"informerpool": {
		"informerpool/internal/ahead", "informerpool/internal/backoff", "informerpool/internal/calls",
		"informerpool/internal/comparison", "informerpool/internal/counting", "informerpool/internal/decoded",
		"informerpool/internal/delta", "informerpool/internal/discovery",
		"informerpool/internal/loudness", "informerpool/internal/ordering",
		"informerpool/internal/refusals", "informerpool/internal/rounds",
		"informerpool/internal/selector", "informerpool/internal/store",
		"informerpool/internal/width",
		"internal/callback", "internal/clustername", "internal/few", "internal/identity",
		"internal/packed", "internal/sanitize", "internal/timetable", "internal/traits", "internal/wire",
		"internal/workpool",
	},
	"informerpool/internal/backoff": {"internal/sanitize"},
	"informerpool/internal/calls":   {"internal/callback"},
	"informerpool/internal/comparison": {
		"informerpool/internal/store", "internal/packed", "internal/wire",
	},
	"informerpool/internal/decoded": {"internal/packed"},
	"informerpool/internal/delta": {
		"informerpool/internal/ordering", "informerpool/internal/store", "internal/packed",
	},
	"informerpool/internal/discovery": {"internal/meter", "internal/sanitize"},
	"informerpool/internal/selector":  {"internal/packed"},
	"informerpool/internal/ordering":  {"internal/packed", "internal/wire"},
	"informerpool/internal/refusals":  {"informerpool/internal/ordering"},
	"informerpool/internal/store":     {"internal/packed"},
	"informerpool/internal/rounds":    {"internal/timetable", "internal/workpool"},
	"internal/changes":                {"internal/clustername"},
	"internal/directory":              {"clustercache/resolver", "internal/changes"},
	"internal/fleettest": {
		"clustercache", "clustercache/controller", "clustercache/clustercachetest", "clustercache/events",
		"clustercache/resolver", "clustercache/status", "informerpool",
		"internal/certs", "internal/directory", "internal/fakeapi", "internal/memnet", "internal/testenv",
	},
	"internal/packed":       {"internal/misfit", "internal/wire"},
	"internal/pooltest":     {"informerpool"},
	"internal/resolvertest": {"clustercache/resolver", "internal/certs"},
	"internal/restmap":      {"internal/meter"},
	"internal/testenv": {
		"internal/certs", "internal/repeat",
		"internal/testenv/assets", "internal/testenv/faultproxy", "internal/testenv/internal/port",
	},
	"internal/testenv/faultproxy": {"internal/testenv/internal/port"},
	"internal/testenv/install":    {"internal/testenv/assets"},
	"internal/testenv/versions":   {"internal/testenv/assets"},
	"internal/transport": {
		"internal/callback", "internal/credentialplugin", "internal/dial", "internal/transport/h2",
	},
	"test/conformance": {
		"clustercache", "clustercache/events", "clustercache/resolver", "clustercache/status", "informerpool",
		"internal/testenv",
	},
}

// TestPackagesDependOneWay compares the imports with the list, both ways: one
// that is allowed and not used any more is taken out of it.
func TestPackagesDependOneWay(t *testing.T) {
	found := map[string][]string{}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || name == "bench" || name == "tools" ||
			filepath.Dir(path) == "examples" && name != "internal" || len(name) > 1 && name[0] == '.'):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		from := filepath.ToSlash(filepath.Dir(path))
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if to, ok := strings.CutPrefix(imported, module); ok && !slices.Contains(found[from], to) {
				found[from] = append(found[from], to)
			}
		}
		return nil
	}))
	require.NotEmpty(t, found)
	for _, from := range slices.Sorted(maps.Keys(found)) {
		require.ElementsMatch(t, allowed[from], found[from], from)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(allowed)), slices.Collect(maps.Keys(found)))
}

// TestTheLibraryDependsOnNoTemplates: a program that can execute a template
// keeps every exported method of every type that it converts to an interface,
// since the linker cannot know which methods a template names. The debug page
// alone would make a program that has a ClusterCache a third larger.
func TestTheLibraryDependsOnNoTemplates(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps",
		"./clustercache/...", "./informerpool/...", "./gc/...").Output()
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	require.Contains(t, deps, module+"clustercache")
	require.Empty(t, slices.DeleteFunc(deps, func(path string) bool { return !strings.HasSuffix(path, "/template") }))
}
