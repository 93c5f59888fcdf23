// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"

	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/packed"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

// TestHazardKeysComeAndGoneAreKept: the source for dynamic clients kept the
// versions of each key for ever. client-go's fake keeps no versions itself, so
// the source has versions to keep.
func TestHazardKeysComeAndGoneAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
		client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{configMaps: "ConfigMapList"})
		source := FromDynamic(func(types.NamespacedName) (dynamic.Interface, error) { return client, nil })
		pool, err := New(Options{Source: source})
		require.NoError(t, err)
		defer func() { require.NoError(t, pool.Close(context.Background())) }()
		for i := range 300 {
			cluster := types.NamespacedName{Name: fmt.Sprint("cluster", i%3)}
			l, err := pool.Acquire(t.Context(),
				Key{Cluster: cluster, Resource: configMaps, Namespace: fmt.Sprint("ns", i)})
			require.NoError(t, err)
			require.NoError(t, l.WaitForSync(t.Context()))
			l.ReleaseNow()
		}
		synctest.Wait()
		s, ok := source.(*dynamicSource)
		require.True(t, ok)
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Empty(t, s.versions)
		require.Empty(t, s.early)
	})
}

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
		if err := r.informer.reserve(nil, o, options.MaxClusterBytes); err == nil {
			stored++
			reflectors = append(reflectors, r)
		} else {
			require.ErrorIs(t, err, ErrBudget)
		}
	}
	require.Equal(t, 4, stored)
	for _, r := range reflectors {
		d := &draft{informer: r.informer}
		d.change(func(staged *store.Store) { staged.Put(nil, o, nil) })
		require.Equal(t, r.informer.mu.staged.Bytes, r.informer.mu.charged, "known to the byte")
		d.replace(nil)
	}
	require.Zero(t, c.bytes.Load())
}
