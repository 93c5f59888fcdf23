// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/informerpool"
)

// TestHazardExtractAndApplyWipesTheObject: a cached Get, ExtractConfigMap and
// Apply used to remove the data of the remote object, because the cache had no
// managedFields.
func TestHazardExtractAndApplyWipesTheObject(t *testing.T) {
	for _, row := range []struct {
		name      string
		informers informerpool.Options
		cached    bool // the Get
		opts      []client.GetOption
	}{
		{"by default", informerpool.Options{}, true, nil},
		{"by default, for apply", informerpool.Options{}, true, []client.GetOption{clustercache.ForApply}},
		{"dropped", informerpool.Options{DropManagedFields: true}, false, []client.GetOption{clustercache.ForApply}},
		{"transformed", informerpool.Options{Transforms: map[schema.GroupResource]informerpool.TransformFunc{
			{Resource: "configmaps"}: func(u *unstructured.Unstructured) error {
				u.SetManagedFields(nil)
				return nil
			},
		}}, false, []client.GetOption{clustercache.ForApply}},
		{"transformed like all", informerpool.Options{Transforms: map[schema.GroupResource]informerpool.TransformFunc{
			{}: func(u *unstructured.Unstructured) error {
				u.SetManagedFields(nil)
				return nil
			},
		}}, false, []client.GetOption{clustercache.ForApply}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fleet := clustercachetest.New(t,
					clustercachetest.Options{Cache: clustercache.Options{Informers: row.informers}})
				east := fleet.Add("fleet/east")
				cc := fleet.ClusterCache()
				w, err := cc.Cluster(east.Key()).Watch(t.Context(), &corev1.ConfigMap{})
				require.NoError(t, err)
				defer w.Release()
				fleet.WaitSynced()
				c, err := cc.Cluster(east.Key()).Client()
				require.NoError(t, err)
				first := applycorev1.ConfigMap("cm", "default").WithData(map[string]string{"a": "1"})
				require.NoError(t, c.Apply(t.Context(), first, client.FieldOwner("me")))
				fleet.WaitSynced()

				got, origin := &corev1.ConfigMap{}, clustercache.Origin{}
				key := client.ObjectKey{Namespace: "default", Name: "cm"}
				require.NoError(t, c.Get(t.Context(), key, got, append(row.opts, &origin)...))
				require.Equal(t, row.cached, origin.Cached)
				extracted, err := applycorev1.ExtractConfigMap(got, "me")
				require.NoError(t, err)
				require.NoError(t, c.Apply(t.Context(), extracted.WithLabels(map[string]string{"l": "1"}),
					client.FieldOwner("me")))
				require.NoError(t, east.Client().Get(t.Context(), key, got))
				require.Equal(t, map[string]string{"a": "1"}, got.Data, "nothing was wiped")
				require.Equal(t, "1", got.Labels["l"])

				err = cc.Cluster(east.Key()).Reader().Get(t.Context(), key, got, clustercache.CacheOnly,
					clustercache.ForApply)
				if row.cached {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, clustercache.ErrUnsupported, fmt.Sprint(err))
				}
			})
		})
	}
}
