// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzParseAggregated feeds arbitrary bytes. The result must be within the
// limits, safe to put into a URL, and must not alias the input.
func FuzzParseAggregated(f *testing.F) {
	core := string(readRecorded(f, corePath)) // the mutator is slow on whole documents
	f.Add([]byte(core[:strings.Index(core, `},{"resource":"nodes"`)]+`}]}]}]}`), recorded[corePath].etag)
	f.Add([]byte(`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"a"},"versions":[{"version":"v1",`+
		`"freshness":"Stale"}]}]}`), `""`)
	f.Add([]byte(`{"kind":"APIGroupDiscoveryList","items":[{"versions":[{"version":"v1",`+
		`"resources":[{"resource":"a/b"}]}]}]}`), "")
	f.Fuzz(func(t *testing.T, body []byte, etag string) {
		verifies(etag, body)
		doc, err := parseAggregated(body)
		if err != nil {
			return
		}
		for i := range body {
			body[i] = 'X' // the document must not alias it
		}
		checkDocument(t, doc)
	})
}

// FuzzLegacy feeds arbitrary bytes as the list of groups and as the list of
// their resources.
func FuzzLegacy(f *testing.F) {
	f.Add([]byte(`{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"version":"v1"},{"version":"v2"}],`+
		`"preferredVersion":{"version":"v2"}}]}`), "pods", "Pod")
	f.Add([]byte(`{"kind":"APIVersions","versions":["v1","v1"]}`), "pods/log", "Pod")
	f.Fuzz(func(t *testing.T, body []byte, name, kind string) {
		for _, path := range []string{corePath, apisPath} {
			versions, err := legacyVersions(path, body)
			if err != nil {
				continue
			}
			lists := make([]*metav1.APIResourceList, len(versions))
			for i := range lists {
				if i%2 == 0 {
					lists[i] = &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: name, Kind: kind}}}
				}
			}
			doc, err := legacyDocument(versions, lists)
			require.NoError(t, err)
			checkDocument(t, doc)
		}
	})
}

func checkDocument(t *testing.T, doc *document) {
	t.Helper()
	resources := 0
	seen := map[string]bool{}
	for _, g := range doc.groups {
		require.False(t, seen[g.name], "a group comes once")
		seen[g.name] = true
		for _, v := range g.versions {
			for _, r := range v.resources {
				resources++
				path := g.name + "/" + v.name + "/" + r.name
				require.Equal(t, 2, strings.Count(path, "/"))
				require.NotContains(t, path, "..")
				require.NotContains(t, path, "X")
				require.NotEmpty(t, r.kind)
			}
		}
	}
	require.LessOrEqual(t, resources, maxResources)
}
