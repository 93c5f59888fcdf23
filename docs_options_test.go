// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetcache_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exported returns the exported names of a package, and those of the methods of
// its types and of the fields of its structs, as Type.Name. "Typed" is left out
// of names.
func exported(t *testing.T, dir string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	add := func(parts ...string) {
		for _, part := range parts {
			if !ast.IsExported(part) {
				return
			}
		}
		names[strings.Replace(strings.Join(parts, "."), "Typed", "", 1)] = true
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, dir)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name.Name)
				} else {
					add(receiver(d.Recv.List[0].Type), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					addSpec(s, add)
				}
			}
		}
	}

	return names
}

func addSpec(s ast.Spec, add func(...string)) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			add(name.Name)
		}
	case *ast.TypeSpec:
		add(s.Name.Name)
		if of, ok := s.Type.(*ast.StructType); ok {
			for _, field := range of.Fields.List {
				for _, name := range field.Names {
					add(s.Name.Name, name.Name)
				}
			}
		}
	}
}

// receiver returns the name of the type of a receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// theirs returns what controller-runtime has: the names of the packages with
// options of watches, the methods of the builder, and the fields of options.
func theirs(t *testing.T) map[string]bool {
	t.Helper()
	const module = "sigs.k8s.io/controller-runtime/pkg/"
	all := map[string]bool{}
	for name, fields := range map[string][]string{
		"builder": nil, "source": nil, "handler": nil, "predicate": nil,
		"cache":      {"Options", "ByObject", "Config"},
		"controller": {"Options"},
	} {
		found, err := build.Import(module+name, ".", build.FindOnly)
		require.NoError(t, err)
		for declared := range exported(t, found.Dir) {
			of, member, isMember := strings.Cut(declared, ".")
			switch {
			case name == "builder" && of == "Builder" && isMember:
				all["Builder."+member] = true
			case isMember && slices.Contains(fields, of) && member != "DefaultFromConfig",
				!isMember && name != "controller":
				all[name+"."+declared] = true
			}
		}
	}
	return all
}

var code = regexp.MustCompile("`([^`]+)`")

// TestEachOptionOfControllerRuntimeHasACounterpart, or a reason why there is
// none: the left column of the table has each name that controller-runtime has,
// and no other; every name of this module in the right column exists.
func TestEachOptionOfControllerRuntimeHasACounterpart(t *testing.T) {
	_, page, found := strings.Cut(read(t, "docs/migrating.md"), "\n### Each option of controller-runtime\n")
	require.True(t, found)
	page, _, _ = strings.Cut(page, "\n#")
	ours := map[string]map[string]bool{}
	for name, dir := range map[string]string{
		"controller":   "clustercache/controller",
		"clustercache": "clustercache",
		"multicluster": "clustercache/multicluster",
		"informerpool": "informerpool",
	} {
		ours[name] = exported(t, dir)
	}
	listed := map[string]bool{}
	for line := range strings.SplitSeq(page, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		require.Len(t, cells, 2, line)
		for _, name := range code.FindAllStringSubmatch(cells[0], -1) {
			require.False(t, listed[name[1]], "%s is listed twice", name[1])
			listed[strings.Replace(name[1], "Typed", "", 1)] = true
		}
		for _, name := range code.FindAllStringSubmatch(cells[1], -1) {
			pkg, declared, _ := strings.Cut(name[1], ".")
			if pkg == "Builder" {
				pkg, declared = "controller", name[1]
			}
			if names, ok := ours[pkg]; ok && declared != "" {
				require.True(t, names[declared], "%s, in: %s", name[1], line)
			}
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(theirs(t))), slices.Sorted(maps.Keys(listed)))
}

// TestOperatorOfOneClusterUsesEveryOptionOfTheBuilder, and what follows its two
// set-up functions serves both.
func TestOperatorOfOneClusterUsesEveryOptionOfTheBuilder(t *testing.T) {
	used := map[string]map[string]bool{}
	for _, d := range parse(t, "examples/migrating/onecluster.go").Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		names := map[string]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				names[s.Sel.Name] = true
				if x, ok := s.X.(*ast.Ident); ok {
					names[x.Name+"."+s.Sel.Name] = true
				}
			}
			return true
		})
		used[f.Name.Name] = names
		if f.Name.Name != "EveryCluster" && f.Name.Name != "Narrowed" {
			for name := range names {
				require.NotRegexp(t, `^(cc|clustercache|controller|remote|resolver)\.`, name, f.Name.Name)
			}
		}
	}
	same := map[string]string{ // another one that does the same
		"Builder.Build":        "Complete",
		"builder.OnlyMetadata": "WatchesMetadata",
	}
	for name := range theirs(t) {
		of, member, _ := strings.Cut(name, ".")
		switch {
		case same[name] != "":
			require.True(t, used["OneCluster"][same[name]], name)
		case of == "Builder", name == "builder.WithPredicates", name == "builder.MatchEveryOwner":
			require.True(t, used["OneCluster"][member], name)
		}
	}
}
