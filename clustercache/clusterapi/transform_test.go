// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
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
	"github.com/fleetcache/fleetcache/internal/packed"
	"github.com/fleetcache/fleetcache/internal/wire"
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

// benchNode is what an API server sends of a Node, with managed fields.
func benchNode(tb testing.TB) []byte {
	tb.Helper()
	u := node()
	managed := make([]any, 4)
	for n := range managed {
		fields := map[string]any{}
		for f := range 40 {
			fields[fmt.Sprintf("f:field-%d-%d", n, f)] = map[string]any{}
		}
		managed[n] = map[string]any{
			"manager": fmt.Sprint("kubelet-", n), "operation": "Update", "apiVersion": "v1",
			"fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:status": fields},
		}
	}
	require.NoError(tb, unstructured.SetNestedField(u.Object, managed, "metadata", "managedFields"))
	document, err := u.MarshalJSON()
	require.NoError(tb, err)
	return document
}

// stripping returns what each implementation does for an object that arrives,
// with the transform that strips managed fields and without.
func stripping(tb testing.TB) map[string]func() {
	tb.Helper()
	document, strip := benchNode(tb), cache.TransformStripManagedFields()
	out := map[string]func(){}
	for name, o := range map[string]capi.CacheOptions{"plain": {}, "stripped": {DefaultTransform: strip}} {
		made, err := newCached(scheme.Scheme, o)
		require.NoError(tb, err)
		require.Empty(tb, made.transforms)
		codec := packed.NewCodec()
		codec.DropManagedFields = made.dropManagedFields
		kind := codec.Kind(corev1.SchemeGroupVersion.WithKind("Node"))
		out[name+"/ours"] = func() {
			item, err := wire.Scan(document)
			require.NoError(tb, err)
			_, err = codec.Pack(kind, item)
			require.NoError(tb, err)
		}
		decoder := scheme.Codecs.UniversalDeserializer()
		out[name+"/theirs"] = func() {
			object, _, err := decoder.Decode(document, nil, nil)
			require.NoError(tb, err)
			if o.DefaultTransform != nil {
				_, err = o.DefaultTransform(object)
				require.NoError(tb, err)
			}
		}
	}
	return out
}

// TestStrippingManagedFieldsAllocatesNothing: in both implementations an object
// costs no more with it than without.
func TestStrippingManagedFieldsAllocatesNothing(t *testing.T) {
	runs := stripping(t)
	for _, of := range []string{"theirs", "ours"} {
		plain := testing.AllocsPerRun(200, runs["plain/"+of])
		stripped := testing.AllocsPerRun(200, runs["stripped/"+of])
		t.Logf("%s: %v allocations without the transform, %v with it", of, plain, stripped)
		require.LessOrEqual(t, stripped, plain, of)
	}
}

// BenchmarkStripManagedFields compares what the transform adds to an object
// that arrives.
func BenchmarkStripManagedFields(b *testing.B) {
	runs := stripping(b)
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				runs[name]()
			}
		})
	}
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
