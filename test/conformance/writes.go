// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func writes() []Behaviour {
	return []Behaviour{
		{Name: "a write on an old state is a conflict", run: conflicts},
		{Name: "creates are refused for reasons", run: refusedCreates},
		{Name: "a deletion may ask for a uid", run: preconditions},
		{Name: "names are generated", run: generatedNames},
		{Name: "a dry run changes nothing", run: dryRun},
		{Name: "a Secret's stringData becomes data", run: stringData},
		{Name: "a deployment counts generations and keeps its status apart", run: deploymentStatus},
		{Name: "patches of every form", run: patches},
		{Name: "server-side apply keeps owners apart", run: apply},
		{Name: "metadata cannot be forged", run: metadataStays},
		{Name: "a pod begins pending, and its namespace is labelled", run: fewDefaults},
	}
}

func conflicts(e *env) {
	e.create("red", "a")
	c := e.client()
	old := &corev1.ConfigMap{}
	require.NoError(e, c.Get(e.Context(), e.named("a"), old))
	e.paint("a", "blue")
	stale := old.DeepCopy()
	stale.Data["color"] = "green"
	err := c.Update(e.Context(), stale)
	require.True(e, apierrors.IsConflict(err), "%v", err)
	require.ErrorContains(e, err, "the object has been modified")
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	err = c.Patch(e.Context(), stale, patch)
	require.True(e, apierrors.IsConflict(err), "%v", err)
	unconditional := e.configMap("a", "green")
	require.NoError(e, c.Update(e.Context(), unconditional))
	require.Equal(e, "green", unconditional.Data["color"])
	missing := e.configMap("nobody", "green")
	err = c.Update(e.Context(), missing)
	require.True(e, apierrors.IsNotFound(err), "%v", err)
}

func refusedCreates(e *env) {
	c := e.client()
	e.create("red", "a")
	err := c.Create(e.Context(), e.configMap("a", "red"))
	require.True(e, apierrors.IsAlreadyExists(err), "%v", err)
	elsewhere := e.configMap("b", "red")
	elsewhere.Namespace = "no-such-namespace"
	err = c.Create(e.Context(), elsewhere)
	require.True(e, apierrors.IsNotFound(err), "%v", err)
	err = c.Create(e.Context(), e.configMap("Not A Name", "red"))
	require.True(e, apierrors.IsInvalid(err), "%v", err)
	nameless := e.configMap("", "red")
	err = c.Create(e.Context(), nameless)
	require.True(e, apierrors.IsInvalid(err), "%v", err)
	versioned := e.configMap("c", "red")
	versioned.ResourceVersion = "5"
	require.Error(e, c.Create(e.Context(), versioned))
	labelled := e.configMap("d", "no spaces here")
	err = c.Create(e.Context(), labelled)
	require.True(e, apierrors.IsInvalid(err), "%v", err)
	broken := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"name": "e", "namespace": e.ns},
		"data":       map[string]any{"n": int64(1)},
	}}
	err = c.Create(e.Context(), broken)
	require.True(e, apierrors.IsBadRequest(err), "%v", err)
}

func preconditions(e *env) {
	e.create("red", "a")
	cm := &corev1.ConfigMap{}
	require.NoError(e, e.admin.Get(e.Context(), e.named("a"), cm))
	c := e.client()
	err := c.Delete(e.Context(), cm, client.Preconditions{UID: new(types.UID("another"))})
	require.True(e, apierrors.IsConflict(err), "%v", err)
	err = c.Delete(e.Context(), cm, client.Preconditions{ResourceVersion: new("1")})
	require.True(e, apierrors.IsConflict(err), "%v", err)
	require.NoError(e, c.Delete(e.Context(), cm,
		client.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion}))
}

func generatedNames(e *env) {
	c := e.client()
	seen := map[string]bool{}
	for range 3 {
		cm := e.configMap("", "red")
		cm.GenerateName = "some-"
		require.NoError(e, c.Create(e.Context(), cm))
		require.Regexp(e, "^some-[a-z0-9]{5}$", cm.Name)
		require.False(e, seen[cm.Name])
		seen[cm.Name] = true
	}
}

func dryRun(e *env) {
	c := e.client()
	cm := e.configMap("a", "red")
	require.NoError(e, c.Create(e.Context(), cm, client.DryRunAll))
	require.Empty(e, e.names())
	e.create("red", "a")
	require.NoError(e, c.Get(e.Context(), e.named("a"), cm))
	cm.Data["color"] = "blue"
	require.NoError(e, c.Update(e.Context(), cm, client.DryRunAll))
	require.Equal(e, "blue", cm.Data["color"])
	require.NoError(e, c.Delete(e.Context(), cm, client.DryRunAll))
	require.NoError(e, c.Get(e.Context(), e.named("a"), cm))
	require.Equal(e, "red", cm.Data["color"])
}

func stringData(e *env) {
	c := e.client()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "a"}, StringData: map[string]string{"user": "me"},
		Data: map[string][]byte{"n": {1, 2}},
	}
	require.NoError(e, c.Create(e.Context(), secret))
	got := &corev1.Secret{}
	require.NoError(e, c.Get(e.Context(), e.named("a"), got))
	require.Equal(e, "me", string(got.Data["user"]))
	require.Equal(e, []byte{1, 2}, got.Data["n"])
	require.Empty(e, got.StringData)
	require.Equal(e, corev1.SecretTypeOpaque, got.Type)
}

func (e *env) deployment() *appsv1.Deployment {
	labels := map[string]string{"app": "a"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "a"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "one"}}},
			},
		},
		Status: appsv1.DeploymentStatus{Replicas: 5},
	}
}

func deploymentStatus(e *env) {
	c := e.client()
	d := e.deployment()
	require.NoError(e, c.Create(e.Context(), d))
	require.EqualValues(e, 1, d.Generation)
	require.Zero(e, d.Status.Replicas, "a create has no say in the status")
	d.Labels = map[string]string{"x": "y"}
	require.NoError(e, c.Update(e.Context(), d))
	require.EqualValues(e, 1, d.Generation)
	d.Spec.Replicas = new(int32(3))
	d.Status.Replicas = 7
	require.NoError(e, c.Update(e.Context(), d))
	require.EqualValues(e, 2, d.Generation)
	require.Zero(e, d.Status.Replicas)
	d.Status.Replicas, d.Status.ObservedGeneration = 3, 2
	d.Spec.Replicas = new(int32(9))
	require.NoError(e, c.Status().Update(e.Context(), d))
	require.EqualValues(e, 2, d.Generation)
	require.EqualValues(e, 3, d.Status.Replicas)
	require.EqualValues(e, 3, *d.Spec.Replicas, "a write of the status has no say in the spec")
	before := d.DeepCopy()
	d.Status.Replicas = 4
	require.NoError(e, c.Status().Patch(e.Context(), d, client.MergeFrom(before)))
	require.EqualValues(e, 4, d.Status.Replicas)
	cm := e.configMap("a", "red")
	require.NoError(e, c.Create(e.Context(), cm))
	require.Zero(e, cm.Generation)
	require.Error(e, c.Status().Update(e.Context(), cm), "there is no status")
}

func patches(e *env) {
	e.create("red", "a")
	c := e.client()
	cm := e.configMap("a", "")
	require.NoError(e, c.Patch(e.Context(),
		cm, client.RawPatch(types.MergePatchType, []byte(`{"data":{"color":"blue","size":"1"}}`))))
	require.Equal(e, map[string]string{"color": "blue", "size": "1"}, cm.Data)
	require.NoError(e, c.Patch(e.Context(),
		cm, client.RawPatch(types.MergePatchType, []byte(`{"data":{"size":null}}`))))
	require.Equal(e, map[string]string{"color": "blue"}, cm.Data)
	require.NoError(e, c.Patch(e.Context(),
		cm, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/data/color","value":"green"}]`))))
	require.Equal(e, "green", cm.Data["color"])
	err := c.Patch(e.Context(), cm,
		client.RawPatch(types.JSONPatchType, []byte(`[{"op":"test","path":"/data/color","value":"red"}]`)))
	require.True(e, apierrors.IsInvalid(err), "%v", err)
	require.Error(e, c.Patch(e.Context(), e.configMap("a", ""),
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"name":"b"}}`))))
	d := e.deployment()
	require.NoError(e, c.Create(e.Context(), d))
	require.NoError(e, c.Patch(e.Context(), d, client.RawPatch(types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"two"}]}}}}`))))
	require.Len(e, d.Spec.Template.Spec.Containers, 2, "containers merge by name")
	err = c.Patch(e.Context(), e.configMap("nobody", ""), client.RawPatch(types.MergePatchType, []byte(`{}`)))
	require.True(e, apierrors.IsNotFound(err), "%v", err)
}

// applied returns the apply configuration of one owner.
func (e *env) applied(data map[string]any) client.Patch {
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"name": "a", "namespace": e.ns},
		"data":       data,
	})
	require.NoError(e, err)
	return client.RawPatch(types.ApplyPatchType, raw)
}

func apply(e *env) {
	c := e.client()
	cm := e.configMap("a", "")
	mine, theirs := client.FieldOwner("mine"), client.FieldOwner("theirs")
	require.NoError(e, c.Patch(e.Context(), cm, e.applied(map[string]any{"color": "red", "size": "1"}), mine))
	require.Equal(e, map[string]string{"color": "red", "size": "1"}, cm.Data)
	require.NoError(e, c.Patch(e.Context(), cm, e.applied(map[string]any{"shape": "round"}), theirs))
	require.Len(e, cm.Data, 3)
	err := c.Patch(e.Context(), cm, e.applied(map[string]any{"shape": "round", "color": "blue"}), theirs)
	require.True(e, apierrors.IsConflict(err), "%v", err)
	require.NoError(e, c.Patch(e.Context(), cm, e.applied(map[string]any{"shape": "round", "color": "blue"}), theirs,
		client.ForceOwnership))
	require.Equal(e, "blue", cm.Data["color"])
	require.NoError(e, c.Patch(e.Context(), cm, e.applied(map[string]any{}), mine))
	require.Equal(e, map[string]string{"color": "blue", "shape": "round"}, cm.Data, "what nobody applies any more goes")
	rv := cm.ResourceVersion
	require.NoError(e, c.Patch(e.Context(), cm, e.applied(map[string]any{}), mine))
	require.Equal(e, rv, cm.ResourceVersion, "the same again changes nothing")
}

func metadataStays(e *env) {
	e.create("red", "a")
	c := e.client()
	cm := &corev1.ConfigMap{}
	require.NoError(e, c.Get(e.Context(), e.named("a"), cm))
	was := cm.DeepCopy()
	cm.Generation, cm.CreationTimestamp, cm.Data["color"] = 17, metav1.Time{}, "blue"
	require.NoError(e, c.Update(e.Context(), cm))
	require.Equal(e, was.CreationTimestamp, cm.CreationTimestamp)
	require.Zero(e, cm.Generation)
	cm.UID = "another"
	err := c.Update(e.Context(), cm)
	require.True(e, apierrors.IsConflict(err), "%v", err)
	deleted := e.configMap("b", "red")
	deleted.DeletionTimestamp, deleted.Finalizers = new(metav1.Now()), []string{"example.com/x"}
	require.NoError(e, c.Create(e.Context(), deleted))
	require.Nil(e, deleted.DeletionTimestamp)
}

func fewDefaults(e *env) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "a"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "one"}}, ServiceAccountName: "default",
			AutomountServiceAccountToken: new(false),
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "default"}}
	if err := e.admin.Create(e.Context(), account); !apierrors.IsAlreadyExists(err) {
		require.NoError(e, err)
	}
	require.NoError(e, e.admin.Create(e.Context(), pod))
	require.Equal(e, corev1.PodPending, pod.Status.Phase)
	pod.Status.Phase = corev1.PodRunning
	require.NoError(e, e.admin.Status().Update(e.Context(), pod))
	require.Equal(e, corev1.PodRunning, pod.Status.Phase)
	pods := &corev1.PodList{}
	require.NoError(e, e.client().List(e.Context(), pods, client.InNamespace(e.ns),
		client.MatchingFields{"status.phase": "Running"}))
	require.Len(e, pods.Items, 1)
	ns := &corev1.Namespace{}
	require.NoError(e, e.admin.Get(e.Context(), client.ObjectKey{Name: e.ns}, ns))
	require.Equal(e, e.ns, ns.Labels["kubernetes.io/metadata.name"])
	require.Equal(e, corev1.NamespaceActive, ns.Status.Phase)
}
