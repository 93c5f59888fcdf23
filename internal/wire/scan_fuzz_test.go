// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/wire"
	"github.com/fleetcache/fleetcache/internal/wire/wiretest"
)

// FuzzScan compares Scan with encoding/json. Objects that both accept must mean
// the same, and if only Scan refuses an object, it must name a field or limit.
func FuzzScan(f *testing.F) {
	f.Add(wiretest.Pod(1))
	for _, s := range scanSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		compareScan(t, object)
		// Mutated bytes are more often metadata than an object with metadata.
		compareScan(t, append(append([]byte(`{"kind":"X","metadata":`), object...), '}'))
	})
}

func compareScan(t *testing.T, object []byte) {
	t.Helper()
	it, err := wire.Scan(object)
	want, wantErr := decode(object)
	if err != nil {
		requireTyped(t, err)
		if wantErr == nil && !named(err) {
			t.Fatalf("refused without a field: %v", err)
		}
		return
	}
	require.NoError(t, wantErr)
	requireSameMeaning(t, want, &it)
}

// requireSameMeaning compares an item with the map into which its object
// decodes.
func requireSameMeaning(t *testing.T, want map[string]any, it *wire.Item) {
	t.Helper()
	require.Equal(t, text(want["apiVersion"]), it.APIVersion)
	require.Equal(t, text(want["kind"]), it.Kind)
	meta, _ := want["metadata"].(map[string]any)
	require.Equal(t, meta != nil, it.HasMetadata())
	require.Equal(t, text(meta["name"]), it.Name)
	require.Equal(t, text(meta["namespace"]), it.Namespace)
	require.Equal(t, text(meta["uid"]), it.UID)
	require.Equal(t, text(meta["resourceVersion"]), it.ResourceVersion)
	requireSameTime(t, meta["creationTimestamp"], it.CreationTimestamp)
	requireSameTime(t, meta["deletionTimestamp"], it.DeletionTimestamp)
	requireSameInt(t, meta["generation"], it.Generation)
	requireSameMap(t, meta["labels"], it.Labels)
	requireSameMap(t, meta["annotations"], it.Annotations)
	requireSameOwners(t, meta["ownerReferences"], it.OwnerReferences)
	var finalizers []any
	for s := range wire.Strings(it.Finalizers) {
		finalizers = append(finalizers, s)
	}
	if list, _ := meta["finalizers"].([]any); len(list) > 0 {
		require.Equal(t, list, finalizers)
	} else {
		require.Empty(t, finalizers)
	}

	delete(want, "apiVersion")
	delete(want, "kind")
	delete(meta, "managedFields")
	if meta == nil {
		delete(want, "metadata") // null is absent
	}
	got, err := decode(strip(nil, it))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func requireSameTime(t *testing.T, want any, got string) {
	t.Helper()
	require.Equal(t, text(want), got)
	if got != "" {
		_, err := time.Parse(time.RFC3339, got)
		require.NoError(t, err)
	} else {
		require.Nil(t, want)
	}
}

func requireSameInt(t *testing.T, want any, got int64) {
	t.Helper()
	if want == nil {
		require.Zero(t, got)
		return
	}
	n, err := strconv.ParseInt(want.(json.Number).String(), 10, 64)
	require.NoError(t, err)
	require.Equal(t, n, got)
}

func requireSameMap(t *testing.T, want any, got []byte) {
	t.Helper()
	if want == nil {
		require.Nil(t, got)
		return
	}
	require.NotNil(t, got)
	m := map[string]string{}
	for k, v := range want.(map[string]any) {
		m[k] = text(v)
		value, ok := wire.Lookup(got, k)
		require.True(t, ok)
		require.Equal(t, m[k], value)
	}
	require.Equal(t, m, maps.Collect(wire.StringMap(got)))
}

func requireSameOwners(t *testing.T, want any, got []byte) {
	t.Helper()
	if want == nil {
		require.Nil(t, got)
		return
	}
	d := json.NewDecoder(bytes.NewReader(got))
	d.UseNumber()
	var owners any
	require.NoError(t, d.Decode(&owners))
	require.Equal(t, want, owners)
}

// scanSeeds are objects that have tripped up a scanner, or could.
var scanSeeds = []string{
	``, ` `, `null`, `[]`, `"x"`, `1`, `{}`, `{`, `}`, `{"a"}`, `{"a":}`, `{,}`, `{"a":1,}`, `{"a":1}{`, "{}\n\t ",
	`{"metadata":null}`, `{"metadata":[]}`, `{"metadata":{}}`, `{"metadata":{},"spec":{}}`,
	`{"apiVersion":null,"kind":1}`,
	`{"metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":"1"}}`,
	`{"metadata":{"name":"a"},"metadata":{"namespace":"b"},"kind":"A","kind":"B"}`,
	`{"metadata":{"name":"a","name":null}}`, `{"metadata":{"na\u006de":"a","name":"b"}}`,
	`{"meta\u0064ata":{"name":"\ud83d\ude00\ud800"}}`, "{\"metadata\":{\"name\":\"\xff\"}}",
	`{"metadata":{"labels":{"a":"b","a":null,"c":""}}}`, `{"metadata":{"labels":null}}`,
	`{"metadata":{"labels":{"a":1}}}`,
	`{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"12"}}`,
	`{"metadata":{"generation":3}}`, `{"metadata":{"generation":3.0}}`, `{"metadata":{"generation":-0}}`,
	`{"metadata":{"generation":1e2}}`,
	`{"metadata":{"generation":9223372036854775808}}`,
	`{"metadata":{"creationTimestamp":"2025-01-01T00:00:00Z","deletionTimestamp":"2025-01-01T00:00:00.5+01:00",` +
		`"deletionGracePeriodSeconds":30}}`,
	`{"metadata":{"creationTimestamp":""}}`, `{"metadata":{"creationTimestamp":null}}`,
	`{"metadata":{"creationTimestamp":"yesterday"}}`,
	`{"metadata":{"ownerReferences":[{"uid":"u","name":"n","kind":"k","apiVersion":"v1",` +
		`"controller":true,"extra":{}}]}}`,
	`{"metadata":{"ownerReferences":[{"uid":"u","uid":null}]}}`, `{"metadata":{"ownerReferences":[null]}}`,
	`{"metadata":{"ownerReferences":[{"controller":1}]}}`,
	`{"metadata":{"finalizers":["a","b"]}}`, `{"metadata":{"finalizers":[null]}}`, `{"metadata":{"finalizers":[]}}`,
	`{"metadata":{"managedFields":[{"manager":"x"}],"name":"a"}}`, `{"metadata":{"managedFields":null}}`,
	`{"a":-0,"b":1.5e+3,"c":1e400,"d":01}`, `{"a":123456789012345678901234567890,"b":-1E-400}`, `{"a":.5}`, `{"a":1.}`,
	`{"a":+1}`,
	`{"a":"\u12G4"}`, `{"a":"\u123":"}`, "{\"metadata\":{\"name\":\"\xc3(\"}}", `{"a":"\x"}`, "{\"a\":\"\t\"}",
	`{"a":"\"\\\/\b\f\n\r\t"}`, `{"a":tru}`, `{"a":nul`, `{"a":[1,2,{"b":[]}]}`, `{"a":[1 2]}`, `{"a":[1}}`,
	`{"a":{"b":1]}`, `{"a":[1,2}`, `{"a":[}`,
	`{"name":"n","namespace":"ns","uid":"u","resourceVersion":"9","generation":1,"labels":{"a":"b"},` +
		`"managedFields":[{}],"finalizers":["f"]}`,
	`{"a":{"b":{"c":[[[[{"d":null}]]]]}}}`, "\xef\xbb\xbf{}", "{\"a\":1\x00}",
}
