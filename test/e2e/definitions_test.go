// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

var toolV1 = schema.GroupVersionKind{Group: "planes.example.com", Version: "v1", Kind: "Tool"}

// TestDefinitions changes definitions, and makes them fail, while informers use
// them.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	t.Run("are taken away", func(t *testing.T) {
		t.Parallel()
		definitions(t, c)
	})
	t.Run("have a webhook that fails", func(t *testing.T) {
		t.Parallel()
		failingConversion(t, c)
	})
}

// definitions removes first a version of a definition, and then the definition.
// The first must deliver no deletes, the second must.
func definitions(t *testing.T, c *testenv.Cluster) {
	crd := testenv.SimpleCRD(toolV1.Group, toolV1.Kind)
	v2 := *crd.Spec.Versions[0].DeepCopy()
	v2.Name, v2.Storage = "v2", false
	crd.Spec.Versions = append(crd.Spec.Versions, v2)
	require.NoError(t, c.InstallCRDs(t.Context(), crd))
	for _, name := range []string{"hammer", "saw"} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(toolV1)
		u.SetNamespace(namespace)
		u.SetName(name)
		require.NoError(t, c.Client().Create(t.Context(), u))
	}
	s := watching(t, one(c.Config()), nil)
	w, err := s.Cluster(cluster).Watch(t.Context(), clustercache.Kind(toolV1))
	require.NoError(t, err)
	events := &tools{present: map[string]bool{}}
	_, err = w.AddEventHandler(events)
	require.NoError(t, err)
	require.NoError(t, w.WaitForSync(t.Context()))
	require.Eventually(t, func() bool { return len(events.names()) == 2 }, patience, 10*time.Millisecond)

	serve := func(v1 bool) {
		have := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, c.Client().Get(t.Context(), client.ObjectKeyFromObject(crd), have))
		have.Spec.Versions[0].Served, have.Spec.Versions[0].Storage = v1, v1
		have.Spec.Versions[1].Storage = !v1
		require.NoError(t, c.Client().Update(t.Context(), have))
	}
	serve(false)
	require.Eventually(t, func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(toolV1)
		return s.Cluster(cluster).Reader().List(t.Context(), list) != nil
	}, patience, 50*time.Millisecond, "what is not served is not answered for")
	<-time.After(3 * time.Second) // time for several attempts of the informer
	require.Empty(t, events.deletes())
	serve(true)
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(toolV1)
	u.SetNamespace(namespace)
	u.SetName("drill")
	require.Eventually(t, func() bool { return c.Client().Create(t.Context(), u) == nil }, patience,
		100*time.Millisecond)
	require.Eventually(t, func() bool { return len(events.names()) == 3 }, patience, 20*time.Millisecond,
		"it is watched again")
	require.Empty(t, events.deletes())

	require.NoError(t, c.Client().Delete(t.Context(), crd))
	require.Eventually(t, func() bool { return len(events.deletes()) == 3 }, patience, 20*time.Millisecond,
		"the objects went with their definition")
}
