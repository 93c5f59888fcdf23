// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fleetcache/fleetcache/internal/repeat"
	"github.com/fleetcache/fleetcache/internal/wire/wiretest"
)

// TestManagedFieldsAreKept: without managedFields, the documented sequence of
// read, extract and apply wipes the remote object, because the extracted
// configuration is empty.
func TestManagedFieldsAreKept(t *testing.T) {
	raw := bytes.Replace(pods(3), []byte(`"operation":"Update"`), []byte(`"operation":"Apply"`), 1)
	packs := NewCodec()
	o := mustPack(t, packs, packs.Kind(podGVK), raw)
	var want, got corev1.Pod
	require.NoError(t, json.Unmarshal(raw, &want))
	require.NoError(t, o.Into(&got))
	require.NotEmpty(t, want.ManagedFields)
	require.Equal(t, want.ManagedFields, got.ManagedFields)
	require.Equal(t, want.ManagedFields, o.GetManagedFields())
	var meta metav1.PartialObjectMetadata
	require.NoError(t, o.Into(&meta))
	require.Equal(t, want.ManagedFields, meta.ManagedFields)
	extracted, err := applycorev1.ExtractPod(&got, "kube-controller-manager")
	require.NoError(t, err)
	require.NotNil(t, extracted.Spec)

	c := NewCodec()
	c.DropManagedFields = true
	dropped := mustPack(t, c, c.Kind(podGVK), pods(3))
	require.Nil(t, dropped.GetManagedFields())
	got = corev1.Pod{}
	require.NoError(t, dropped.Into(&got))
	require.Nil(t, got.ManagedFields)
}

// TestManagedFieldsAreAffordable limits the share of the heap that
// managedFields may take.
func TestManagedFieldsAreAffordable(t *testing.T) {
	n := repeat.Times(4000)
	perPod := func(drop bool) float64 {
		c := NewCodec()
		c.DropManagedFields = drop
		k := c.Kind(podGVK)
		for i := range 600 { // trains the dictionaries
			mustPack(t, c, k, wiretest.Pod(i))
		}
		kept := make([]*Object, 0, n)
		before := liveHeap()
		for i := range n {
			kept = append(kept, mustPack(t, c, k, wiretest.Pod(i)))
		}
		used := float64(liveHeap()-before) / float64(n)
		runtime.KeepAlive(kept)
		return used
	}
	without, with := perPod(true), perPod(false)
	t.Logf("bytes a Pod: %.0f without managedFields, %.0f with", without, with)
	require.Less(t, with/without, 1.25)
}
