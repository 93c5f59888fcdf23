// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/packed"
)

var codec = packed.NewCodec()

func pack(t *testing.T, namespace, name, version string) *packed.Object {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"v": version}}}
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetUID("u")
	u.SetResourceVersion(version)
	o, err := codec.PackUnstructured(codec.Kind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}), u)
	require.NoError(t, err)
	return o
}

// TestMemoryIsGivenBack: whatever was put and removed in whatever order, an
// empty store weighs nothing, and its indexes neither.
func TestMemoryIsGivenBack(t *testing.T) {
	s := store.New()
	byVersion := store.NewIndex("version", func(o *packed.Object) ([]string, error) {
		return []string{o.GetResourceVersion(), "all", "all"}, nil
	})
	s.Indexes = append(s.Indexes, byVersion)
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		namespace, name := fmt.Sprint("ns", random.IntN(3)), fmt.Sprint("o", random.IntN(200))
		old := s.Get(namespace, name)
		if old != nil && random.IntN(2) == 0 {
			s.Remove(old)
			continue
		}
		o := pack(t, namespace, name, fmt.Sprint(random.IntN(1000)+1))
		s.Put(old, o, map[*store.Index]store.Computed{byVersion: byVersion.Compute(o)})
	}
	require.Len(t, slices.Collect(s.All()), s.Count)
	require.Len(t, byVersion.Lookup("all"), s.Count, "a repeated value counts once")
	require.Len(t, slices.Collect(s.In("ns1")), s.CountIn("ns1"))
	require.Positive(t, s.Size())

	for _, o := range slices.Collect(s.All()) {
		s.Remove(o)
	}
	require.Zero(t, s.Count)
	require.Zero(t, s.Size())
	require.Empty(t, byVersion.Lookup("all"))
}

// TestIndexKnowsWhatItMisses: an object whose values could not be computed is a
// failure of the index until the object is gone.
func TestIndexKnowsWhatItMisses(t *testing.T) {
	failed := errors.New("failed")
	s, x := store.New(), store.NewIndex("x", nil)
	s.Indexes = append(s.Indexes, x)
	o := pack(t, "ns", "a", "1")
	s.Put(nil, o, map[*store.Index]store.Computed{x: {Err: failed}})
	object, count, err := x.Failure()
	require.Same(t, o, object)
	require.Equal(t, 1, count)
	require.Equal(t, failed, err)

	s.Remove(o)
	object, count, err = x.Failure()
	require.Nil(t, object)
	require.Zero(t, count)
	require.NoError(t, err)
	require.True(t, s.EmptyCopy().Index("x").Ready, "an empty index is complete")
}

// TestScopeIsThatOfAllObjects: unknown if there is none, or some of both.
func TestScopeIsThatOfAllObjects(t *testing.T) {
	s := store.New()
	require.Equal(t, store.ScopeUnknown, s.Scope())
	namespaced, wide := pack(t, "ns", "a", "1"), pack(t, "", "b", "1")
	s.Put(nil, namespaced, nil)
	require.Equal(t, store.ScopeNamespace, s.Scope())
	s.Put(nil, wide, nil)
	require.Equal(t, store.ScopeUnknown, s.Scope())
	s.Remove(namespaced)
	require.NotContains(t, []store.Scope{store.ScopeUnknown, store.ScopeNamespace}, s.Scope())
}

// TestSightRecordsWhatReadsMayHaveSeen: a read sees the changes before it.
func TestSightRecordsWhatReadsMayHaveSeen(t *testing.T) {
	s := &store.Sight{}
	require.False(t, store.Moment{}.Read())
	first := s.Next()
	require.False(t, first.Read())
	s.Look()
	second := s.Next()
	require.True(t, first.Read())
	require.False(t, second.Read())
}
