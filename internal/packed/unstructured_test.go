// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// TestEncodersAndConvertersSeeTheWholeObject: selectors in jq and CEL use one
// of these conversions.
func TestEncodersAndConvertersSeeTheWholeObject(t *testing.T) {
	o := packPod(t)
	want := o.DeepCopyObject().(*unstructured.Unstructured)

	raw, err := json.Marshal(o)
	require.NoError(t, err)
	var got unstructured.Unstructured
	require.NoError(t, got.UnmarshalJSON(raw))
	require.Equal(t, want.Object, got.Object)
	raw, err = json.Marshal(map[string]any{"object": o})
	require.NoError(t, err)
	require.Contains(t, string(raw), want.GetName())

	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	require.NoError(t, err)
	require.Equal(t, want.Object, content)
	content["spec"] = "changed"
	require.Equal(t, want.Object, o.UnstructuredContent(), "what is handed out belongs to the caller")

	gvk, err := apiutil.GVKForObject(o, runtime.NewScheme())
	require.NoError(t, err)
	require.Equal(t, podGVK, gvk)
	require.False(t, o.IsList())
	require.Error(t, o.EachListItem(nil))
	require.Equal(t, podGVK, o.NewEmptyInstance().GetObjectKind().GroupVersionKind())
}

func TestMarshalOfADamagedBodyIsAnError(t *testing.T) {
	o := *packPod(t)
	o.body = "x"
	_, err := json.Marshal(&o)
	require.ErrorIs(t, err, ErrCorrupt)
}

// TestMetadataIsReadWithoutTheRest: nothing behind the metadata is decoded for
// it, so that a Secret's takes no longer if its data are large.
func TestMetadataIsReadWithoutTheRest(t *testing.T) {
	c := NewCodec()
	k := c.Kind(podGVK)
	keep := make([]*Object, 0, samples)
	for i := range samples {
		keep = append(keep, mustPack(t, c, k, pods(i)))
	}
	whole := mustPack(t, c, k, pods(3))
	require.Equal(t, string(codecDense), whole.body[:1])
	require.NotEmpty(t, keep)
	cut := *whole
	cut.body = whole.body[:len(whole.body)-4]
	require.ErrorIs(t, cut.Into(&unstructured.Unstructured{}), ErrCorrupt)

	var want, got metav1.PartialObjectMetadata
	require.NoError(t, whole.Into(&want))
	require.NoError(t, cut.Into(&got))
	require.Equal(t, want, got)
	require.NotEmpty(t, got.Annotations)
	require.Equal(t, want.Annotations, cut.GetAnnotations())
	require.Equal(t, want.ManagedFields, cut.GetManagedFields())
}
