// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

func kinds() []Behaviour {
	return []Behaviour{
		{Name: "a kind that is not there is no match, and is found when it comes", run: kindComes},
		{Name: "a kind that goes takes its objects along", run: kindGoes},
		{Name: "custom objects have generations, a status, and versions to write on", run: customObjects},
		{Name: "a right to one name suffices for a watch of that name", run: limitedKind},
		{Name: "a version that is not served any more deletes nothing", run: versionGoes},
		{Name: "a kind that comes back with another scope is read as it is", run: scopeChanges},
		{Name: "a forbidden kind fails alone, and heals", run: forbiddenKind},
	}
}

func kindComes(e *env) {
	w := e.take(clustercache.Kind(gadgetGVK))
	err := w.WaitForSync(e.Context())
	require.True(e, meta.IsNoMatchError(err), "%v", err)
	err = e.reader().Get(e.Context(), e.named("a"), e.gadget("a"))
	require.True(e, meta.IsNoMatchError(err), "%v", err)
	e.define()
	created := e.gadget("a")
	require.NoError(e, e.admin.Create(e.Context(), created))
	e.eventually(w.HasSynced, "synced")
	require.NoError(e, w.WaitForVersion(e.Context(), created.GetResourceVersion())) // it may have synced before
	got := e.gadget("a")
	require.NoError(e, e.reader().Get(e.Context(), e.named("a"), got))
	require.NotEmpty(e, got.GetUID())
}

func kindGoes(e *env) {
	e.define()
	require.NoError(e, e.admin.Create(e.Context(), e.gadget("a")))
	w := e.take(clustercache.Kind(gadgetGVK))
	require.NoError(e, w.WaitForSync(e.Context()))
	f := e.follow()
	f.expect("Added a")
	e.undefine()
	f.expect("Deleted a")
	var err error
	e.eventually(func() bool { // a real server deletes the objects first
		err = e.admin.Get(e.Context(), e.named("a"), e.gadget("a"))
		return apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	}, "not served")
	unserved(e, err)
}

// unserved requires the error for a path that is not served. The server's
// response is plain text; the client turns it into a status.
func unserved(e *env, err error) {
	e.Helper()
	require.True(e, apierrors.IsNotFound(err), "%v", err)
	require.True(e, apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse), "%v", err)
}

// scopeChanges watches all namespaces, so that the requests to the server stay
// the same.
func scopeChanges(e *env) {
	e.define()
	require.NoError(e, e.admin.Create(e.Context(), e.gadget("a")))
	w := e.take(clustercache.Kind(gadgetGVK))
	require.NoError(e, w.WaitForSync(e.Context()))
	f := e.follow()
	f.expect("Added a")
	e.undefine()
	wide := definition()
	wide.Spec.Scope = apiextensionsv1.ClusterScoped
	require.NoError(e, e.admin.Create(e.Context(), wide))
	e.eventually(func() bool {
		namespaced, err := e.client().IsObjectNamespaced(e.gadget("b"))
		if err != nil || namespaced {
			return false
		}
		b := e.gadget("b")
		b.SetNamespace("")
		return e.client().Create(e.Context(), b) == nil
	}, "gadgets are served again")
	f.expect("Deleted a")
	for _, mode := range []clustercache.ReadMode{clustercache.PreferCache, clustercache.CacheOnly} {
		e.eventually(func() bool {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gadgetGVK)
			return e.reader().List(e.Context(), list, mode) == nil && len(list.Items) == 1
		}, "listed")
		require.NoError(e, e.reader().Get(e.Context(), e.named("b"), e.gadget(""), mode), "the namespace is overlooked")
		require.NoError(e, e.reader().Get(e.Context(), client.ObjectKey{Name: "b"}, e.gadget(""), mode))
	}
}

func customObjects(e *env) {
	e.define()
	c := e.client()
	g := e.gadget("a")
	g.Object["status"] = map[string]any{"ready": true}
	require.NoError(e, c.Create(e.Context(), g))
	require.EqualValues(e, 1, g.GetGeneration())
	require.NotContains(e, g.Object, "status")
	g.Object["spec"] = map[string]any{"size": int64(2)}
	require.NoError(e, c.Update(e.Context(), g))
	require.EqualValues(e, 2, g.GetGeneration())
	g.Object["status"] = map[string]any{"ready": true}
	require.NoError(e, c.Status().Update(e.Context(), g))
	require.EqualValues(e, 2, g.GetGeneration())
	ready, _, _ := unstructured.NestedBool(g.Object, "status", "ready")
	require.True(e, ready)
	versionless := g.DeepCopy()
	versionless.SetResourceVersion("")
	err := c.Update(e.Context(), versionless)
	require.True(e, apierrors.IsInvalid(err), "%v", err)
	err = c.Patch(e.Context(), g.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(`{}`)))
	require.True(e, apierrors.IsUnsupportedMediaType(err), "%v", err)
	require.NoError(e, c.Patch(e.Context(), g, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"size":3}}`))))
	require.EqualValues(e, 3, g.GetGeneration())
	applied := e.gadget("b")
	//nolint:staticcheck // the short form
	require.NoError(e, c.Patch(e.Context(), applied, client.Apply, client.FieldOwner("mine")))
	require.NotEmpty(e, applied.GetUID())
	held := e.gadget("c")
	held.SetFinalizers([]string{"example.com/hold"})
	require.NoError(e, c.Create(e.Context(), held))
	require.NoError(e, c.Delete(e.Context(), held))
	require.NoError(e, c.Get(e.Context(), e.named("c"), held))
	require.NotNil(e, held.GetDeletionTimestamp())
	require.EqualValues(e, 2, held.GetGeneration())
	held.SetFinalizers(nil)
	require.NoError(e, c.Update(e.Context(), held))
}

func forbiddenKind(e *env) {
	e.create("red", "a")
	e.cluster.Forbid("secrets")
	w := e.take(&corev1.Secret{}, client.InNamespace(e.ns))
	err := w.WaitForSync(e.Context())
	require.True(e, apierrors.IsForbidden(err), "%v", err)
	err = e.reader().Get(e.Context(), e.named("a"), &corev1.Secret{})
	require.True(e, apierrors.IsForbidden(err), "%v", err)
	e.watch()
	require.Equal(e, []string{"a"}, e.names(clustercache.CacheOnly))
	require.Equal(e, status.PhaseReady, e.status().Phase)
	e.cluster.Allow()
	e.eventually(w.HasSynced, "synced")
}

func limitedKind(e *env) {
	e.create("red", "a", "b")
	e.cluster.Limit("configmaps", "a")
	w := e.watch(client.MatchingFields{"metadata.name": "a"})
	err := e.reader().List(e.Context(), &corev1.ConfigMapList{}, client.InNamespace(e.ns))
	require.True(e, apierrors.IsForbidden(err), "%v", err)
	e.cluster.Disconnect()
	painted := e.paint("a", "blue")
	e.cluster.Connect()
	require.NoError(e, w.WaitForVersion(e.Context(), painted.ResourceVersion))
	var got corev1.ConfigMap
	require.NoError(e, e.reader().Get(e.Context(), e.named("a"), &got))
	require.Equal(e, "blue", got.Data["color"])
	e.cluster.Allow()
}

// versionGoes removes a version, which is the last step of every upgrade of a
// definition.
func versionGoes(e *env) {
	e.define()
	both := definition()
	require.NoError(e, e.admin.Get(e.Context(), client.ObjectKeyFromObject(both), both))
	older := *both.Spec.Versions[0].DeepCopy()
	older.Name, older.Storage = "v1beta1", false
	both.Spec.Versions = append(both.Spec.Versions, older)
	require.NoError(e, e.admin.Update(e.Context(), both))
	beta := gadgetGVK
	beta.Version = older.Name
	require.NoError(e, e.admin.Create(e.Context(), e.gadget("a")))
	w := e.take(clustercache.Kind(beta))
	e.eventually(w.HasSynced, "synced")
	f := e.follow(clustercache.Kind(beta))
	f.expect("Added a")
	old := &unstructured.Unstructured{}
	old.SetGroupVersionKind(beta)
	require.NoError(e, e.admin.Get(e.Context(), e.named("a"), old))
	both.Spec.Versions[1].Served = false
	require.NoError(e, e.admin.Update(e.Context(), both))
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(beta)
	e.eventually(func() bool { return e.reader().List(e.Context(), list, client.InNamespace(e.ns)) != nil },
		"reads say so")
	unserved(e, e.admin.Get(e.Context(), e.named("a"), old))
	both.Spec.Versions[1].Served = true
	require.NoError(e, e.admin.Update(e.Context(), both))
	changed := e.gadget("b")
	require.NoError(e, e.admin.Create(e.Context(), changed))
	f.expect("Added b")
}
