// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// converter is a conversion webhook that can be made to fail.
type converter struct {
	*httptest.Server

	fails atomic.Bool
}

func newConverter(t *testing.T) *converter {
	t.Helper()
	c := &converter{}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(c.convert))
	t.Cleanup(c.Close)
	return c
}

// convert implements http.HandlerFunc. The versions differ only in name.
func (c *converter) convert(w http.ResponseWriter, r *http.Request) {
	var review apiextensionsv1.ConversionReview
	if c.fails.Load() || json.NewDecoder(r.Body).Decode(&review) != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID,
		Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, in := range review.Request.Objects {
		u := &unstructured.Unstructured{}
		if u.UnmarshalJSON(in.Raw) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		u.SetAPIVersion(review.Request.DesiredAPIVersion)
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Object: u})
	}
	review.Request, review.Response = nil, response
	_ = json.NewEncoder(w).Encode(review)
}

// definition returns a definition whose stored version is not the watched one.
func (c *converter) definition() *apiextensionsv1.CustomResourceDefinition {
	crd := testenv.SimpleCRD(toolV1.Group, "Converted")
	v2 := *crd.Spec.Versions[0].DeepCopy()
	v2.Name, crd.Spec.Versions[0].Storage = "v2", false
	crd.Spec.Versions = append(crd.Spec.Versions, v2)
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				URL:      &c.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}),
			},
			ConversionReviewVersions: []string{"v1"},
		},
	}
	return crd
}

// failingConversion: while a webhook fails, the server cannot provide the
// watched version. The cache must not pretend that all is well, and must be
// correct once the webhook responds again.
func failingConversion(t *testing.T, c *testenv.Cluster) {
	webhook := newConverter(t)
	require.NoError(t, c.InstallCRDs(t.Context(), webhook.definition()))
	v1 := schema.GroupVersionKind{Group: toolV1.Group, Version: "v1", Kind: "Converted"}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1.GroupKind().WithVersion("v2"))
	object.SetNamespace(namespace)
	object.SetName("one")
	require.NoError(t, c.Client().Create(t.Context(), object))

	s := watching(t, one(c.Config()), nil)
	w, err := s.Cluster(cluster).Watch(t.Context(), clustercache.Kind(v1))
	require.NoError(t, err)
	require.NoError(t, w.WaitForSync(t.Context()))
	cached := func() string {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(v1)
		_ = s.Cluster(cluster).Reader().Get(t.Context(), client.ObjectKeyFromObject(object), u, clustercache.CacheOnly)
		return u.GetResourceVersion()
	}
	require.Equal(t, object.GetResourceVersion(), cached())

	webhook.fails.Store(true)
	object.SetLabels(map[string]string{"changed": "true"})
	require.NoError(t, c.Client().Update(t.Context(), object))
	began := time.Now()
	require.Eventually(t, func() bool {
		return cached() == object.GetResourceVersion() || w.Status().Informer.State == informerpool.StateDegraded
	}, patience, 20*time.Millisecond, "silent")
	t.Logf("degraded after %s: %v", time.Since(began).Round(time.Millisecond), w.Status().Informer.LastError)
	webhook.fails.Store(false)
	began = time.Now()
	require.Eventually(t, func() bool { return cached() == object.GetResourceVersion() }, found,
		20*time.Millisecond)
	t.Logf("equal %s after the webhook answers again", time.Since(began).Round(time.Millisecond))
}
