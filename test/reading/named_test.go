// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// formsOfConfigMap are the forms into which a ConfigMap is read.
func formsOfConfigMap() []client.Object {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	u, m := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	u.SetGroupVersionKind(gvk)
	m.SetGroupVersionKind(gvk)
	return []client.Object{&corev1.ConfigMap{}, u, m}
}

// TestHazardAbsentObjectThatIsWatchedByNameIsReadLive: a watch of one object by
// its name knows that the object does not exist, as a watch of all objects
// does. One that selects by labels, too, does not.
func TestHazardAbsentObjectThatIsWatchedByNameIsReadLive(t *testing.T) {
	byName := client.MatchingFields{"metadata.name": "absent"}
	for name, c := range map[string]struct {
		opts  []client.ListOption
		knows bool
	}{
		"in its namespace":  {[]client.ListOption{client.InNamespace("default"), byName}, true},
		"in all namespaces": {[]client.ListOption{byName}, true},
		"and by label": {
			[]client.ListOption{client.InNamespace("default"), byName, client.MatchingLabels{"app": "x"}}, false,
		},
		"by another name": {
			[]client.ListOption{client.InNamespace("default"), client.MatchingFields{"metadata.name": "other"}}, false,
		},
		"by what it is not named": {
			[]client.ListOption{client.MatchingFieldsSelector{
				Selector: fields.OneTermNotEqualSelector("metadata.name", "other"),
			}},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, api, _ := fleettest.OneCluster(t)
				require.NoError(t, fleettest.Watch(t, cc, c.opts...).WaitForSync(t.Context()))
				reader := cc.Cluster(fleettest.Key("a")).Reader()
				key := client.ObjectKey{Namespace: "default", Name: "absent"}
				for _, o := range formsOfConfigMap() {
					before := api.Total()
					require.True(t, apierrors.IsNotFound(reader.Get(t.Context(), key, o)))
					require.Equal(t, c.knows, before == api.Total(), "it was read live: %T", o)
					err := reader.Get(t.Context(), key, o, clustercache.CacheOnly)
					require.Equal(t, c.knows, apierrors.IsNotFound(err), "%T: %v", o, err)
					if !c.knows {
						require.ErrorIs(t, err, clustercache.ErrNotWatched)
					}
				}

				api.Put("absent", "1", map[string]any{"app": "x"})
				synctest.Wait()
				require.NoError(t, reader.Get(t.Context(), key, &corev1.ConfigMap{}))
				api.Delete("absent")
				synctest.Wait()
				require.True(t, apierrors.IsNotFound(reader.Get(t.Context(), key, &corev1.ConfigMap{})))
			})
		})
	}
}

// TestAbsenceIsDecidedByTheMostAdvancedWatch: where a watch of one object by
// its name lags behind a wider one that has shown the object, reads do not go
// back to its absence; nor to its presence where the wider one lags.
func TestAbsenceIsDecidedByTheMostAdvancedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		named := fleettest.Watch(t, cc, client.InNamespace("default"), client.MatchingFields{"metadata.name": "later"})
		require.NoError(t, named.WaitForSync(t.Context()))
		wide := fleettest.Watch(t, cc)
		require.NoError(t, wide.WaitForSync(t.Context()))
		reader, key := cc.Cluster(fleettest.Key("a")).Reader(), client.ObjectKey{Namespace: "default", Name: "later"}
		exists := func() bool {
			err := reader.Get(t.Context(), key, &corev1.ConfigMap{})
			require.True(t, err == nil || apierrors.IsNotFound(err), "%v", err)
			return err == nil
		}
		require.False(t, exists())
		api.Put("later", "1", nil)
		synctest.Wait()
		require.True(t, exists())
		wide.Release()
		require.True(t, exists())
		api.Delete("later")
		synctest.Wait()
		require.False(t, exists())
	})
}
