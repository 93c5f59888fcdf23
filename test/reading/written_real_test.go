// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// delayed is the body of a watch whose events arrive late.
type delayed struct{ io.ReadCloser }

// Read implements io.Reader.
func (d delayed) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	time.Sleep(300 * time.Millisecond)
	return n, err
}

// slowWatches returns the config of a proxy that delays all watches of a
// cluster, and nothing else.
func slowWatches(t *testing.T, c *testenv.Cluster) *rest.Config {
	t.Helper()
	target, err := url.Parse(c.Config().Host)
	require.NoError(t, err)
	through, err := rest.TransportFor(c.Config())
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     through,
		FlushInterval: -1,
		ErrorLog:      fleettest.DiscardLog,
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Query().Has("watch") {
				r.Body = delayed{r.Body}
			}
			return nil
		},
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}
}

// seedReal makes a real cluster have the objects of newLate, and no others.
func seedReal(t *testing.T, c client.Client) {
	t.Helper()
	in := client.InNamespace("default")
	stale := &corev1.ConfigMapList{}
	require.NoError(t, c.List(t.Context(), stale, in))
	for _, o := range stale.Items {
		o.Finalizers = nil
		require.NoError(t, client.IgnoreNotFound(c.Update(t.Context(), &o)))
	}
	require.NoError(t, c.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, in))
	require.NoError(t, c.DeleteAllOf(t.Context(), &appsv1.Deployment{}, in))

	kept := configMap("kept")
	kept.Finalizers = []string{"example.com/keep"}
	labels := map[string]string{"a": "b"}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
	app := &appsv1.Deployment{
		ObjectMeta: fleettest.ObjectMeta("one"),
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}
	for _, o := range []client.Object{configMap("one"), configMap("two"), kept, app} {
		require.NoError(t, c.Create(t.Context(), o))
	}
}

// TestRealReadsShowWhatWasWritten is TestGuaranteeReadsShowWhatWasWritten with a
// real API server, whose watches are slow.
func TestRealReadsShowWhatWasWritten(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, 1)[0]
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), slowWatches(t, server))
	o := fleettest.Quick(d)
	o.ReadYourWrites = 20 * time.Second
	cc := fleettest.Start(t, o)
	var watches []*clustercache.Watch
	for _, kind := range []client.Object{&corev1.ConfigMap{}, &appsv1.Deployment{}} {
		w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), kind, client.InNamespace("default"))
		require.NoError(t, err)
		watches = append(watches, w)
	}
	require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
	c, err := cc.Cluster(fleettest.Key("a")).Client()
	require.NoError(t, err)

	for way, write := range ownWrites {
		t.Run(way, func(t *testing.T) {
			seedReal(t, server.Client())
			for _, w := range watches {
				require.NoError(t, w.WaitForSync(t.Context()))
			}
			require.Eventually(t, func() bool { // the watches have caught up
				cached, _ := states(t, cc.Cluster(fleettest.Key("a")).Reader(), client.InNamespace("default"))
				truth, _ := states(t, server.Client(), client.InNamespace("default"))
				return len(cached) == len(truth) && cached["ConfigMap kept"] == truth["ConfigMap kept"] &&
					cached["Deployment one"] == truth["Deployment one"]
			}, time.Minute, 50*time.Millisecond)

			require.NoError(t, write(t, c))
			shown, cached := states(t, c, client.InNamespace("default"))
			truth, _ := states(t, server.Client(), client.InNamespace("default"))
			require.Equal(t, truth, shown)
			require.True(t, cached)
			require.Equal(t, gets(t, server.Client()), gets(t, c))
		})
	}
}

// TestRealWritesByOtherKindsOfAnObjectAreShown: an object is written as one kind
// or version, and read as another, of which there is a cache.
func TestRealWritesByOtherKindsOfAnObjectAreShown(t *testing.T) {
	t.Parallel()
	crd := testenv.SimpleCRD("example.com", "Widget")
	older := *crd.Spec.Versions[0].DeepCopy()
	older.Name, older.Storage = "v1beta1", false
	crd.Spec.Versions = append(crd.Spec.Versions, older)
	server := testenv.Start(t, 1, testenv.WithCRDs(crd))[0]
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), slowWatches(t, server))
	o := fleettest.Quick(d)
	o.ReadYourWrites = 20 * time.Second
	cc := fleettest.Start(t, o)
	require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
	require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
	c, err := cc.Cluster(fleettest.Key("a")).Client()
	require.NoError(t, err)

	event := func(apiVersion string) *unstructured.Unstructured {
		e := &unstructured.Unstructured{}
		e.SetAPIVersion(apiVersion)
		e.SetKind("Event")
		maps.Copy(e.Object, map[string]any{
			"eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "Tested", "action": "Testing",
			"reportingController": "example.com/test", "reportingInstance": "test-1",
		})
		about := "regarding"
		if apiVersion == "v1" {
			about, e.Object["reportingComponent"] = "involvedObject", "example.com/test"
			delete(e.Object, "reportingController")
		}
		e.Object[about] = map[string]any{"kind": "Pod", "namespace": "default", "name": "a"}
		return e
	}
	widget := func(apiVersion string) *unstructured.Unstructured {
		w := &unstructured.Unstructured{}
		w.SetAPIVersion(apiVersion)
		w.SetKind("Widget")
		return w
	}
	for name, pair := range map[string][2]*unstructured.Unstructured{
		"events.k8s.io and core":   {event("events.k8s.io/v1"), event("v1")},
		"core and events.k8s.io":   {event("v1"), event("events.k8s.io/v1")},
		"v1beta1 and v1 of a kind": {widget("example.com/v1beta1"), widget("example.com/v1")},
		"v1 and v1beta1 of a kind": {widget("example.com/v1"), widget("example.com/v1beta1")},
	} {
		t.Run(name, func(t *testing.T) {
			written, read := pair[0], pair[1]
			w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), read, client.InNamespace("default"))
			require.NoError(t, err)
			t.Cleanup(w.Release)
			require.NoError(t, w.WaitForSync(t.Context()))
			written.SetNamespace("default")
			written.SetGenerateName("one-")
			require.NoError(t, c.Create(t.Context(), written))
			key := client.ObjectKeyFromObject(written)
			shows := func(what string) {
				var from clustercache.Origin
				require.NoError(t, c.Get(t.Context(), key, read, &from), what)
				require.True(t, from.Cached, what)
				require.Equal(t, written.GetResourceVersion(), read.GetResourceVersion(), what)
				require.Equal(t, written.GetUID(), read.GetUID(), what)
			}
			shows("create")
			require.NoError(t, c.Patch(t.Context(), written,
				client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
			shows("patch")
			require.NoError(t, c.Delete(t.Context(), written))
			require.True(t, apierrors.IsNotFound(c.Get(t.Context(), key, read)), "delete")
		})
	}
}
