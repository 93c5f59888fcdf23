// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package comparison_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/comparison"
	"github.com/fleetcache/fleetcache/internal/packed"
)

// TestHazardServerChangesWithoutEnd: the last versions are kept up to a bound,
// beyond which nothing is.
func TestHazardServerChangesWithoutEnd(t *testing.T) {
	codec := packed.NewCodec()
	kind := codec.Kind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	changed := func(name, version string) *packed.Object {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetName(name)
		u.SetUID("u")
		u.SetResourceVersion(version)
		o, err := codec.PackUnstructured(kind, u)
		require.NoError(t, err)
		return o
	}
	var none *comparison.Changes
	none.Note(changed("a", "1")) // no audit is running

	c := comparison.NewChanges()
	for version := range 100_000 {
		if version%1000 == 0 {
			c.Note(changed("a", strconv.Itoa(version+1)))
		}
	}
	version, ok := c.Version(types.NamespacedName{Name: "a"})
	require.True(t, ok)
	require.Equal(t, "99001", version)
	require.False(t, c.Over(), "one object costs its memory once")

	for i := range 50_000 {
		c.Note(changed("o"+strconv.Itoa(i), "1"))
	}
	require.True(t, c.Over())
	_, ok = c.Version(types.NamespacedName{Name: "a"})
	require.False(t, ok)
}
