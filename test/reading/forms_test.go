// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// byValue is an index function as written for controller-runtime.
func byValue(o client.Object) []string { return []string{o.(*corev1.ConfigMap).Data["value"]} }

// indexedCluster returns a cluster with two objects, connected and watched.
func indexedCluster(t *testing.T, indexes ...clustercache.Index) *clustercache.ClusterCache {
	t.Helper()
	api := fleettest.NewAPI(t, "uid-a")
	api.Put("one", "1", map[string]any{"app": "x"})
	api.Put("two", "2", map[string]any{"app": "y"})
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), api.Config())
	o := fleettest.Silent(d)
	o.Indexes = indexes
	cc := fleettest.Start(t, o)
	require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
	synctest.Wait()
	fleettest.Synced(t, cc, api)
	return cc
}

// TestHazardIndexFunctionsGetTypedObjects: a function written for a Go type
// gets objects of that type, and a function that asserts another form gets that
// form.
func TestHazardIndexFunctionsGetTypedObjects(t *testing.T) {
	for name, values := range map[string]func(client.Object) []string{
		"typed": byValue,
		"typed, by a guarded assertion": func(o client.Object) []string {
			if c, ok := o.(*corev1.ConfigMap); ok {
				return []string{c.Data["value"]}
			}
			return nil
		},
		"cached": func(o client.Object) []string {
			c := &corev1.ConfigMap{}
			if o.(*informerpool.Object).Into(c) != nil {
				return nil
			}
			return []string{c.Data["value"]}
		},
		"unstructured": func(o client.Object) []string {
			value, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "data", "value")
			return []string{value}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc := indexedCluster(t,
					clustercache.Index{GVK: fleettest.ConfigMap, Field: "value", Values: values},
					clustercache.Index{GVK: fleettest.ConfigMap, Field: "again", Values: values})
				for _, fields := range []client.MatchingFields{{"value": "2"}, {"value": "2", "again": "2"}} {
					list := &corev1.ConfigMapList{}
					require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), list, fields,
						clustercache.CacheOnly))
					require.Len(t, list.Items, 1)
					require.Equal(t, "two", list.Items[0].Name)
				}
			})
		})
	}
}

// TestHazardIndexFunctionThatPanicsIsAnErrorOfTheList: a panic is an error of
// the List, at any place of the field in the selector and in any mode; other
// reads are not affected.
func TestHazardIndexFunctionThatPanicsIsAnErrorOfTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc := indexedCluster(t,
			clustercache.Index{GVK: fleettest.ConfigMap, Field: "bad", Values: func(o client.Object) []string {
				if o.GetName() == "two" {
					panic("no")
				}
				return []string{"x"}
			}},
			clustercache.Index{GVK: fleettest.ConfigMap, Field: "value", Values: byValue})
		for _, fields := range []client.MatchingFields{{"bad": "x"}, {"value": "2", "bad": "x"},
			{"bad": "x", "value": "2"}} {
			for _, mode := range []clustercache.ReadMode{clustercache.PreferCache, clustercache.CacheOnly} {
				err := cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.ConfigMapList{}, fields, mode)
				failed, ok := errors.AsType[*clustercache.IndexError](err)
				require.True(t, ok, "%v", err)
				require.ErrorIs(t, err, informerpool.ErrIndexPanicked)
				require.Equal(t, clustercache.IndexError{
					Cluster: fleettest.Key("a"), GVK: fleettest.ConfigMap,
					Field: "bad", Object: client.ObjectKey{Namespace: "default", Name: "two"},
					Err: informerpool.ErrIndexPanicked,
				}, *failed)
			}
		}
		list := &corev1.ConfigMapList{}
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), list,
			client.MatchingFields{"value": "2"}))
		require.Len(t, list.Items, 1)
	})
}

// TestHazardListByIndexBeforeTheFirstList: the API server does not know the
// field, so the cache selects by it, and the answer does not depend on the
// informer.
func TestHazardListByIndexBeforeTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		api.Put("two", "2", nil)
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		o := fleettest.Silent(d)
		o.Indexes = []clustercache.Index{{GVK: fleettest.ConfigMap, Field: "value", Values: byValue}}
		cc := fleettest.Start(t, o)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		synctest.Wait()
		typed, partial, loose := &corev1.ConfigMapList{}, &metav1.PartialObjectMetadataList{},
			fleettest.ListOf(fleettest.ConfigMap)
		partial.SetGroupVersionKind(fleettest.ConfigMap)
		names := func(list client.ObjectList) []string {
			var out []string
			switch l := list.(type) {
			case *corev1.ConfigMapList:
				for _, o := range l.Items {
					out = append(out, o.Name+o.Data["value"])
				}
			case *metav1.PartialObjectMetadataList:
				for _, o := range l.Items {
					out = append(out, o.Name+"2")
				}
			case *unstructured.UnstructuredList:
				for _, o := range l.Items {
					out = append(out, o.GetName()+"2")
				}
			}
			return out
		}
		for _, list := range []client.ObjectList{typed, partial, loose} {
			origin := clustercache.Origin{}
			require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), list,
				client.InNamespace("default"),
				client.MatchingFields{"value": "2"}, &origin))
			require.False(t, origin.Cached)
			require.Equal(t, []string{"two2"}, names(list))
			require.Equal(t, strconv.Itoa(api.Version()), list.GetResourceVersion())
		}
		err := cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), typed, client.MatchingFields{"value": "2"},
			clustercache.CacheOnly)
		require.ErrorIs(t, err, clustercache.ErrNotWatched)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), typed,
			client.InNamespace("default"),
			client.MatchingFields{"value": "2"}, clustercache.AutoWatch))
		require.Len(t, typed.Items, 1)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), typed,
			client.InNamespace("default"),
			client.MatchingFields{"value": "2", "metadata.name": "two"}, clustercache.PreferCache))
		require.Len(t, typed.Items, 1)
	})
}

// TestHazardPredicatesAndMappingsGetTypedObjects: code written for a Go type
// gets typed objects, and code that asks for less does not pay for decoding.
func TestHazardPredicatesAndMappingsGetTypedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		typed := predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool {
				return e.Object.(*corev1.ConfigMap).Data["value"] != "hidden"
			},
			UpdateFunc: func(e event.UpdateEvent) bool {
				before, ok := e.ObjectOld.(*corev1.ConfigMap)
				return ok && before.Data["value"] != e.ObjectNew.(*corev1.ConfigMap).Data["value"]
			},
			DeleteFunc: func(e event.DeleteEvent) bool { return e.Object.(*corev1.ConfigMap) != nil },
		}
		var mapped atomic.Int64
		s := controller.ObjectSource(cc,
			events.Selection{Kinds: fleettest.ConfigMaps, Watch: true,
				Predicates: []predicate.Predicate{typed}},
			func(ctx context.Context, c client.ObjectKey, o client.Object) []controller.Request {
				if o.(*corev1.ConfigMap).Data != nil {
					mapped.Add(1)
				}
				return controller.EnqueueObject(ctx, c, o)
			})
		require.NoError(t, s.Start(t.Context(), q))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"(one)", "(two)"}, q.Names())
		api.Put("one", "1", map[string]any{"only": "labels"})
		api.Put("three", "hidden", nil)
		synctest.Wait()
		api.Put("two", "changed", nil)
		api.Delete("one")
		synctest.Wait()
		require.ElementsMatch(t, []string{"one", "two"}, q.Names())
		require.Zero(t, s.Failures())
		require.Positive(t, mapped.Load())
		require.NoError(t, s.Close(t.Context()))
	})
}

// TestPredicatesGetTheFormOfTheirFeed: the explicit form, or the form in which
// the kind was given.
func TestPredicatesGetTheFormOfTheirFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, _ := fleettest.NewSource(t)
		loose := &unstructured.Unstructured{}
		loose.SetGroupVersionKind(fleettest.ConfigMap)
		for _, row := range []struct {
			kind client.Object
			form events.Representation
			want client.Object
		}{
			{&corev1.ConfigMap{}, events.AsGiven, &corev1.ConfigMap{}},
			{&corev1.ConfigMap{}, events.Packed, &informerpool.Object{}},
			{loose, events.AsGiven, &unstructured.Unstructured{}},
			{clustercache.Kind(fleettest.ConfigMap), events.AsGiven, &metav1.PartialObjectMetadata{}},
			{clustercache.Kind(fleettest.ConfigMap), events.Typed, &corev1.ConfigMap{}},
			{clustercache.Kind(fleettest.ConfigMap), events.Metadata, &metav1.PartialObjectMetadata{}},
		} {
			got := make(chan client.Object, 100)
			f := fleettest.FollowObjects(t, cc, events.Selection{
				Kinds: []client.Object{row.kind}, Representation: row.form,
				Predicates: []predicate.Predicate{
					predicate.NewPredicateFuncs(func(o client.Object) bool { got <- o; return true })},
			})
			f.WaitAll("one", "two")
			require.IsType(t, row.want, <-got)
		}
	})
}
