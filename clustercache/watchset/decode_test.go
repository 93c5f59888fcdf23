// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fleetcache/fleetcache/clustercache/watchset"
)

const document = `
web:
  cluster: fleet/east
  apiVersion: apps/v1
  kind: Deployment
  namespace: shop
  labelSelector: app in (cart, till)
  fieldSelector: metadata.name!=test
hub's: {cluster: hub, apiVersion: v1, kind: Secret}
file:
  cluster: //home/me/.kube/config+east
  apiVersion: example.com/v1
  kind: Widget
`

func documented() map[string]watchset.Entry {
	return map[string]watchset.Entry{
		"web": {
			Cluster:       client.ObjectKey{Namespace: "fleet", Name: "east"},
			GVK:           schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
			Namespace:     "shop",
			LabelSelector: "app in (cart, till)",
			FieldSelector: "metadata.name!=test",
		},
		"hub's": {GVK: secrets},
		"file":  {Cluster: client.ObjectKey{Name: "/home/me/.kube/config+east"}, GVK: widgets},
	}
}

func TestDecode(t *testing.T) {
	got, err := watchset.Decode([]byte(document))
	require.NoError(t, err)
	require.Equal(t, documented(), got)

	text, err := json.Marshal(got)
	require.NoError(t, err)
	again, err := watchset.Decode(text)
	require.NoError(t, err)
	require.Equal(t, documented(), again)

	empty, err := watchset.Decode([]byte("{}"))
	require.NoError(t, err)
	require.Empty(t, empty)
}

// Entries may be part of a configuration of one's own.
func TestEntriesInAnotherDocument(t *testing.T) {
	var config struct {
		Watch map[string]watchset.Entry `json:"watch"`
	}
	require.NoError(t, yaml.UnmarshalStrict([]byte("watch:\n  e: {cluster: a, apiVersion: v1, kind: Secret}"), &config))
	require.Equal(t, map[string]watchset.Entry{"e": {Cluster: client.ObjectKey{Name: "a"}, GVK: secrets}}, config.Watch)
	err := yaml.UnmarshalStrict([]byte("watch:\n  e: {cluster: a, apiVersion: v1, kinds: Secret}"), &config)
	require.ErrorContains(t, err, "kinds: unknown field")
}

func TestDecodeNamesEntryAndField(t *testing.T) {
	const valid = "cluster: a, apiVersion: v1, kind: A"
	for text, want := range map[string][]string{
		"":                               {"empty; a set without entries is {}"},
		"# nothing yet":                  {"empty"},
		"null":                           {"empty"},
		"- a":                            {"line 1: must be a mapping"},
		"a: b: c":                        {"yaml: "},
		"{}\n---\n{}":                    {"line 2: more than one document"},
		"e: text":                        {`line 1: entry "e": must be a mapping`},
		"e: {}":                          {`entry "e": cluster: required`},
		"'': {}":                         {"an entry needs a name"},
		"1: {}":                          {"must be text"},
		"e: {cluster: a}":                {`entry "e": apiVersion: required`},
		"e: {cluster: a, apiVersion: 1}": {`entry "e": apiVersion: must be text`},
		"e: {" + valid + ", kind: B}":    {`entry "e": kind: given twice`},
		"e: {cluster: a, apiVersion: v1, kind: A}\ne: {}": {`line 2: entry "e": given twice`},
		"e: {cluster: a, apiVersion: v1, Kind: A}":        {`entry "e": Kind: unknown field`},
		"e: {cluster: '', kind: A}":                       {`entry "e": cluster: "" is not the name`},
		"e: {cluster: a, apiVersion: a/b/c, kind: A}":     {`entry "e": apiVersion: `, "a/b/c"},
		"e: {cluster: a, apiVersion: a/, kind: A}":        {`entry "e": apiVersion: required`},
		"e: {cluster: a, apiVersion: v1, kind: A/B}":      {`entry "e": kind: `},
		"e: {" + valid + ", namespace: a/b}":              {`entry "e": namespace: `},
		"e: {" + valid + ", namespace: 1}":                {`entry "e": namespace: must be text`},
		"e: {" + valid + ", namespace: [a]}":              {`entry "e": namespace: must be text`},
		"e: {" + valid + ",\n labelSelector: 'a in'}":     {`line 2: entry "e": labelSelector: `},
		"e: {" + valid + ", fieldSelector: a>b}":          {`entry "e": fieldSelector: `},

		"a: {cluster: a}\nb: {kind: b}": {`entry "a": apiVersion`, `entry "b": cluster`},
	} {
		_, err := watchset.Decode([]byte(text))
		require.Error(t, err, text)
		for _, part := range want {
			require.ErrorContains(t, err, part, text)
		}
	}
}

func TestEntriesAreReadable(t *testing.T) {
	require.Equal(t, "apps/v1 Deployment in cluster fleet/east, namespace shop, labels app in (cart, till), "+
		"fields metadata.name!=test", documented()["web"].String())
	require.Equal(t, "v1 Secret in cluster hub", documented()["hub's"].String())
}

// FuzzDecode decodes what it encodes, and nothing makes it panic.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(document))
	f.Add([]byte("a: &a {cluster: a, apiVersion: v1, kind: A}\nb: *a\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte(`{"a": {"cluster": "\u00e4/%2F", "apiVersion": "v1", "kind": "A"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := watchset.Decode(data)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		text, err := json.Marshal(entries)
		require.NoError(t, err)
		again, err := watchset.Decode(text)
		require.NoError(t, err, "%s", text)
		require.Equal(t, entries, again)
	})
}
