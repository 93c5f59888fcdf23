// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	discoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
)

// recorded are the documents in testdata. kube-apiserver 1.36.3 serves them
// with these ETags.
var recorded = map[string]struct{ file, etag string }{
	corePath: {"testdata/core.json",
		`"4D7E1BED90B364BC86049DD9E636494980AEF65B7F8CFAA267616FA062B514A8` +
			`A3CC2C2851CC9337B8D28B4C80960E2353DE5E0B152E87CC223E02EA3C5C37AC"`},
	apisPath: {"testdata/groups.json",
		`"A74552DF419C4697E3A22F67B8FE55FD8F2CC33F6134FF206B16341598294CDE` +
			`9896C7F67B2819217E6BB70E74F97FCC864DDFCDB02FDA565699CC7D6E3CC377"`},
}

func readRecorded(tb testing.TB, path string) []byte {
	tb.Helper()
	body, err := os.ReadFile(recorded[path].file)
	require.NoError(tb, err)
	return body
}

func TestETagOfRealServerIsVerified(t *testing.T) {
	for path, document := range recorded {
		body := readRecorded(t, path)
		require.True(t, verifies(document.etag, body), path)
		changed := strings.Replace(string(body), "Namespaced", "Cluster", 1)
		require.False(t, verifies(document.etag, []byte(changed)), path)
	}
	require.False(t, verifies(`""`, nil))
	require.False(t, verifies(recorded[apisPath].etag, nil))
}

// TestMappingsAgreeWithClientGo uses client-go's own mapper as the oracle,
// given the same document.
func TestMappingsAgreeWithClientGo(t *testing.T) {
	m := recordedMapper(t)
	theirs := theirMapper(t)
	ours := m.RESTMapper()
	kinds := 0
	for _, g := range m.known.Load().all() {
		for _, v := range g.versions {
			for _, r := range v.resources {
				kinds++
				gvk := schema.GroupVersionKind{Group: g.name, Version: v.name, Kind: r.kind}
				want, err := theirs.RESTMapping(gvk.GroupKind(), gvk.Version)
				require.NoError(t, err)
				got, err := ours.RESTMapping(gvk.GroupKind(), gvk.Version)
				require.NoError(t, err)
				require.Equal(t, want.Resource, got.Resource)
				require.Equal(t, want.GroupVersionKind, got.GroupVersionKind)
				require.Equal(t, want.Scope.Name(), got.Scope.Name())
				wantAll, err := theirs.RESTMappings(gvk.GroupKind())
				require.NoError(t, err)
				gotAll, err := ours.RESTMappings(gvk.GroupKind())
				require.NoError(t, err)
				require.Len(t, gotAll, len(wantAll))
				require.Equal(t, wantAll[0].Resource, gotAll[0].Resource, "preferred")

				for _, partial := range []schema.GroupVersionResource{
					{Resource: r.name}, {Resource: r.singular}, {Group: g.name, Resource: r.name},
					{Group: g.name, Version: v.name, Resource: r.name},
				} {
					wantKind, err := theirs.KindFor(partial)
					require.NoError(t, err)
					gotKind, err := ours.KindFor(partial)
					require.NoError(t, err)
					require.Equal(t, wantKind, gotKind, "%v", partial)
					wantResource, err := theirs.ResourceFor(partial)
					require.NoError(t, err)
					gotResource, err := ours.ResourceFor(partial)
					require.NoError(t, err)
					require.Equal(t, wantResource, gotResource, "%v", partial)
				}
				wantSingular, err := theirs.ResourceSingularizer(r.name)
				require.NoError(t, err)
				gotSingular, err := ours.ResourceSingularizer(r.name)
				require.NoError(t, err)
				require.Equal(t, wantSingular, gotSingular)
			}
		}
	}
	require.Equal(t, 68, kinds)
}

func theirMapper(t *testing.T) meta.RESTMapper {
	t.Helper()
	var all []*restmapper.APIGroupResources
	for _, path := range []string{corePath, apisPath} {
		var list discoveryv2.APIGroupDiscoveryList
		require.NoError(t, json.Unmarshal(readRecorded(t, path), &list))
		groups, resources, failed := discovery.SplitGroupsAndResources(list)
		require.Empty(t, failed)
		for _, g := range groups.Groups {
			one := &restmapper.APIGroupResources{Group: g, VersionedResources: map[string][]metav1.APIResource{}}
			for _, v := range g.Versions {
				gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
				one.VersionedResources[v.Version] = resources[gv].APIResources
			}
			all = append(all, one)
		}
	}
	return restmapper.NewDiscoveryRESTMapper(all)
}

func recordedMapper(t *testing.T) *Mapper {
	t.Helper()
	table := NewTable()
	snap := &snapshot{}
	for path, into := range map[string]*part{corePath: &snap.core, apisPath: &snap.apis} {
		doc, err := parseAggregated(readRecorded(t, path))
		require.NoError(t, err)
		into.entry = table.add(path, doc, recorded[path].etag)
	}
	m := table.NewMapper(nil, "", Options{})
	m.known.Store(snap)
	return m
}

func TestVanillaClusterIsSmall(t *testing.T) {
	bodies := [][]byte{readRecorded(t, corePath), readRecorded(t, apisPath)}
	const copies = 50
	documents := make([]*document, 0, 2*copies)
	before := heap()
	for range copies {
		for _, body := range bodies {
			doc, err := parseAggregated(body)
			require.NoError(t, err)
			documents = append(documents, doc)
		}
	}
	perCluster := (heap() - before) / copies
	t.Logf("%d bytes for %d resources", perCluster, 68)
	require.Less(t, perCluster, uint64(20<<10))
	runtime.KeepAlive(documents)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func TestNamesThatCannotBeRealAreLeftOut(t *testing.T) {
	doc, err := parseAggregated([]byte(`{"kind":"APIGroupDiscoveryList","items":[
		{"metadata":{"name":"a/../b"},"versions":[{"version":"v1"}]},
		{"metadata":{"name":"a"},"versions":[{"version":"../v1"},{"version":"v1","resources":[
			{"resource":"../secrets","responseKind":{"kind":"A"}},
			{"resource":"..","responseKind":{"kind":"A"}},
			{"resource":"as?watch=1","responseKind":{"kind":"A"}},
			{"resource":"as","responseKind":{"kind":"A\n"}},
			{"resource":"bs","scope":"Namespaced","singularResource":"","responseKind":{"kind":"B"}}]},
			{"version":"v1","resources":[{"resource":"other","responseKind":{"kind":"Second"}}]}]}]}`))
	require.NoError(t, err)
	require.Equal(t, &document{groups: []group{{name: "a", versions: []version{
		{name: "v1", resources: []resource{{name: "bs", singular: "b", kind: "B", namespaced: true}}},
	}}}}, doc)
}
