// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package apistatus_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the status in an error is about, at each place that looks at one.
const (
	itself       = "the answer to the very request, with the status of an API server"
	anyCause     = "whatever it is about: only the time of the next attempt, or a text, depends on it"
	cacheOfHub   = "an object that is missing from a cache of the hub"
	ownCache     = "an object that is missing from an informer of this process"
	resource     = "the path of a resource; absence.go proves what it means"
	position     = "a version or a page that the server has forgotten; a list follows"
	seenAfter    = "a write; what is stored is read before anything is concluded"
	hides        = "another question, which is why it is hidden"
	asksAnew     = "a path or a kind; discovery decides"
	makesAnother = "an Event of ours, of which another one is made; that fails if the cause is another"
)

// uses are the functions that ask whether an error is NotFound, Conflict, Gone
// and the like. Such an answer may come from a gateway, or be about a path, a
// namespace or another object: code that concludes from it that an object is
// absent asks this package.
var uses = map[string]string{
	"clustercache.OwnerExists":                   itself,
	"clustercache.informerFailed":                asksAnew,
	"clustercache.unserved":                      asksAnew,
	"clustercache/clusterapi.Resolve":            cacheOfHub,
	"clustercache/clusterapi.requests":           cacheOfHub,
	"clustercache/internal/apistatus.AboutOther": hides,
	"clustercache/internal/apistatus.SaysAbsent": itself,
	"clustercache/internal/connection.saysGone":  itself,
	"clustercache/internal/definitions.run":      anyCause,
	"clustercache/internal/liveclient.elsewhere": asksAnew,
	"clustercache/internal/wants.Explain":        asksAnew,
	"clustercache/internal/writes.missingIn":     ownCache,
	"clustercache/remote.edit":                   seenAfter,
	"clustercache/remote.saysAbsent":             itself,
	"clustercache/remote.write":                  makesAnother,
	"clustercache/resolver.isAbsent":             itself,
	"clustercache/resolver.resumeAfter":          position,
	"clustercache/sharding.outcomeOf":            seenAfter,
	"clustercache/sharding.send":                 seenAfter,
	"clustercache/watchset.classify":             anyCause,
	"informerpool.asListError":                   resource,
	"informerpool.checkHistory":                  resource,
	"informerpool.conclude":                      resource,
	"informerpool.continues":                     resource,
	"informerpool.document":                      resource,
	"informerpool.forgotten":                     position,
	"informerpool.look":                          position,
	"informerpool.paged":                         position,
	"informerpool.permanent":                     anyCause,
	"informerpool.prove":                         position,
}

// asks are the functions of apimachinery that look at a status.
var asks = map[string]bool{
	"IsNotFound": true, "IsConflict": true, "IsGone": true, "IsResourceExpired": true, "IsAlreadyExists": true,
}

// TestEachUseOfAStatusIsAboutSomething keeps the table complete.
func TestEachUseOfAStatusIsAboutSomething(t *testing.T) {
	const root = "../../.."
	found := map[string]bool{}
	for _, dir := range []string{"clustercache", "informerpool", "gc", "internal"} {
		dir = filepath.Join(root, dir)
		require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			in, err := filepath.Rel(root, filepath.Dir(p))
			source := strings.HasSuffix(p, ".go") && !strings.HasSuffix(p, "_test.go")
			if d.IsDir() || err != nil || !source || forTests(in) {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, decl := range f.Decls {
				ast.Inspect(decl, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok && asks[s.Sel.Name] {
						found[filepath.ToSlash(in)+"."+nameOf(decl)] = true
					}
					return true
				})
			}
			return nil
		}))
	}
	require.Equal(t, slices.Sorted(maps.Keys(uses)), slices.Sorted(maps.Keys(found)))
}

// forTests reports whether a directory has servers and helpers of tests.
func forTests(dir string) bool {
	for _, of := range []string{
		"clustercache/clustercachetest", "internal/fakeapi", "internal/fleettest", "internal/pooltest",
		"internal/rehearse", "internal/testenv",
	} {
		if dir == of || strings.HasPrefix(dir, of+"/") {
			return true
		}
	}
	return false
}

func nameOf(decl ast.Decl) string {
	if f, ok := decl.(*ast.FuncDecl); ok {
		return f.Name.Name
	}
	return ""
}
