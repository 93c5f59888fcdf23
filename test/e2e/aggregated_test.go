// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// gaugeV1 is a kind of an aggregated API.
var gaugeV1 = schema.GroupVersionKind{Group: "memory.example.org", Version: "v1", Kind: "Gauge"}

// TestRealAPIServiceIsDeletedAndMadeAgain: the objects of an aggregated API are
// behind it all the time. Its watches end with its APIService, and no delete is
// delivered.
func TestRealAPIServiceIsDeletedAndMadeAgain(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	memory := fakeapi.New(fakeapi.Options{Identity: "memory"})
	memory.Register(fakeapi.Kind{Group: gaugeV1.Group, Kind: gaugeV1.Kind})
	server := httptest.NewTLSServer(memory)
	defer server.Close()
	for _, name := range []string{"one", "two"} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gaugeV1)
		u.SetNamespace(namespace)
		u.SetName(name)
		require.NoError(t, memory.Seed(u))
	}
	address, err := url.Parse(server.URL)
	require.NoError(t, err)
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	require.NoError(t, err)
	require.NoError(t, c.Client().Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "memory"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: address.Hostname(),
			Ports: []corev1.ServicePort{{Port: int32(port)}},
		},
	}))
	apiService := func() *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1",
			"kind":       "APIService",
			"metadata":   map[string]any{"name": gaugeV1.Version + "." + gaugeV1.Group},
			"spec": map[string]any{
				"group":                 gaugeV1.Group,
				"version":               gaugeV1.Version,
				"groupPriorityMinimum":  int64(1000),
				"versionPriority":       int64(10),
				"insecureSkipTLSVerify": true,
				"service":               map[string]any{"namespace": namespace, "name": "memory", "port": port},
			},
		}}
	}
	require.NoError(t, c.Client().Create(t.Context(), apiService()))

	s := watching(t, one(c.Config()), nil)
	w, err := s.Cluster(cluster).Watch(t.Context(), clustercache.Kind(gaugeV1))
	require.NoError(t, err)
	events := &tools{present: map[string]bool{}}
	_, err = w.AddEventHandler(events)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(events.names()) == 2 }, patience, 10*time.Millisecond)

	require.NoError(t, c.Client().Delete(t.Context(), apiService()))
	memory.Cut(func(r *fakeapi.Request) bool { return r.Group == gaugeV1.Group })
	reason := func() string { return clustercache.ReasonOf(w.Status().LastError) }
	require.Eventually(t, func() bool { return reason() == "NotServed" }, patience, 50*time.Millisecond)
	<-time.After(20 * time.Second) // enough for a definition that is deleted
	require.Empty(t, events.deletes())
	require.Equal(t, "NotServed", reason())
	require.Contains(t, w.Status().LastError.Error(), "no CustomResourceDefinition defined it")

	require.NoError(t, c.Client().Create(t.Context(), apiService()))
	require.Eventually(t, func() bool { return reason() == "" }, patience, 50*time.Millisecond)
	require.Empty(t, events.deletes())
	require.Len(t, events.names(), 2)
}
