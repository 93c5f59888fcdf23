// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// requested returns which owners were requested since the last call: by their
// names, with how often.
func requested(q *fleettest.Queue[reconcile.Request]) map[string]int {
	counts := map[string]int{}
	for _, x := range q.Take() {
		counts[x.Request.Name]++
	}
	return counts
}

// TestDeclarerSourceRequestsTheOwnersOfItsKind: those of an object that has
// changed, and only while they declare it and the source runs.
func TestDeclarerSourceRequestsTheOwnersOfItsKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.NewSource(t)
		one, two := fleettest.Owner("one"), fleettest.Owner("two")
		stranger := fleettest.Owner("stranger")
		stranger.GVK.Kind = "Other"
		target := fleettest.Target("a", "ConfigMap")
		fleettest.Declare(t, cc, one, target)
		fleettest.Declare(t, cc, stranger, target)
		synctest.Wait()

		q := &fleettest.Queue[reconcile.Request]{}
		s := controller.DeclarerSource(cc, controller.EnqueueDeclarer(schema.GroupVersionKind{
			Group: one.GVK.Group, Version: "v2", Kind: one.GVK.Kind,
		}))
		require.NoError(t, s.Start(t.Context(), q))
		require.NotEmpty(t, requested(q)["one"], "it declares something when the source starts")

		api.Put("one", "3", nil)
		require.Equal(t, map[string]int{"one": 1}, requested(q))
		fleettest.Declare(t, cc, two, target)
		require.Equal(t, map[string]int{"two": 1}, requested(q))
		cc.Drop(one)
		api.Put("one", "4", nil)
		require.Equal(t, map[string]int{"two": 1}, requested(q))
		s.Trigger(controller.Request{GVK: two.GVK, ObjectKey: two.ObjectKey})
		require.Equal(t, map[string]int{"two": 1}, requested(q))

		require.NoError(t, s.Close(t.Context()))
		api.Put("one", "5", nil)
		require.Empty(t, requested(q))
		require.Zero(t, s.Failures())
	})
}

// TestDeclarerSourceDebouncesBursts: the last option that is set counts, and a
// panic loses one event.
func TestDeclarerSourceDebouncesBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.NewSource(t)
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		q, fail := &fleettest.Queue[reconcile.Request]{}, false
		s := controller.DeclarerSource(cc,
			func(_ context.Context, owner clustercache.Owner) []reconcile.Request {
				if fail {
					panic("mapping")
				}
				return []reconcile.Request{{NamespacedName: owner.ObjectKey}}
			},
			controller.DeclarerSourceOptions{Debounce: time.Second},
			controller.DeclarerSourceOptions{MaxDelay: time.Minute})
		require.NoError(t, s.Start(t.Context(), q))
		time.Sleep(time.Minute)
		requested(q)
		for i := range 5 {
			api.Put("one", "3", map[string]any{"at": strconv.Itoa(i)})
			time.Sleep(time.Second / 2)
		}
		require.Empty(t, requested(q))
		time.Sleep(time.Second)
		require.Equal(t, map[string]int{"one": 1}, requested(q))

		synctest.Wait()
		fail = true
		api.Put("one", "4", nil)
		time.Sleep(time.Minute)
		require.Empty(t, requested(q))
		require.EqualValues(t, 1, s.Failures())
	})
}

// TestDeclarerSourceNeedsAMapping: the error names it.
func TestDeclarerSourceNeedsAMapping(t *testing.T) {
	cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
	require.NoError(t, err)
	s := controller.DeclarerSource[reconcile.Request](cc, nil)
	var invalid *clustercache.OptionError
	require.ErrorAs(t, s.Start(t.Context(), &fleettest.Queue[reconcile.Request]{}), &invalid)
	require.Equal(t, "mapping", invalid.Field)
	s = controller.DeclarerSource(cc, controller.EnqueueDeclarer(corev1.SchemeGroupVersion.WithKind("ConfigMap")),
		controller.DeclarerSourceOptions{Debounce: -1})
	require.ErrorAs(t, s.Start(t.Context(), &fleettest.Queue[reconcile.Request]{}), &invalid)
	require.Equal(t, "Debounce", invalid.Field)
}
