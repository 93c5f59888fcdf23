// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetcache/fleetcache/internal/wire"
	"github.com/fleetcache/fleetcache/internal/wire/wiretest"
)

var podGVK = corev1.SchemeGroupVersion.WithKind("Pod")

func mustPack(t testing.TB, c *Codec, k *Kind, object []byte) *Object {
	t.Helper()
	it, err := wire.Scan(object)
	require.NoError(t, err)
	o, err := c.Pack(k, it)
	require.NoError(t, err)
	return o
}

func TestPodComesBackAsTheDynamicClientWouldReturnIt(t *testing.T) {
	c := NewCodec()
	k := c.Kind(podGVK)
	for i := range 3 * samples {
		raw := wiretest.Pod(i)
		o := mustPack(t, c, k, raw)
		want := &unstructured.Unstructured{}
		require.NoError(t, want.UnmarshalJSON(raw))
		want.SetManagedFields(nil)
		require.Equal(t, want, o.DeepCopyObject())
		t.Logf("%d: raw %d body %d (%c) size %d", i, len(raw), len(o.body), o.body[0], o.Size())
	}
}
