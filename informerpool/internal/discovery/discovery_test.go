// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool/internal/discovery"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// server answers with documents by path.
type server map[string]string

func (s server) read(path string) (*discovery.Document, error) {
	body, ok := s[path]
	if !ok {
		return nil, errors.New("unexpected path " + path)
	}
	return discovery.Decode([]byte(body))
}

// TestFormsOfDiscoveryAgree: all groups in one document, one document for each
// version, and the core group.
func TestFormsOfDiscoveryAgree(t *testing.T) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	for name, row := range map[string]struct {
		server server
		search discovery.Search
		want   discovery.Result
	}{
		"aggregated": {
			server: server{"/apis": `{"kind":"APIGroupDiscoveryList","items":[
				{"metadata":{"name":"example.com"},"versions":[
					{"version":"v1","resources":[{"resource":"widgets","scope":"Namespaced"}]},
					{"version":"v2","resources":[{"resource":"widgets","scope":"Namespaced"}]}]}]}`},
			search: discovery.Search{Resource: widgets},
			want:   discovery.Result{Served: true, Versions: []string{"v2"}},
		},
		"aggregated, another scope": {
			server: server{"/apis": `{"kind":"APIGroupDiscoveryList","items":[
				{"metadata":{"name":"example.com"},"versions":[
					{"version":"v1","resources":[{"resource":"widgets","scope":"Cluster"}]}]}]}`},
			search: discovery.Search{Resource: widgets, Namespaced: true},
		},
		"by version": {
			server: server{
				"/apis": `{"kind":"APIGroupList","groups":[
					{"name":"example.com","versions":[{"version":"v1"},{"version":"v2"}]}]}`,
				"/apis/example.com/v1": `{"kind":"APIResourceList","resources":[{"name":"gadgets","namespaced":true}]}`,
				"/apis/example.com/v2": `{"kind":"APIResourceList","resources":[{"name":"widgets","namespaced":true}]}`,
			},
			search: discovery.Search{Resource: widgets},
			want:   discovery.Result{Versions: []string{"v2"}},
		},
		"no such group": {
			server: server{"/apis": `{"kind":"APIGroupList","groups":[{"name":"other.com"}]}`},
			search: discovery.Search{Resource: widgets},
		},
		"core": {
			server: server{
				"/api":    `{"kind":"APIVersions","versions":["v1"]}`,
				"/api/v1": `{"kind":"APIResourceList","resources":[{"name":"pods","namespaced":true}]}`,
			},
			search: discovery.Search{Resource: pods, Namespaced: true},
			want:   discovery.Result{Served: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := row.search.Find(row.server.read)
			require.NoError(t, err)
			require.Equal(t, row.want, got)
		})
	}
}

// TestHazardOtherAnswersProveNothing: only discovery documents count, and a
// version that is stale is not known to lack a resource.
func TestHazardOtherAnswersProveNothing(t *testing.T) {
	search := discovery.Search{Resource: widgets}
	for name, row := range map[string]struct {
		server server
		none   bool
	}{
		"a page of a proxy": {server: server{"/apis": `<html>`}, none: true},
		"another document":  {server: server{"/apis": `{"kind":"Status"}`}, none: true},
		"one without an end": {
			server: server{"/apis": `"` + strings.Repeat("x", discovery.MaxBytes) + `"`},
			none:   true,
		},
		"a failing request": {server: server{}},
		"a stale version": {server: server{"/apis": `{"kind":"APIGroupDiscoveryList","items":[
			{"metadata":{"name":"example.com"},"versions":[{"version":"v1","freshness":"Stale"}]}]}`}},
		"another second page": {
			server: server{
				"/apis": `{"kind":"APIGroupList","groups":[
					{"name":"example.com","versions":[{"version":"v1"}]}]}`,
				"/apis/example.com/v1": `{}`,
			},
			none: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := search.Find(row.server.read)
			require.Error(t, err)
			require.Equal(t, row.none, errors.Is(err, discovery.ErrNone))
			require.Zero(t, got)
		})
	}
}

// TestDocumentTellsTheKind: only the list of the resources of a version does.
func TestDocumentTellsTheKind(t *testing.T) {
	const widgets = `"resources":[{"name":"widgets/status","kind":"No"},{"name":"widgets","kind":"Widget"}]`
	for body, kind := range map[string]string{
		`{"kind":"APIResourceList",` + widgets + `}`:                                  "Widget",
		`{"kind":"Status",` + widgets + `}`:                                           "",
		`{"kind":"APIResourceList","resources":[{"name":"gadgets","kind":"Gadget"}]}`: "",
	} {
		doc, err := discovery.Decode([]byte(body))
		require.NoError(t, err)
		require.Equal(t, kind, doc.KindOf("widgets"), body)
	}
}
