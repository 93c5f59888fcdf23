// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"fmt"
	"math/rand"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fleetcache/fleetcache/internal/repeat"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// kindsOfAPI returns all kinds of k8s.io/api that clusters store.
func kindsOfAPI() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		f, ok := t.FieldByName("ObjectMeta")
		if ok && f.Type == reflect.TypeFor[metav1.ObjectMeta]() && gvk.Version != runtime.APIVersionInternal {
			kinds = append(kinds, gvk)
		}
	}
	return kinds
}

// TestEveryKindOfTheAPIComesBack fills objects of all kinds with random content
// and compares every form in which they can be read with the ordinary clients'
// result for the same bytes. -short takes some of the kinds.
func TestEveryKindOfTheAPIComesBack(t *testing.T) {
	const seed = 11
	kinds := kindsOfAPI()
	require.Greater(t, len(kinds), 150)
	c := NewCodec()
	for n, gvk := range kinds[:repeat.Times(len(kinds))] { // in random order
		fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed+int64(n)),
			serializer.NewCodecFactory(scheme.Scheme))
		perKind := 2
		if n%8 == 0 {
			perKind = samples + 2 // enough for a dictionary
		}
		var keep []*Object
		for i := range perKind {
			obj, err := scheme.Scheme.New(gvk)
			require.NoError(t, err)
			fill.Fill(obj)
			obj.GetObjectKind().SetGroupVersionKind(gvk)
			identify(t, obj, i)
			raw, err := json.Marshal(obj)
			require.NoError(t, err)
			o := mustPack(t, c, c.Kind(gvk), raw)
			keep = append(keep, o)
			requireSameObject(t, raw, o)
			requireSameTyped(t, raw, o, obj)
		}
		require.Len(t, keep, perKind)
	}
}

// identify gives an object the fields that every stored object has.
func identify(t *testing.T, obj runtime.Object, i int) {
	m, err := meta.Accessor(obj)
	require.NoError(t, err)
	m.SetName("object-" + strconv.Itoa(i))
	m.SetUID(types.UID(fmt.Sprintf("%08x-1234-4abc-89ab-0123456789ab", i)))
	m.SetResourceVersion(strconv.Itoa(1000 + i))
}

// requireSameObject compares everything that does not depend on a Go type.
func requireSameObject(t *testing.T, raw []byte, o *Object) {
	t.Helper()
	want := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal(raw, &want.Object))
	want.SetGroupVersionKind(o.Kind().GVK()) // items of typed lists have none
	require.Equal(t, want, o.DeepCopyObject())

	var back map[string]any
	require.NoError(t, json.Unmarshal(o.AppendJSON(nil), &back))
	require.Equal(t, want.Object, back)

	requireSameAccessors(t, want, o)

	u := want.DeepCopy()
	again, err := new(Codec).withKind(o.kind).PackUnstructured(o.kind, u)
	require.NoError(t, err)
	require.Equal(t, want, u, "packing changed the object")
	viaJSON := &unstructured.Unstructured{}
	spelled, err := u.MarshalJSON() // a float64 without a fraction is written as an integer
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(spelled, &viaJSON.Object))
	require.Equal(t, viaJSON, again.DeepCopyObject())
}

// withKind returns a codec that packs for a Kind of another codec.
func (c *Codec) withKind(k *Kind) *Codec {
	c.kinds = map[schema.GroupVersionKind]weak.Pointer[Kind]{k.gvk: weak.Make(k)}
	return c
}

func requireSameAccessors(t *testing.T, want *unstructured.Unstructured, o *Object) {
	t.Helper()
	require.Equal(t, want.GetName(), o.GetName())
	require.Equal(t, want.GetNamespace(), o.GetNamespace())
	require.Equal(t, want.GetUID(), o.GetUID())
	require.Equal(t, want.GetResourceVersion(), o.GetResourceVersion())
	require.Equal(t, want.GetGeneration(), o.GetGeneration())
	require.Equal(t, want.GetCreationTimestamp(), o.GetCreationTimestamp())
	require.Equal(t, want.GetDeletionTimestamp(), o.GetDeletionTimestamp())
	require.Equal(t, want.GetDeletionGracePeriodSeconds(), o.GetDeletionGracePeriodSeconds())
	require.Equal(t, want.GetLabels(), o.GetLabels())
	require.Equal(t, want.GetAnnotations(), o.GetAnnotations())
	require.Equal(t, want.GetOwnerReferences(), o.GetOwnerReferences())
	require.Equal(t, want.GetFinalizers(), o.GetFinalizers())
	require.Equal(t, want.GetGenerateName(), o.GetGenerateName())
	require.Equal(t, want.GetSelfLink(), o.GetSelfLink())
	require.Equal(t, want.GroupVersionKind(), o.GetObjectKind().GroupVersionKind())
	require.Len(t, o.GetManagedFields(), len(want.GetManagedFields()))
	owners := []types.UID{}
	for uid := range o.OwnerUIDs() {
		owners = append(owners, uid)
	}
	require.Len(t, owners, len(want.GetOwnerReferences()))
	for i, ref := range want.GetOwnerReferences() {
		require.Equal(t, ref.UID, owners[i])
	}
	version, err := strconv.ParseUint(want.GetResourceVersion(), 10, 64)
	got, ok := o.Version()
	if err == nil && !strings.HasPrefix(want.GetResourceVersion(), "0") {
		require.True(t, ok)
		require.Equal(t, version, got)
	}
}

// requireSameTyped compares the typed and metadata-only forms with the JSON
// library's result for the same bytes.
func requireSameTyped(t *testing.T, raw []byte, o *Object, prototype runtime.Object) {
	t.Helper()
	for _, form := range []runtime.Object{prototype, &metav1.PartialObjectMetadata{}} {
		want := reflect.New(reflect.TypeOf(form).Elem()).Interface().(runtime.Object)
		got := reflect.New(reflect.TypeOf(form).Elem()).Interface().(runtime.Object)
		require.NoError(t, json.Unmarshal(raw, want))
		want.GetObjectKind().SetGroupVersionKind(o.Kind().GVK())
		require.NoError(t, o.Into(got))
		require.Equal(t, want, got)
	}
}

// TestPlansCoverTheAPI checks that plans are used at all, since the library
// would yield the same results.
func TestPlansCoverTheAPI(t *testing.T) {
	for _, gvk := range kindsOfAPI() {
		p := planOf(scheme.Scheme.AllKnownTypes()[gvk])
		require.True(t, p.meta, gvk)
	}
}

// TestDictionaryIsUsedAfterTheFirstObjects reads objects that were packed
// before and after the dictionary was made.
func TestDictionaryIsUsedAfterTheFirstObjects(t *testing.T) {
	c := NewCodec()
	k := c.Kind(podGVK)
	var keep []*Object
	for i := range 2 * samples {
		it, err := wire.Scan(pods(i))
		require.NoError(t, err)
		o, err := c.Pack(k, it)
		require.NoError(t, err)
		keep = append(keep, o)
		want := byte(codecS2)
		if i >= samples {
			want = codecDense
		}
		require.Equal(t, string(want), o.body[:1])
	}
	for i, o := range keep {
		requireSameObject(t, pods(i), o)
	}
}
