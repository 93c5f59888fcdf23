// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

// cluster returns a Cluster object in the namespace team.
func cluster(name string, status map[string]any) *unstructured.Unstructured {
	return resolvertest.UnstructuredObject("cluster.x-k8s.io/v1beta2", "Cluster", "team", name,
		map[string]any{"status": status})
}

func initialized(done bool) map[string]any {
	return map[string]any{"initialization": map[string]any{"controlPlaneInitialized": done}}
}

func fails(t *testing.T, r resolver.Resolver, key resolver.Cluster, want error) {
	t.Helper()
	_, err := r.Resolve(t.Context(), key)
	require.ErrorIs(t, err, want)
}

// TestClusterObjectsDecideWhichClustersExist: also while there is no Secret, and
// while the control plane is not there.
func TestClusterObjectsDecideWhichClustersExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := resolvertest.NewHub()
		r, err := resolver.ClusterAPIClusters(hub, resolver.ClusterAPIOptions{})
		require.NoError(t, err)
		reports := resolvertest.Notify(t, r)
		synctest.Wait()
		east := resolvertest.In("team", "east")
		fails(t, r, east, resolver.ErrClusterNotFound)

		object := cluster("east", nil)
		object.SetLabels(map[string]string{"env": "prod"})
		require.NoError(t, hub.Create(t.Context(), object))
		synctest.Wait()
		require.Equal(t, []resolver.Cluster{east}, reports.Take())
		known, err := r.Clusters(t.Context())
		require.NoError(t, err)
		require.Equal(t, []resolver.Cluster{east}, known)
		fails(t, r, east, resolver.ErrNotReady)

		secret := resolvertest.ClusterAPISecret("team", "east", "one")
		require.NoError(t, hub.Create(t.Context(), secret))
		synctest.Wait()
		fails(t, r, east, resolver.ErrNotReady)
		require.NoError(t, hub.Delete(t.Context(), secret))
		time.Sleep(time.Minute)

		object.Object["status"] = initialized(true)
		require.NoError(t, hub.Update(t.Context(), object))
		synctest.Wait()
		fails(t, r, east, resolver.ErrSecretNotFound)
		reports.Take()
		secret.ResourceVersion = ""
		require.NoError(t, hub.Create(t.Context(), secret))
		synctest.Wait()
		require.Equal(t, []resolver.Cluster{east}, reports.Take())
		access, err := r.Resolve(t.Context(), east)
		require.NoError(t, err)
		require.Equal(t, "one", access.Config().BearerToken)
		require.Equal(t, map[string]string{"env": "prod"}, access.Labels())
		require.False(t, access.Trusted())

		// What pauses or deletes a cluster needs it.
		require.NoError(t, unstructured.SetNestedField(object.Object, true, "spec", "paused"))
		object.SetFinalizers([]string{"cluster.cluster.x-k8s.io"})
		require.NoError(t, hub.Update(t.Context(), object))
		require.NoError(t, hub.Delete(t.Context(), object))
		synctest.Wait()
		require.Equal(t, "one", resolvertest.Token(t, r, east))
		require.NoError(t, hub.Get(t.Context(), east, object))
		require.NotNil(t, object.GetDeletionTimestamp())
		object.SetFinalizers(nil)
		require.NoError(t, hub.Update(t.Context(), object))
		time.Sleep(time.Minute) // longer than the grace
		fails(t, r, east, resolver.ErrClusterNotFound)
	})
}

// TestHazardSecretOfAnotherClusterHasTheName: the providers of EKS and GKE write
// a-user-kubeconfig for the users of cluster a, also beside a cluster a-user.
func TestHazardSecretOfAnotherClusterHasTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := resolvertest.ClusterAPISecret("team", "a-user", "of-a")
		secret.Labels["cluster.x-k8s.io/cluster-name"] = "a"
		hub := resolvertest.NewHub(secret, cluster("a-user", initialized(true)))
		r, err := resolver.ClusterAPIClusters(hub, resolver.ClusterAPIOptions{})
		require.NoError(t, err)
		resolvertest.Notify(t, r)
		synctest.Wait()
		user := resolvertest.In("team", "a-user")
		fails(t, r, user, resolver.ErrSecretNotFound)

		// They also give it the label, so that only its owner is another.
		secret.Labels["cluster.x-k8s.io/cluster-name"] = "a-user"
		yes := true
		plane := metav1.OwnerReference{Kind: "AWSManagedControlPlane", Name: "a-plane", UID: "1", Controller: &yes}
		secret.OwnerReferences = []metav1.OwnerReference{plane}
		require.NoError(t, hub.Update(t.Context(), secret))
		synctest.Wait()
		fails(t, r, user, resolver.ErrSecretNotFound)

		object := cluster("a-user", initialized(true))
		require.NoError(t, hub.Get(t.Context(), user, object))
		object.Object["spec"] = map[string]any{"controlPlaneRef": map[string]any{
			"kind": plane.Kind, "name": "a-user-plane"}}
		require.NoError(t, hub.Update(t.Context(), object))
		synctest.Wait()
		fails(t, r, user, resolver.ErrSecretNotFound)

		secret.OwnerReferences[0].Name = "a-user-plane"
		require.NoError(t, hub.Update(t.Context(), secret))
		synctest.Wait()
		require.Equal(t, "of-a", resolvertest.Token(t, r, user))

		secret.OwnerReferences = nil // written by hand
		require.NoError(t, hub.Update(t.Context(), secret))
		synctest.Wait()
		require.Equal(t, "of-a", resolvertest.Token(t, r, user))
	})
}

// TestOneWatchFollowsTheSecretsOfAllClusters: a thousand clusters cost the hub
// two watches, not a thousand. A Secret without Cluster API's label, which any
// author of Secrets may have made, is none.
func TestOneWatchFollowsTheSecretsOfAllClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unlabeled := resolvertest.ClusterAPISecret("team", "west", "forged")
		unlabeled.Labels = nil
		hub := resolvertest.NewHub(unlabeled)
		for _, name := range []string{"east", "west", "north"} {
			require.NoError(t, hub.Create(t.Context(), cluster(name, initialized(true))))
		}
		require.NoError(t, hub.Create(t.Context(), resolvertest.ClusterAPISecret("team", "east", "one")))
		require.NoError(t, hub.Create(t.Context(), resolvertest.ClusterAPISecret("team", "north", "two")))
		r, err := resolver.ClusterAPIClusters(hub, resolver.ClusterAPIOptions{})
		require.NoError(t, err)
		fails(t, r, resolvertest.In("team", "west"), resolver.ErrSecretNotFound)
		resolvertest.Notify(t, r)
		synctest.Wait()
		require.Equal(t, 2, hub.Open())
		require.Equal(t, "one", resolvertest.Token(t, r, resolvertest.In("team", "east")))
		require.Equal(t, "two", resolvertest.Token(t, r, resolvertest.In("team", "north")))
		fails(t, r, resolvertest.In("team", "west"), resolver.ErrSecretNotFound)
	})
}

func TestReadyIsWhatTheClusterSays(t *testing.T) {
	conditions := []any{map[string]any{"type": "ControlPlaneInitialized", "status": string(metav1.ConditionTrue)}}
	for name, c := range map[string]struct {
		status                 map[string]any
		plane, infrastructures bool
	}{
		"nothing":           {},
		"not yet":           {status: initialized(false)},
		"control plane":     {status: initialized(true), plane: true},
		"v1beta1":           {status: map[string]any{"conditions": conditions}, plane: true},
		"v1beta1, machines": {status: map[string]any{"infrastructureReady": true}, infrastructures: true},
		"machines": {
			status:          map[string]any{"initialization": map[string]any{"infrastructureProvisioned": true}},
			infrastructures: true,
		},
		"broken": {status: map[string]any{"initialization": "yes", "infrastructureReady": "yes"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.plane, resolver.ControlPlaneInitialized(cluster("c", c.status)))
			require.Equal(t, c.infrastructures, resolver.InfrastructureProvisioned(cluster("c", c.status)))
		})
	}

	hub := resolvertest.NewHub(resolvertest.ClusterAPISecret("team", "east", "one"))
	require.NoError(t, hub.Create(t.Context(), resolvertest.UnstructuredObject("cluster.x-k8s.io/v1beta1", "Cluster",
		"team", "east", map[string]any{"status": map[string]any{"infrastructureReady": true}})))
	r, err := resolver.ClusterAPIClusters(hub, resolver.ClusterAPIOptions{
		Version: "v1beta1",
		Ready:   resolver.InfrastructureProvisioned,
	})
	require.NoError(t, err)
	require.Equal(t, "one", resolvertest.Token(t, r, resolvertest.In("team", "east")))
	_, err = resolver.ClusterAPIClusters(nil, resolver.ClusterAPIOptions{})
	require.Error(t, err)
}
