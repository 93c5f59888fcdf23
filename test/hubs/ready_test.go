// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package hubs_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/inventory"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

// TestHazardReadyObjectIsOfAKindThatIsReadAnyway: the object that decides
// whether a cluster is ready is also the one that describes it, or one that the
// convention reads, or it has the kind's name in another group, or a kind that
// has a Go type.
func TestHazardReadyObjectIsOfAKindThatIsReadAnyway(t *testing.T) {
	capi := schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Cluster"}
	own := schema.GroupVersionKind{Group: "fleet.example.com", Version: "v1", Kind: "Cluster"}
	of := schema.GroupVersion{Group: "cluster.open-cluster-management.io", Version: "v1"}
	managed := of.WithKind("ManagedCluster")
	profile := schema.GroupVersionKind{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Kind: "ClusterProfile"}
	object := func(gvk schema.GroupVersionKind, key client.ObjectKey, fields map[string]any) client.Object {
		return resolvertest.UnstructuredObject(gvk.GroupVersion().String(), gvk.Kind, key.Namespace, key.Name, fields)
	}
	for name, test := range map[string]struct {
		cluster resolver.Cluster
		kind    schema.GroupVersionKind
		objects []client.Object
		make    func(client.WithWatch, resolver.HubOptions) (*resolver.HubResolver, error)
	}{
		"ManagedCluster": {
			cluster: resolvertest.Named("a"),
			kind:    managed,
			objects: []client.Object{
				resolvertest.Secret("a", "reader",
					map[string]string{"authentication.open-cluster-management.io/is-managed-serviceaccount": "true"},
					map[string]string{"token": "t", "ca.crt": string(resolvertest.Identities()[0].Cert)}),
				object(managed, resolvertest.Named("a"), map[string]any{"spec": map[string]any{
					"managedClusterClientConfigs": []any{map[string]any{"url": "https://a.example:6443"}},
				}}),
			},
			make: func(hub client.WithWatch, o resolver.HubOptions) (*resolver.HubResolver, error) {
				return resolver.OCM(hub, resolver.OCMOptions{HubOptions: o, ServiceAccount: "reader"})
			},
		},
		"ClusterProfile": {
			cluster: clusterA,
			kind:    profile,
			objects: []client.Object{object(profile, clusterA, map[string]any{"status": map[string]any{
				"accessProviders": []any{map[string]any{
					"name": "p", "cluster": map[string]any{"server": "https://a.example"},
				}},
			}})},
			make: func(hub client.WithWatch, o resolver.HubOptions) (*resolver.HubResolver, error) {
				return inventory.Profiles(hub, inventory.ProfileOptions{HubOptions: o, Providers: []inventory.Provider{{
					Name: "p",
					Exec: clientcmdv1.ExecConfig{Command: "c", APIVersion: "client.authentication.k8s.io/v1"},
				}}})
			},
		},
		"Cluster": {
			cluster: clusterA,
			kind:    capi,
			objects: []client.Object{
				resolvertest.ClusterAPISecret("fleet", "a", "t"),
				object(capi, clusterA, map[string]any{"status": map[string]any{
					"initialization": map[string]any{"controlPlaneInitialized": true},
				}}),
			},
			make: func(hub client.WithWatch, o resolver.HubOptions) (*resolver.HubResolver, error) {
				return resolver.ClusterAPIClusters(hub, resolver.ClusterAPIOptions{HubOptions: o})
			},
		},
		"Cluster of another group": {
			cluster: clusterA,
			kind:    capi,
			objects: []client.Object{
				resolvertest.Secret("fleet", "s", nil, resolvertest.TokenData("value", "t")),
				object(own, clusterA, map[string]any{"spec": map[string]any{"secret": "s"}}),
				object(capi, clusterA, nil),
			},
			make: func(hub client.WithWatch, o resolver.HubOptions) (*resolver.HubResolver, error) {
				return resolver.Referenced(hub, resolver.ReferenceOptions{
					HubOptions: o,
					Kind:       own,
					SecretName: "spec.secret",
				})
			},
		},
		"ConfigMap": {
			cluster: clusterA,
			kind:    corev1.SchemeGroupVersion.WithKind("ConfigMap"),
			objects: []client.Object{
				resolvertest.ClusterAPISecret("fleet", "a", "t"),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a"}},
			},
			make: resolver.ClusterAPI,
		},
	} {
		for _, watched := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, watched: %v", name, watched), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					hub := resolvertest.NewHub(test.objects...)
					r, err := test.make(hub, resolver.HubOptions{ReadyObject: &resolver.ReadyObject{
						Kind:  test.kind,
						Ready: func(o *unstructured.Unstructured) bool { return o.GetAnnotations()["is"] == "ready" },
					}})
					require.NoError(t, err)
					if watched {
						require.Equal(t, []resolver.Cluster{test.cluster}, resolvertest.Notify(t, r).Take())
					}
					says := func(is string, want error) {
						t.Helper()
						o := &unstructured.Unstructured{}
						o.SetGroupVersionKind(test.kind)
						require.NoError(t, hub.Get(t.Context(), test.cluster, o))
						o.SetAnnotations(map[string]string{"is": is})
						require.NoError(t, hub.Update(t.Context(), o))
						synctest.Wait()
						_, err := r.Resolve(t.Context(), test.cluster)
						require.ErrorIs(t, err, want)
						clusters, err := r.Clusters(t.Context())
						require.NoError(t, err)
						require.Equal(t, []resolver.Cluster{test.cluster}, clusters)
					}
					says("new", resolver.ErrNotReady)
					says("ready", nil)
					says("draining", resolver.ErrNotReady)
					says("ready", nil)

					o := &unstructured.Unstructured{}
					o.SetGroupVersionKind(test.kind)
					require.NoError(t, hub.Get(t.Context(), test.cluster, o))
					require.NoError(t, hub.Delete(t.Context(), o))
					time.Sleep(time.Minute)
					_, err = r.Resolve(t.Context(), test.cluster)
					require.ErrorIs(t, err, resolver.ErrClusterNotFound)
				})
			})
		}
	}
}

// TestHazardReadyObjectHasNoNamespace: the kind is cluster-scoped, as is the
// cluster's key, and the Secrets are in one namespace.
func TestHazardReadyObjectHasNoNamespace(t *testing.T) {
	of := schema.GroupVersion{Group: "cluster.open-cluster-management.io", Version: "v1"}
	managed := of.WithKind("ManagedCluster")
	for name, test := range map[string]struct {
		secret *corev1.Secret
		make   func(client.WithWatch, resolver.HubOptions) (*resolver.HubResolver, error)
	}{
		"multicluster-runtime": {
			resolvertest.Secret("fleet", "a", map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"},
				resolvertest.TokenData("kubeconfig", "t")),
			func(hub client.WithWatch, o resolver.HubOptions) (*resolver.HubResolver, error) {
				o.Namespace = "fleet"
				return resolver.MulticlusterRuntime(hub, o)
			},
		},
		"Istio": {
			resolvertest.Secret("istio-system", "s", map[string]string{"istio/multiCluster": "true"},
				resolvertest.TokenData("a", "t")),
			resolver.Istio,
		},
	} {
		for _, watched := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, watched: %v", name, watched), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					hub := scopedHub{resolvertest.NewHub(test.secret, resolvertest.UnstructuredObject(
						managed.GroupVersion().String(), managed.Kind, "", "a", nil))}
					r, err := test.make(hub, resolver.HubOptions{ReadyObject: &resolver.ReadyObject{
						Kind:  managed,
						Ready: func(*unstructured.Unstructured) bool { return true },
					}})
					require.NoError(t, err)
					if watched {
						require.Equal(t, []resolver.Cluster{resolvertest.Named("a")}, resolvertest.Notify(t, r).Take())
					}
					require.Equal(t, "t", resolvertest.Token(t, r, resolvertest.Named("a")))
				})
			})
		}
	}
}

// scopedHub knows, as a real client does, that ManagedClusters have no
// namespace.
type scopedHub struct{ *resolvertest.Hub }

func (h scopedHub) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return h.Hub.List(ctx, list, scopedOptions(list, opts))
}

func (h scopedHub) Watch(
	ctx context.Context, list client.ObjectList, opts ...client.ListOption,
) (apiwatch.Interface, error) {
	return h.Hub.Watch(ctx, list, scopedOptions(list, opts))
}

func scopedOptions(list client.ObjectList, opts []client.ListOption) client.ListOption {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if list.GetObjectKind().GroupVersionKind().Kind == "ManagedClusterList" {
		o.Namespace = ""
	}
	return o
}
