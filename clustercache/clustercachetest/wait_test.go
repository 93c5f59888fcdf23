// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache"
)

// TestHazardKindThatIsNotServedIsWaitedFor guards against WaitSynced failing
// the test after two minutes because a kind is not served, although that is the
// state of the fleet.
func TestHazardKindThatIsNotServedIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, east, cc := one(t, configMap("a", "1"))
		gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
		w, err := cc.Cluster(east.Key()).Watch(t.Context(), clustercache.Kind(gvk))
		require.NoError(t, err)
		defer w.Release()
		begin := time.Now()
		fleet.WaitSynced()
		require.Less(t, time.Since(begin), time.Minute)
		require.True(t, meta.IsNoMatchError(w.Status().LastError), "%v", w.Status().LastError)

		// Its definition is created, which is waited for as long as it takes to
		// notice, and is deleted.
		definition := crd("widgets", "Widget")
		require.NoError(t, east.Client().Create(t.Context(), definition))
		widget := &unstructured.Unstructured{}
		widget.SetGroupVersionKind(gvk)
		widget.SetNamespace("default")
		widget.SetName("w")
		require.NoError(t, east.Client().Create(t.Context(), widget))
		fleet.WaitSynced()
		require.True(t, w.HasSynced())
		require.Equal(t, 1, w.Status().Informer.Objects)

		require.NoError(t, east.Client().Delete(t.Context(), definition))
		fleet.WaitSynced()
		require.Zero(t, w.Status().Informer.Objects, "the delete was delivered")
	})
}

func crd(plural, kind string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": plural + ".example.com"},
		"spec": map[string]any{
			"group": "example.com",
			"scope": "Namespaced",
			"names": map[string]any{"plural": plural, "kind": kind},
			"versions": []any{map[string]any{
				"name":    "v1",
				"served":  true,
				"storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "x-kubernetes-preserve-unknown-fields": true,
				}},
			}},
		},
	}}
}
