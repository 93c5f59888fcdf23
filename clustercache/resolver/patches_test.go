// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/inventory"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

// TestPatchesThatChangeNoAnswerAreNotReported: controllers patch the objects
// that describe clusters all the time.
func TestPatchesThatChangeNoAnswerAreNotReported(t *testing.T) {
	key := resolvertest.In("team", "east")
	object := func(apiVersion, kind string, status map[string]any) *unstructured.Unstructured {
		return resolvertest.UnstructuredObject(apiVersion, kind, key.Namespace, key.Name,
			map[string]any{"status": status})
	}
	cluster := func(ready bool) *unstructured.Unstructured {
		return object("cluster.x-k8s.io/v1beta2", "Cluster",
			map[string]any{"initialization": map[string]any{"controlPlaneInitialized": ready}})
	}
	secret := resolvertest.ClusterAPISecret(key.Namespace, key.Name, "token")
	byObjects := func(hub client.WithWatch) (resolver.Resolver, error) {
		return resolver.ClusterAPIClusters(hub, resolver.ClusterAPIOptions{})
	}
	bySecrets := func(hub client.WithWatch) (resolver.Resolver, error) {
		return resolver.ClusterAPI(hub, resolver.HubOptions{})
	}
	for name, tc := range map[string]struct {
		objects []client.Object // the first is patched
		make    func(hub client.WithWatch) (resolver.Resolver, error)
	}{
		"Secret":                 {[]client.Object{secret}, bySecrets},
		"Cluster":                {[]client.Object{cluster(true), secret}, byObjects},
		"Cluster, not ready":     {[]client.Object{cluster(false), secret}, byObjects},
		"Cluster without Secret": {[]client.Object{cluster(true)}, byObjects},
		"Secret of a Cluster":    {[]client.Object{secret, cluster(true)}, byObjects},
		"chain": {[]client.Object{cluster(true), secret}, func(hub client.WithWatch) (resolver.Resolver, error) {
			objects, err := byObjects(hub)
			if err != nil {
				return nil, err
			}
			secrets, err := bySecrets(hub)
			return resolver.Chain(objects, secrets), err
		}},
		"ClusterProfile": {
			[]client.Object{object("multicluster.x-k8s.io/v1alpha1", "ClusterProfile", map[string]any{
				"accessProviders": []any{map[string]any{
					"name":    "home",
					"cluster": map[string]any{"server": "https://east"},
				}},
			})},
			func(hub client.WithWatch) (resolver.Resolver, error) {
				return inventory.Profiles(hub, inventory.ProfileOptions{Providers: []inventory.Provider{{
					Name: "home",
					Exec: clientcmdv1.ExecConfig{
						APIVersion:      "client.authentication.k8s.io/v1",
						Command:         "plugin",
						InteractiveMode: clientcmdv1.NeverExecInteractiveMode,
					},
				}}})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var objects []client.Object
				for _, o := range tc.objects {
					objects = append(objects, o.DeepCopyObject().(client.Object))
				}
				hub := resolvertest.NewHub(objects...)
				r, err := tc.make(hub)
				require.NoError(t, err)
				notifier, all := resolver.AsNotifier(r)
				require.True(t, all)
				reports := resolvertest.Notify(t, notifier)
				synctest.Wait()
				require.Contains(t, reports.Take(), key)

				patched := tc.objects[0].DeepCopyObject().(client.Object)
				for n := range 20 {
					require.NoError(t, hub.Get(t.Context(), client.ObjectKeyFromObject(patched), patched))
					patched.SetAnnotations(map[string]string{"patched": strconv.Itoa(n)})
					if u, ok := patched.(*unstructured.Unstructured); ok {
						require.NoError(t, unstructured.SetNestedField(u.Object, strconv.Itoa(n), "status", "observed"))
					}
					require.NoError(t, hub.Update(t.Context(), patched))
					synctest.Wait()
				}
				require.Empty(t, reports.Take())
			})
		})
	}
}
