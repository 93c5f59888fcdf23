// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package ordering_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/internal/packed"
	"github.com/fleetcache/fleetcache/internal/wire"
)

var codec = packed.NewCodec()

func pack(t *testing.T, uid, version, content string) *packed.Object {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"v": content}}}
	u.SetName("a")
	u.SetUID(types.UID(uid))
	u.SetResourceVersion(version)
	o, err := codec.PackUnstructured(codec.Kind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}), u)
	require.NoError(t, err)
	return o
}

// TestOnlyNumbersHaveAnOrder: the API allows no conclusion from other versions.
func TestOnlyNumbersHaveAnOrder(t *testing.T) {
	for _, rv := range []string{"", "0", "007", "-1", "+1", " 1", "1 ", "1e3", "abc", "18446744073709551616"} {
		require.False(t, ordering.Ordered(rv), rv)
		require.False(t, ordering.Behind(rv, "5") || ordering.Behind("5", rv), rv)
		require.False(t, ordering.Reaches(rv, "5") || ordering.Reaches("5", rv), rv)
	}
	require.True(t, ordering.Ordered("18446744073709551615"))
	require.True(t, ordering.Behind("9", "10"), "by number, not by text")
	require.False(t, ordering.Behind("10", "10"))
	require.True(t, ordering.Reaches("10", "10") && ordering.Reaches("10", "9"))
	require.True(t, ordering.Versionless("") && ordering.Versionless("0") && !ordering.Versionless("1"))
}

// TestPositionIsNeverLostToAnOddVersion: a version without an order does not
// replace one that a watch can be resumed at.
func TestPositionIsNeverLostToAnOddVersion(t *testing.T) {
	require.Equal(t, "6", ordering.Further("5", "6"))
	require.Equal(t, "5", ordering.Further("5", "odd"))
	require.Equal(t, "odd", ordering.Further("", "odd"))
	require.Equal(t, "6", ordering.Further("odd", "6"))
}

// TestStatesAreComparedByVersionAndElseByContent: versions that are not numbers
// can only be distinguished.
func TestStatesAreComparedByVersionAndElseByContent(t *testing.T) {
	first, second := pack(t, "u", "9", "x"), pack(t, "u", "10", "x")
	require.True(t, ordering.Newer(second, first) && !ordering.Newer(first, second) && !ordering.Newer(first, first))
	require.True(t, ordering.Older(first, second) && !ordering.Older(second, first) && !ordering.Older(first, first))
	require.False(t, ordering.SameState(first, pack(t, "u", "9", "y")), "a default changes content under one version")
	require.True(t, ordering.SameState(first, pack(t, "u", "9", "x")))

	odd := pack(t, "u", "odd", "x")
	require.True(t, ordering.Newer(odd, first), "it differs")
	require.False(t, ordering.Newer(odd, pack(t, "u", "odd", "x")))
	require.False(t, ordering.Older(odd, first) || ordering.Older(first, odd))
}

// TestDeleteEndsOnlyWhatItNames: a late delete must not remove a later object
// of the name.
func TestDeleteEndsOnlyWhatItNames(t *testing.T) {
	o := pack(t, "one", "5", "x")
	for name, row := range map[string]struct {
		id             wire.Identity
		ends, succeeds bool
	}{
		"the same state":       {id: wire.Identity{UID: "one", ResourceVersion: "5"}, ends: true},
		"a later one":          {id: wire.Identity{UID: "one", ResourceVersion: "6"}, ends: true, succeeds: true},
		"an earlier one":       {id: wire.Identity{UID: "one", ResourceVersion: "4"}},
		"another object":       {id: wire.Identity{UID: "two", ResourceVersion: "6"}, succeeds: true},
		"without a uid":        {id: wire.Identity{ResourceVersion: "6"}, ends: true, succeeds: true},
		"without a version":    {id: wire.Identity{UID: "one"}, ends: true},
		"of a version unknown": {id: wire.Identity{UID: "one", ResourceVersion: "odd"}, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.ends, ordering.Ends(row.id, o))
			require.Equal(t, row.succeeds, ordering.Succeeds(row.id, o))
		})
	}
}

// TestHazardRepetitionIsTakenForARollback: of what a stream may show before its
// position, the cache explains its own state, and deletes of what it lacks.
func TestHazardRepetitionIsTakenForARollback(t *testing.T) {
	cached := pack(t, "one", "5", "x")
	for name, row := range map[string]struct {
		shown             *packed.Object
		deletes, explains bool // whether a delete, and whether another frame is explained
	}{
		"the same state":               {shown: cached, deletes: true, explains: true},
		"another content of it":        {shown: pack(t, "one", "5", "y"), deletes: true, explains: true},
		"an earlier state":             {shown: pack(t, "one", "4", "x")},
		"a later state":                {shown: pack(t, "one", "6", "x")},
		"another object of that name":  {shown: pack(t, "two", "5", "x")},
		"an earlier one of that name":  {shown: pack(t, "two", "4", "x"), deletes: true},
		"a later one of that name":     {shown: pack(t, "two", "6", "x")},
		"a version that is none":       {shown: pack(t, "one", "odd", "x")},
		"another with one that is not": {shown: pack(t, "two", "odd", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.deletes, ordering.Explained(true, row.shown, cached))
			require.Equal(t, row.explains, ordering.Explained(false, row.shown, cached))
		})
	}
	require.True(t, ordering.Explained(true, cached, nil), "it is gone already")
	require.False(t, ordering.Explained(false, cached, nil))
	require.Equal(t, "6", ordering.Further("6", "5"), "a position does not go back")
}
