// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

var deployment = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}

func TestRequestSaysAllOfItself(t *testing.T) {
	r := controller.Request{Cluster: fleettest.Key("east"), GVK: deployment,
		ObjectKey: client.ObjectKey{Namespace: "default", Name: "web"}}
	require.Equal(t, "fleet/east apps/v1 Deployment default/web", r.String())
	text, err := json.Marshal(r.MarshalLog())
	require.NoError(t, err)
	require.JSONEq(t, `{
		"cluster": "fleet/east",
		"group": "apps",
		"version": "v1",
		"kind": "Deployment",
		"namespace": "default",
		"name": "web"
	}`, string(text))
	require.Equal(t, "hub v1 ConfigMap one",
		controller.Request{GVK: fleettest.ConfigMap, ObjectKey: client.ObjectKey{Name: "one"}}.String())
	require.Equal(t, "fleet/east", controller.Request{Cluster: fleettest.Key("east")}.String())
}

func TestOwnersAreFoundByGroupAndKindWhateverTheVersion(t *testing.T) {
	o := clustercache.Kind(fleettest.ConfigMap)
	o.SetNamespace("default")
	o.SetOwnerReferences([]metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "Deployment", Name: "now", Controller: new(true)},
		{APIVersion: "apps/v1beta1", Kind: "Deployment", Name: "older", Controller: new(false)},
		{APIVersion: "extensions/v1", Kind: "Deployment", Name: "other group"},
		{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "other kind"},
		{APIVersion: "v1", Kind: "Deployment", Name: "core group"},
		{APIVersion: "apps/v1/v2", Kind: "Deployment", Name: "nonsense"},
		{Kind: "Deployment", Name: "no version"},
	})
	names := func(m controller.ObjectMapFunc[controller.Request]) (out []string) {
		for _, r := range m(t.Context(), fleettest.Key("east"), o) {
			out = append(out, r.String())
		}
		return out
	}
	require.Equal(t, []string{"fleet/east apps/v1 Deployment default/now",
		"fleet/east apps/v1 Deployment default/older"},
		names(controller.EnqueueOwner(deployment)))
	require.Equal(t, []string{"fleet/east apps/v1 Deployment default/now"},
		names(controller.EnqueueOwner(deployment, controller.OwnerOptions{ControllerOnly: true})))
	require.Equal(t, []string{"fleet/east apps/v1 Deployment now"},
		names(controller.EnqueueOwner(deployment, controller.OwnerOptions{ControllerOnly: true},
			controller.OwnerOptions{ClusterScoped: true})))
	require.Empty(t, names(controller.EnqueueOwner(fleettest.ConfigMap)))
}

func TestHubReconcilersAreAskedForTheirOwnObjects(t *testing.T) {
	o := clustercache.Kind(fleettest.ConfigMap)
	require.Empty(t, controller.EnqueueLabelled("ns", "n")(t.Context(), fleettest.Key("east"), o))
	o.SetLabels(map[string]string{"ns": "team", "n": "app"})
	of := func(namespace, name string) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
	}
	require.Equal(t, of("team", "app"), controller.EnqueueLabelled("ns", "n")(t.Context(), fleettest.Key("east"), o))
	require.Equal(t, of("", "app"), controller.EnqueueLabelled("", "n")(t.Context(), fleettest.Key("east"), o))
	require.Equal(t, of("fleet", "east"), controller.EnqueueClusterOf(t.Context(), fleettest.Key("east"), o))
	require.Equal(t, of("fleet", "east"),
		controller.EnqueueCluster(t.Context(), events.Cluster{Cluster: fleettest.Key("east")}))
}

// TestOldAndNewOwnerAreAskedFor: both are, even when the object had changed
// owners and was deleted before the old owner was reconciled.
func TestOldAndNewOwnerAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		s := controller.ObjectSource(cc, events.Selection{Kinds: fleettest.ConfigMaps},
			controller.EnqueueOwner(deployment))
		require.NoError(t, s.Start(t.Context(), q))
		require.Empty(t, q.Names())
		api.Own("one", "first")
		require.Equal(t, []string{"first"}, q.Names())
		api.Own("one", "second")
		require.Equal(t, []string{"first", "second"}, q.Names())
		s.Pause()
		api.Own("one", "third")
		synctest.Wait()
		api.Delete("one")
		synctest.Wait()
		s.Continue()
		require.Equal(t, []string{"second", "third"}, q.Names())
		s.Stop()
	})
}
