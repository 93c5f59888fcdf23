// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestFakeDynamicClientWorksInABubble runs the pool for an hour of virtual time
// on client-go's fake, which keeps no history.
func TestFakeDynamicClientWorksInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
		object := func(name, value string) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "ns", "name": name},
				"data": map[string]any{"k": value},
			}}
		}
		client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{configMaps: "ConfigMapList"}, object("a", "1"), object("b", "1"))
		pool, err := informerpool.New(informerpool.Options{
			Source: informerpool.FromDynamic(func(types.NamespacedName) (dynamic.Interface, error) {
				return client, nil
			}),
		})
		require.NoError(t, err)
		defer func() { require.NoError(t, pool.Close(context.Background())) }()
		l := pooltest.Acquire(t, pool, informerpool.Key{Resource: configMaps})
		r := pooltest.Record(t, pool, l)
		require.NoError(t, l.WaitForSync(context.Background()))
		synctest.Wait()
		require.Len(t, r.Take(), 2)

		api := client.Resource(configMaps).Namespace("ns")
		_, err = api.Create(context.Background(), object("c", "1"), metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = api.Update(context.Background(), object("a", "2"), metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NoError(t, api.Delete(context.Background(), "b", metav1.DeleteOptions{}))
		synctest.Wait()
		require.Len(t, r.Take(), 3)
		pooltest.After(time.Hour) // stalls and re-lists on the way, since the fake sends no bookmarks
		require.Empty(t, r.Take(), "no event for what did not change")
		_, err = api.Update(context.Background(), object("a", "3"), metav1.UpdateOptions{})
		require.NoError(t, err)
		pooltest.After(time.Minute)
		require.Len(t, r.Take(), 1)
		r.RequireSound(t)

		var typed corev1.ConfigMap
		require.NoError(t, l.GetInto("ns", "a", &typed))
		require.Equal(t, map[string]string{"k": "3"}, typed.Data)
		require.Equal(t, "ConfigMap", typed.Kind)
	})
}
