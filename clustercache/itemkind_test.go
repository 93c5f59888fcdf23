// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
)

// drawer is a list of ConfigMaps whose kind does not say so.
type drawer struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []corev1.ConfigMap
}

// DeepCopyObject implements runtime.Object.
func (d *drawer) DeepCopyObject() runtime.Object {
	out := &drawer{TypeMeta: d.TypeMeta}
	d.DeepCopyInto(&out.ListMeta)
	for _, o := range d.Items {
		out.Items = append(out.Items, *o.DeepCopy())
	}
	return out
}

// TestHazardKindOfAListDoesNotSayThatOfItsItems: a typed list is one of its
// items' kind, as in controller-runtime's cache, whether the cache answers or
// the API server.
func TestHazardKindOfAListDoesNotSayThatOfItsItems(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, clientscheme.AddToScheme(scheme))
	scheme.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind("Drawer"), &drawer{})
	o := clustercachetest.Options{Cache: clustercache.Options{Scheme: scheme}}
	fakeFleet(t, o, func(t *testing.T, f *clustercachetest.Fleet, c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
		c.Store(coloured("one", "blue"), coloured("two", "red"))
		check := func(cached bool) {
			list, origin := &drawer{}, clustercache.Origin{}
			require.NoError(t, cc.Reader(c.Key()).List(t.Context(), list, client.InNamespace("default"), &origin))
			require.Equal(t, cached, origin.Cached)
			require.Len(t, list.Items, 2)
			for _, item := range list.Items {
				require.Equal(t, configMap, item.GroupVersionKind())
				require.NotEmpty(t, item.Data["color"])
			}
		}
		check(false)
		w, err := cc.Watch(t.Context(), c.Key(), &corev1.ConfigMap{})
		require.NoError(t, err)
		defer w.Release()
		f.WaitSynced()
		check(true)
	})
}
