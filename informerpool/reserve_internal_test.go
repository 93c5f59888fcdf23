// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/packed"
)

// TestHazardInformersFillTheBudgetTogether: many informers of a cluster list at
// once. Each found room for its object before any of them had stored one.
func TestHazardInformersFillTheBudgetTogether(t *testing.T) {
	codec := packed.NewCodec()
	u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"k": "v"}}}
	u.SetName("o")
	u.SetResourceVersion("5")
	o, err := codec.PackUnstructured(codec.Kind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}), u)
	require.NoError(t, err)
	growth := int64(o.Size()) + store.EntryBytes
	c, options := &clusterStats{}, &Options{MaxClusterBytes: 4*growth + growth/2}
	stored := 0
	var reflectors []*reflector
	for range 10 {
		r := &reflector{informer: &informer{cluster: c}, options: options}
		r.informer.mu.store = store.New()
		r.informer.mu.staged = r.informer.mu.store.Stage()
		if err := r.checkBytes(nil, o); err == nil {
			stored++
			reflectors = append(reflectors, r)
		} else {
			require.ErrorIs(t, err, ErrBudget)
		}
	}
	require.Equal(t, 4, stored)
	for _, r := range reflectors {
		r.informer.stage(nil, o)
		require.Equal(t, r.informer.mu.staged.Bytes, r.informer.mu.charged, "known to the byte")
		r.informer.discard()
	}
	require.Zero(t, c.bytes.Load())
}
