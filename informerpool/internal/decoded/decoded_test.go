// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package decoded

import (
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/packed"
)

func pack(t *testing.T, name, value string) *packed.Object {
	t.Helper()
	codec := packed.NewCodec()
	u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"v": value}}}
	u.SetName(name)
	u.SetUID("u")
	u.SetResourceVersion("1")
	o, err := codec.PackUnstructured(codec.Kind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}), u)
	require.NoError(t, err)
	return o
}

// TestRepeatedReadsShareNothing: an object enters the cache on its second read,
// and every reader owns what it gets.
func TestRepeatedReadsShareNothing(t *testing.T) {
	c, o := New(1<<20), pack(t, "a", "x")
	for n := range 4 {
		var read corev1.ConfigMap
		require.NoError(t, c.Decode(o, &read))
		require.Equal(t, map[string]string{"v": "x"}, read.Data)
		read.Data["v"] = "mine"
		require.Len(t, c.hot, min(n, 1))
	}
	require.NoError(t, c.Decode(o, &unstructured.Unstructured{}))
	require.Len(t, c.hot, 1, "copying takes as long as decoding")
}

// TestSharedReadsShare: in any form, and other readers own what they get.
func TestSharedReadsShare(t *testing.T) {
	c, o := New(1<<20), pack(t, "a", "x")
	var reads [4]corev1.ConfigMap
	var forms [4]unstructured.Unstructured
	for n := range reads {
		require.NoError(t, c.Share(o, &reads[n]))
		require.NoError(t, c.Share(o, &forms[n]))
	}
	same := func(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
	require.False(t, same(reads[0].Data, reads[1].Data), "an object enters on its second read")
	require.True(t, same(reads[1].Data, reads[2].Data))
	require.True(t, same(forms[2].Object, forms[3].Object))
	require.Len(t, c.hot, 2)

	var mine corev1.ConfigMap
	require.NoError(t, c.Decode(o, &mine))
	require.False(t, same(mine.Data, reads[3].Data))
	reads[3].Name = "other" // the struct is the reader's own
	require.NoError(t, c.Share(o, &reads[0]))
	require.Equal(t, "a", reads[0].Name)

	var owned unstructured.Unstructured
	require.NoError(t, c.Decode(o, &owned))
	require.False(t, same(owned.Object, forms[3].Object))
}

// TestDetectorFindsWhoChangesASharedObject: the next read of any kind panics.
func TestDetectorFindsWhoChangesASharedObject(t *testing.T) {
	t.Setenv("KUBE_CACHE_MUTATION_DETECTOR", "true")
	for _, read := range []func(*Cache, *packed.Object, *corev1.ConfigMap) error{
		func(c *Cache, o *packed.Object, dst *corev1.ConfigMap) error { return c.Share(o, dst) },
		func(c *Cache, o *packed.Object, dst *corev1.ConfigMap) error { return c.Decode(o, dst) },
	} {
		c, o := New(1<<20), pack(t, "a", "x")
		var shared, other corev1.ConfigMap
		for range 3 {
			require.NoError(t, c.Share(o, &shared))
		}
		shared.Data["v"] = "mine"
		require.PanicsWithError(t,
			"a *v1.ConfigMap that is read without a copy (UnsafeDisableDeepCopy) was changed: /a",
			func() { _ = read(c, o, &other) })
	}
}

// TestHazardObjectsReadInTurnPushOneAnotherOut: where there is room for a half,
// a half is read from the cache, and the others cost a decode and no more.
func TestHazardObjectsReadInTurnPushOneAnotherOut(t *testing.T) {
	c := New(256 << 10)
	var objects []*packed.Object
	for range 400 {
		objects = append(objects, pack(t, "a", strings.Repeat("x", 512)))
	}
	entered := func() map[key]bool {
		all := map[key]bool{}
		for k := range c.hot {
			all[k] = true
		}
		return all
	}
	pass := func() {
		for _, o := range objects {
			require.NoError(t, c.Decode(o, &corev1.ConfigMap{}))
		}
	}
	pass()
	require.Empty(t, c.hot, "a single pass fills nothing")
	pass()
	full := entered()
	require.Greater(t, len(full), 100)
	require.Less(t, len(full), 300)
	for range 20 {
		pass()
	}
	kept := 0
	for k := range entered() {
		if full[k] {
			kept++
		}
	}
	require.Greater(t, kept, len(full)*9/10)

	// What becomes hot later enters all the same.
	late := pack(t, "late", "x")
	for range 40 {
		require.NoError(t, c.Decode(late, &corev1.ConfigMap{}))
	}
	require.Contains(t, c.hot, key{hash: hashOf(late), form: reflect.TypeFor[*corev1.ConfigMap]()})
	runtime.KeepAlive(objects)
}

// TestObjectsThatAreGoneAreDropped: their entries go with the packed objects.
func TestObjectsThatAreGoneAreDropped(t *testing.T) {
	c := New(1 << 20)
	for n := range 50 {
		o := pack(t, strconv.Itoa(n), "x")
		for range 2 {
			require.NoError(t, c.Decode(o, &corev1.ConfigMap{}))
		}
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.hot) == 0 && c.bytes == 0 && c.order.Len() == 0
	}, time.Minute, time.Millisecond)
}

// TestHazardDecodedObjectsTakeMoreThanTheLimit: the oldest are dropped, an
// object that is too large never enters, and without a limit nothing does.
func TestHazardDecodedObjectsTakeMoreThanTheLimit(t *testing.T) {
	c := New(64 << 10)
	var objects []*packed.Object // kept, so that none is dropped for being gone
	for range 100 {
		o := pack(t, "a", strings.Repeat("x", 1000))
		objects = append(objects, o)
		for range 2 {
			require.NoError(t, c.Decode(o, &corev1.ConfigMap{}))
		}
		require.LessOrEqual(t, c.bytes, c.limit)
	}
	require.Greater(t, len(c.hot), 1)
	require.Less(t, len(c.hot), len(objects))
	for _, at := range c.hot {
		require.LessOrEqual(t, entryOf(at).size, c.limit/4)
	}

	c = New(64 << 10)
	large := pack(t, "a", strings.Repeat("x", 32<<10))
	for range 3 {
		require.NoError(t, c.Decode(large, &corev1.ConfigMap{}))
	}
	require.Zero(t, c.bytes)

	c = New(0)
	for range 3 {
		require.NoError(t, c.Decode(objects[0], &corev1.ConfigMap{}))
	}
	require.Nil(t, c.hot)
}
