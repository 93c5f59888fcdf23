// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package counting_test

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fleetcache/fleetcache/informerpool/internal/counting"
)

func object(name, content string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"data":       map[string]any{"v": content},
	}}
	u.SetName(name)
	return u
}

// TestVersionsGrowWithTheContent: the same content keeps its version, and an
// object that was deleted and created again is another one.
func TestVersionsGrowWithTheContent(t *testing.T) {
	v := counting.New()
	untouched := object("a", "x")
	require.True(t, v.Stamp(untouched))
	require.Empty(t, untouched.GetResourceVersion(), "the server keeps versions")

	v.Count()
	require.True(t, v.Counting())
	first, same, changed, again := object("a", "x"), object("a", "x"), object("a", "y"), object("a", "x")
	require.True(t, v.Stamp(first))
	require.False(t, v.Stamp(same), "fakes begin a watch with the existing objects")
	require.Equal(t, first, same)
	require.True(t, v.Stamp(changed))
	require.Equal(t, first.GetUID(), changed.GetUID())
	require.Greater(t, number(t, changed), number(t, first))

	gone := object("a", "y")
	v.Deleted(gone)
	require.Equal(t, first.GetUID(), gone.GetUID())
	require.Greater(t, number(t, gone), number(t, changed))
	require.True(t, v.Stamp(again))
	require.NotEqual(t, first.GetUID(), again.GetUID())
	require.Equal(t, v.Current(), again.GetResourceVersion())
}

// TestPeekRecordsNothing: the event of new content may be on its way, and has
// to be new when it arrives.
func TestPeekRecordsNothing(t *testing.T) {
	v := counting.New()
	v.Count()
	known, peeked, arrives := object("a", "x"), object("a", "y"), object("a", "y")
	v.Stamp(known)
	v.Peek(peeked)
	require.Greater(t, number(t, peeked), number(t, known))
	require.True(t, v.Stamp(arrives))
	require.Equal(t, arrives, peeked)
}

// TestHazardNamesComeAndGoWithoutEnd: uids stay unique although only a bounded
// number of deleted names is kept.
func TestHazardNamesComeAndGoWithoutEnd(t *testing.T) {
	v := counting.New()
	v.Count()
	first := object("a", "x")
	v.Stamp(first)
	v.Deleted(object("a", "x"))
	for i := range 10_001 {
		v.Deleted(object("o"+strconv.Itoa(i), "x"))
	}
	again := object("a", "x")
	v.Stamp(again)
	require.NotEqual(t, first.GetUID(), again.GetUID())
}

// TestBodyIsTheFramesOfAServer: events become frames, repetitions are left out,
// and the end of the watch or of ctx ends the body.
func TestBodyIsTheFramesOfAServer(t *testing.T) {
	v := counting.New()
	v.Count()
	w := watch.NewFakeWithChanSize(3, false)
	w.Add(object("a", "x"))
	w.Modify(object("a", "x"))
	w.Delete(object("a", "x"))
	body := v.Body(t.Context(), w)
	frames := json.NewDecoder(body)
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		var event metav1.WatchEvent
		require.NoError(t, frames.Decode(&event))
		require.Equal(t, string(want), event.Type)
	}
	require.NoError(t, body.Close())
	_, err := body.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = v.Body(ctx, watch.NewFake()).Read(make([]byte, 1))
	require.ErrorIs(t, err, context.Canceled)
}

func number(t *testing.T, u *unstructured.Unstructured) int {
	t.Helper()
	n, err := strconv.Atoi(u.GetResourceVersion())
	require.NoError(t, err)
	return n
}
