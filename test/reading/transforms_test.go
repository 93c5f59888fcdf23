// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/informerpool"
)

// TestTheTransformOfAllResourcesIsForThoseWithoutOne: a resource's own
// transform replaces it.
func TestTheTransformOfAllResourcesIsForThoseWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		label := func(value string) informerpool.TransformFunc {
			return func(u *unstructured.Unstructured) error {
				u.SetLabels(map[string]string{"by": value})
				return nil
			}
		}
		fleet := clustercachetest.New(t, clustercachetest.Options{Cache: clustercache.Options{
			Informers: informerpool.Options{Transforms: map[schema.GroupResource]informerpool.TransformFunc{
				{}:                       label("default"),
				{Resource: "configmaps"}: label("own"),
			}},
		}})
		meta := metav1.ObjectMeta{Namespace: "default", Name: "one"}
		east := fleet.Add("fleet/east", &corev1.ConfigMap{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta})
		cc := fleet.ClusterCache()
		for by, object := range map[string]client.Object{"own": &corev1.ConfigMap{}, "default": &corev1.Secret{}} {
			w, err := cc.Cluster(east.Key()).Watch(t.Context(), object)
			require.NoError(t, err)
			defer w.Release()
			require.NoError(t, w.WaitForSync(t.Context()))
			key := client.ObjectKey{Namespace: "default", Name: "one"}
			require.NoError(t, cc.Cluster(east.Key()).Reader().Get(t.Context(), key, object, clustercache.CacheOnly))
			require.Equal(t, map[string]string{"by": by}, object.GetLabels())
		}
	})
}
