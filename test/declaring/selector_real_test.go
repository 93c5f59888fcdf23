// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestRealLabelsOfClusterObjectsDecideWhatIsWatched: from a label of a Cluster
// object on a real hub to the objects of a real cluster, and back.
func TestRealLabelsOfClusterObjectsDecideWhatIsWatched(t *testing.T) {
	t.Parallel()
	crd := testenv.SimpleCRD("cluster.x-k8s.io", "Cluster")
	crd.Spec.Versions[0].Name = "v1beta2"
	all := testenv.Start(t, 2, testenv.WithCRDs(crd))
	hub, remote := all[0], all[1]
	clusters, err := resolver.InHub(hub.Config(), resolver.ClusterAPIClusters,
		resolver.ClusterAPIOptions{HubOptions: resolver.HubOptions{Grace: -1}})
	require.NoError(t, err)
	cc := fleettest.Start(t, clustercache.Options{
		Resolver: clusters,
		Discover: true,
		Grace:    -1,
	})
	calls := make(chan clustercache.OwnerEvent, 1)
	s, err := cc.SubscribeOwners(func(e clustercache.OwnerEvent) {
		select {
		case calls <- e:
		default: // one waits already
		}
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(s.Stop)

	owner := fleettest.Owner("one")
	target := clustercache.Target{
		ClusterSelector: labels.SelectorFromSet(labels.Set{"env": "prod"}),
		Kind:            &corev1.ConfigMap{},
		Options:         []client.ListOption{client.InNamespace("default")},
	}
	// until waits for events alone, as a reconciler does.
	until := func(what string, holds func([]clustercache.Use) bool) {
		t.Helper()
		over := time.After(time.Minute)
		for !holds(cc.Declared(owner)) {
			select {
			case <-calls:
			case <-over:
				require.FailNow(t, "the owner was not called", what)
			}
		}
	}
	d, err := cc.Declare(t.Context(), owner, target)
	require.NoError(t, err)
	require.Empty(t, d.Added)

	object := &unstructured.Unstructured{}
	object.SetAPIVersion("cluster.x-k8s.io/v1beta2")
	object.SetKind("Cluster")
	object.SetNamespace("default")
	object.SetName("east")
	object.SetLabels(map[string]string{"env": "dev"})
	ctx, onHub := t.Context(), hub.Client()
	require.NoError(t, onHub.Create(ctx, object))
	object.Object["status"] = map[string]any{"initialization": map[string]any{"controlPlaneInitialized": true}}
	require.NoError(t, onHub.Status().Update(ctx, object))
	require.NoError(t, onHub.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default",
			Name:      "east-kubeconfig",
			Labels:    map[string]string{"cluster.x-k8s.io/cluster-name": "east"},
		},
		Data: map[string][]byte{"value": remote.Kubeconfig()},
	}))
	relabel := func(env string) {
		before := object.DeepCopy()
		object.SetLabels(map[string]string{"env": env})
		require.NoError(t, onHub.Patch(ctx, object, client.MergeFrom(before)))
	}
	relabel("prod")
	until("the cluster is selected", func(uses []clustercache.Use) bool { return len(uses) == 1 && uses[0].Synced })
	require.NoError(t, cc.WaitForSync(ctx, owner))
	east := client.ObjectKeyFromObject(object)
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "made"}}
	require.NoError(t, remote.Client().Create(ctx, made))
	until("an object is made", func([]clustercache.Use) bool {
		return cc.Cluster(east).Reader().Get(ctx, client.ObjectKeyFromObject(made), &corev1.ConfigMap{},
			clustercache.CacheOnly) == nil
	})

	relabel("dev")
	until("the cluster leaves", func(uses []clustercache.Use) bool { return len(uses) == 0 })
	relabel("prod")
	until("the cluster is back", func(uses []clustercache.Use) bool { return len(uses) == 1 })
	require.NoError(t, onHub.Delete(ctx, object))
	until("the cluster is gone", func(uses []clustercache.Use) bool { return len(uses) == 0 })
}
