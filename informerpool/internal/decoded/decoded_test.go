// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package decoded

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/packed"
)

func pack(t *testing.T, name, value string) *packed.Object {
	t.Helper()
	codec := packed.NewCodec()
	u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"v": value}}}
	u.SetName(name)
	u.SetUID("u")
	u.SetResourceVersion("1")
	o, err := codec.PackUnstructured(codec.Kind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}), u)
	require.NoError(t, err)
	return o
}

// TestRepeatedReadsShareNothing: an object enters the cache on its second read,
// and every reader owns what it gets.
func TestRepeatedReadsShareNothing(t *testing.T) {
	c, o := New(1<<20), pack(t, "a", "x")
	for n := range 4 {
		var read corev1.ConfigMap
		require.NoError(t, c.Decode(o, &read))
		require.Equal(t, map[string]string{"v": "x"}, read.Data)
		read.Data["v"] = "mine"
		require.Equal(t, min(n, 1), c.hot.Len())
	}
	require.NoError(t, c.Decode(o, &unstructured.Unstructured{}))
	require.Equal(t, 1, c.hot.Len(), "copying takes as long as decoding")
}

// TestHazardDecodedObjectsTakeMoreThanTheLimit: the oldest are dropped, an
// object that is too large never enters, and without a limit nothing does.
func TestHazardDecodedObjectsTakeMoreThanTheLimit(t *testing.T) {
	c := New(64 << 10)
	var objects []*packed.Object // kept, so that none is dropped for being gone
	for range 100 {
		o := pack(t, "a", strings.Repeat("x", 1000))
		objects = append(objects, o)
		for range 2 {
			require.NoError(t, c.Decode(o, &corev1.ConfigMap{}))
		}
		require.LessOrEqual(t, c.bytes, c.limit)
	}
	require.Greater(t, c.hot.Len(), 1)
	require.Less(t, c.hot.Len(), len(objects))

	c = New(64 << 10)
	large := pack(t, "a", strings.Repeat("x", 32<<10))
	for range 3 {
		require.NoError(t, c.Decode(large, &corev1.ConfigMap{}))
	}
	require.Zero(t, c.bytes)

	c = New(0)
	for range 3 {
		require.NoError(t, c.Decode(objects[0], &corev1.ConfigMap{}))
	}
	require.Nil(t, c.hot)
}
