// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
)

func node() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Node",
		"metadata": map[string]any{
			"name":          "worker",
			"managedFields": []any{map[string]any{"manager": "kubelet"}},
		},
		"spec": map[string]any{"providerID": "aws:///1", "podCIDR": "10.0.0.0/8", "fieldOfTheFuture": "stays"},
	}}
}

func onNode(change func(*corev1.Node)) toolscache.TransformFunc {
	return func(in any) (any, error) {
		if n, ok := in.(*corev1.Node); ok {
			change(n)
		}
		return in, nil
	}
}

// TestHazardTransformQuotesWhatDoesNotFit: its error is a reason in logs and in
// the status, and what does not fit may be a secret.
func TestHazardTransformQuotesWhatDoesNotFit(t *testing.T) {
	u := node()
	require.NoError(t, unstructured.SetNestedField(u.Object, "canary", "metadata", "creationTimestamp"))
	err := transform(scheme.Scheme, onNode(func(*corev1.Node) {}))(u)
	require.ErrorContains(t, err, "metadata.creationTimestamp")
	require.NotContains(t, err.Error(), "canary")
}

// TestATransformLeavesWhatItsTypeDoesNotHave: only what the function changed in
// the typed object changes.
func TestATransformLeavesWhatItsTypeDoesNotHave(t *testing.T) {
	u := node()
	require.NoError(t, transform(scheme.Scheme, onNode(func(n *corev1.Node) {
		n.ManagedFields, n.Spec.PodCIDR = nil, ""
		n.Labels = map[string]string{"added": "yes"}
		n.Spec.ProviderID = "changed"
	}))(u))
	want := node()
	unstructured.RemoveNestedField(want.Object, "metadata", "managedFields")
	unstructured.RemoveNestedField(want.Object, "spec", "podCIDR")
	require.NoError(t, unstructured.SetNestedField(want.Object, "yes", "metadata", "labels", "added"))
	require.NoError(t, unstructured.SetNestedField(want.Object, "changed", "spec", "providerID"))
	require.Equal(t, want, u)

	u = node()
	require.NoError(t, transform(scheme.Scheme, onNode(func(*corev1.Node) {}))(u))
	require.Equal(t, node(), u, "a function that changes nothing")
}

// TestATransformGetsKindsThatTheSchemeLacks: as unstructured objects.
func TestATransformGetsKindsThatTheSchemeLacks(t *testing.T) {
	u := node()
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Machine"})
	require.NoError(t, transform(scheme.Scheme, cache.TransformStripManagedFields())(u))
	require.Empty(t, u.GetManagedFields())
	require.Equal(t, "worker", u.GetName())
}

// TestStrippingManagedFieldsIsAnAssignment: no object is converted for the
// transform that Cluster API's manager uses.
func TestStrippingManagedFieldsIsAnAssignment(t *testing.T) {
	strip := cache.TransformStripManagedFields()
	made, err := newCached(scheme.Scheme, capi.CacheOptions{DefaultTransform: strip})
	require.NoError(t, err)
	require.True(t, made.dropManagedFields)
	require.Empty(t, made.transforms)

	// Another kind keeps them, so that they are dropped object by object.
	made, err = newCached(scheme.Scheme, capi.CacheOptions{
		DefaultTransform: strip,
		ByObject:         map[client.Object]cache.ByObject{&corev1.Pod{}: {Transform: onNode(func(*corev1.Node) {})}},
	})
	require.NoError(t, err)
	require.False(t, made.dropManagedFields)
	change := made.transforms[schema.GroupResource{}]
	u := node()
	require.NoError(t, change(u))
	require.Empty(t, u.GetManagedFields())
	require.Zero(t, testing.AllocsPerRun(10, func() { _ = change(u) }))

	// A function that strips more is called.
	made, err = newCached(scheme.Scheme, capi.CacheOptions{DefaultTransform: onNode(func(n *corev1.Node) {
		n.ManagedFields = nil
	})})
	require.NoError(t, err)
	require.False(t, made.dropManagedFields)
	require.Len(t, made.transforms, 1)
}

func TestAnErrorOfATransformIsThatOfTheObject(t *testing.T) {
	broken := errors.New("broken")
	err := transform(scheme.Scheme, func(any) (any, error) { return nil, broken })(node())
	require.ErrorIs(t, err, broken)
}

// TestOptionsThatCannotBeFollowedAreErrors names each field.
func TestOptionsThatCannotBeFollowedAreErrors(t *testing.T) {
	name := fields.OneTermEqualSelector("metadata.name", "a")
	for field, by := range map[string]cache.ByObject{
		"Namespaces": {Namespaces: map[string]cache.Config{"a": {}, "b": {}}},
		"Field":      {Namespaces: map[string]cache.Config{"a": {FieldSelector: name}}},
		"SyncPeriod": {SyncPeriod: new(time.Minute)},
	} {
		_, err := newCached(scheme.Scheme, capi.CacheOptions{
			ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: by},
		})
		wrong, ok := errors.AsType[*clustercache.OptionError](err)
		require.True(t, ok, field)
		require.Equal(t, "Cache.ByObject[*v1.Pod]."+field, wrong.Field)
	}
}
