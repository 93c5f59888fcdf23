// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
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
