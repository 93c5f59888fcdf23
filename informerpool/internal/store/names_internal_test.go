// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/packed"
)

// TestNamesAgreeWithAMap: whatever is put, replaced and removed in whatever
// order, while the table grows and shrinks, each name has the object that was
// put last.
func TestNamesAgreeWithAMap(t *testing.T) {
	codec := packed.NewCodec()
	kind := codec.Kind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	object := func(name string) *packed.Object {
		u := &unstructured.Unstructured{}
		u.SetName(name)
		o, err := codec.PackUnstructured(kind, u)
		require.NoError(t, err)
		return o
	}
	random := rand.New(rand.NewPCG(3, 4))
	for _, most := range []int{1, 3, 8, 9, 14, 15, 100, 1000} {
		n, want := &names{}, map[string]*packed.Object{}
		check := func() {
			require.Equal(t, len(want), n.count)
			require.Len(t, slices.Collect(n.all()), n.count)
			for i := range most + 1 {
				name := fmt.Sprint("o", i)
				require.Same(t, want[name], n.get(name), name)
			}
			require.LessOrEqual(t, len(n.slots), max(4*n.count*8/7, fullMax))
			require.True(t, len(n.slots) <= fullMax || n.count*8 <= len(n.slots)*7, "searches end soon")
		}
		for phase := range 6 {
			for step := range 3*most + 10 {
				name := fmt.Sprint("o", random.IntN(most))
				if random.IntN(4) > 0 == (phase%2 == 0) {
					o := object(name)
					n.put(o)
					want[name] = o
				} else {
					n.remove(name)
					delete(want, name)
				}
				if step%(1+most/10) == 0 {
					check()
				}
			}
		}
		for name := range want {
			n.remove(name)
			delete(want, name)
			if len(want)%(1+most/10) == 0 {
				check()
			}
		}
		require.Zero(t, n.count)
	}
}
