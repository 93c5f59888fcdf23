// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"slices"
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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

func TestPredicatesOfControllerRuntimeWorkWithoutDecoding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		selected, err := predicate.LabelSelectorPredicate(
			metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}})
		require.NoError(t, err)
		for _, row := range []struct {
			name      string
			predicate predicate.Predicate
			initial   []string
			relabel   []string // two gets another label
			rewrite   []string // two gets other data
		}{
			{"generation", predicate.GenerationChangedPredicate{}, []string{"(one)", "(two)"}, []string{}, []string{}},
			{"version", predicate.ResourceVersionChangedPredicate{}, []string{"(one)", "(two)"}, []string{"two"},
				[]string{"two"}},
			{"labels", predicate.LabelChangedPredicate{}, []string{"(one)", "(two)"}, []string{"two"}, []string{}},
			{"selector", selected, []string{"(one)"}, []string{}, []string{}},
			{"neither new nor old", predicate.Funcs{
				CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
				UpdateFunc: func(e event.UpdateEvent) bool {
					return e.ObjectOld.GetLabels()["app"] == "y" && e.ObjectNew.GetLabels()["app"] == "z"
				},
			}, []string{}, []string{"two"}, []string{}},
		} {
			api.Put("two", "2", map[string]any{"app": "y"})
			synctest.Wait()
			s := controller.ObjectSource(cc, events.Selection{Kinds: fleettest.ConfigMaps,
				Predicates: []predicate.Predicate{row.predicate}}, controller.EnqueueObject)
			require.NoError(t, s.Start(t.Context(), q))
			require.Equal(t, row.initial, q.Names(), row.name)
			api.Put("two", "2", map[string]any{"app": "z"})
			require.Equal(t, row.relabel, q.Names(), row.name)
			api.Put("two", "3", map[string]any{"app": "z"})
			require.Equal(t, row.rewrite, q.Names(), row.name)
			require.NoError(t, s.Close(t.Context()))
			require.Zero(t, s.Failures())
		}
	})
}

func TestSelectionWithoutOwnWatchSeesObjectsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.NewSource(t)
		before := api.Total()
		received := fleettest.FollowObjects(t, cc, events.Selection{Kinds: fleettest.ConfigMaps,
			Options: []client.ListOption{client.MatchingLabels{"app": "x"}}})
		both := fleettest.FollowObjects(t, cc, events.Selection{Narrowed: []events.NarrowedKind{
			{Kind: clustercache.Kind(fleettest.ConfigMap),
				Options: []client.ListOption{client.MatchingFields{"metadata.name": "two"},
					client.InNamespace("default")}},
			{Kind: &corev1.ConfigMap{}, Options: []client.ListOption{client.MatchingLabels{"app": "x"},
				client.InNamespace("default")}},
			{Kind: &corev1.Secret{}},
		}})
		types := func(f *fleettest.ObjectLog) (out []string) {
			synctest.Wait()
			for len(f.Events) > 0 {
				e := <-f.Events
				out = append(out, string(e.Type)+" "+e.Object().GetName())
			}
			slices.Sort(out)
			return out
		}
		require.Equal(t, []string{"Added one"}, types(received))
		require.Equal(t, []string{"Added one", "Added two"}, types(both), "either selection")
		api.Put("one", "1", map[string]any{"app": "y"})
		require.Equal(t, []string{"Deleted one"}, types(received))
		require.Equal(t, []string{"Deleted one"}, types(both))
		api.Put("two", "1", map[string]any{"app": "x"})
		require.Equal(t, []string{"Added two"}, types(received))
		require.Equal(t, []string{"Updated two"}, types(both))
		require.Equal(t, before, api.Total(), "no request was sent")
	})
}

func TestFeedThatWatchesHasTheEventsOfItsOwnWatchesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, q := fleettest.NewSource(t) // with a watch of everything
		s := controller.ObjectSource(cc, events.Selection{Watch: true, Narrowed: []events.NarrowedKind{
			{Kind: &corev1.ConfigMap{}, Options: []client.ListOption{client.MatchingLabels{"app": "x"}}},
		}}, controller.EnqueueObject)
		require.NoError(t, s.Start(t.Context(), q))
		require.Equal(t, []string{"(one)"}, q.Names())
		require.NoError(t, s.Close(t.Context()))
	})
}

func TestIteratorHasTheFiltersOfAFeedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.NewSource(t)
		f := fleettest.FollowObjects(t, cc, events.Selection{
			Kinds:          fleettest.ConfigMaps,
			ResyncInterval: time.Hour,
			Clusters:       func(c client.ObjectKey) bool { return c == fleettest.Key("a") },
			Predicates: []predicate.Predicate{predicate.NewPredicateFuncs(func(o client.Object) bool {
				return o.GetLabels()["app"] == "x"
			})},
		})
		synctest.Wait()
		api.Put("two", "3", map[string]any{"app": "y"})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, f.Events, 2)
		require.True(t, (<-f.Events).Initial)
		e := <-f.Events
		require.True(t, e.Resync && e.Requested)
		require.Equal(t, "one", e.New.GetName())
	})
}

// TestControllersDoNotWaitForSources: a controller waits for sources that
// report when they have synced, and ends if that takes too long.
func TestControllersDoNotWaitForSources(t *testing.T) {
	cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
	require.NoError(t, err)
	for _, s := range []source.TypedSource[reconcile.Request]{
		controller.ObjectSource(cc, events.Selection{}, controller.EnqueueClusterOf),
		controller.ClusterSource(cc, controller.EnqueueCluster),
	} {
		_, syncs := s.(source.TypedSyncingSource[reconcile.Request])
		require.False(t, syncs)
	}
}

func TestSourcesNameThemselvesInLogs(t *testing.T) {
	cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
	require.NoError(t, err)
	for want, feed := range map[string]events.Selection{
		"fleetcache object source": {Watch: true},
		"fleetcache object source: v1 ConfigMap, v1 Namespace": {Kinds: []client.Object{
			&corev1.Namespace{}, &corev1.ConfigMap{}, clustercache.Kind(fleettest.ConfigMap),
		}},
	} {
		require.Equal(t, want, controller.ObjectSource(cc, feed, controller.EnqueueObject).String())
	}
	require.Equal(t, "fleetcache cluster source", controller.ClusterSource(cc, controller.EnqueueCluster).String())
}

func TestFeedNamesWhatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, q := fleettest.NewSource(t)
		for field, spec := range map[string]events.Selection{
			"Watch":            {Watch: true},
			"ResyncInterval":   {ResyncInterval: -1},
			"Predicates[1]":    {Predicates: []predicate.Predicate{predicate.Funcs{}, nil}},
			"Kinds[1]":         {Kinds: []client.Object{&corev1.Pod{}, nil}},
			"Narrowed[0].Kind": {Narrowed: []events.NarrowedKind{{}}},
			"Options":          {Options: []client.ListOption{client.MatchingFields{"spec.nodeName": "n"}}},
			"Kinds[0]": {Kinds: fleettest.ConfigMaps,
				Options: []client.ListOption{client.MatchingFields{"spec.nodeName": "n"}}},
		} {
			_, err := cc.ObjectEvents(t.Context(), spec)
			e, ok := errors.AsType[*clustercache.OptionError](err)
			require.True(t, ok, field)
			require.Equal(t, field, e.Field)
			require.ErrorAs(t, controller.ObjectSource(cc, spec, controller.EnqueueObject).Start(t.Context(), q),
				&e)
		}
		for field, o := range map[string]controller.ObjectSourceOptions{
			"Representation": {Representation: 9},
			"Debounce":       {Debounce: -1},
			"MaxDelay":       {MaxDelay: -1},
		} {
			s := controller.ObjectSource(cc, events.Selection{}, controller.EnqueueObject, o)
			e, ok := errors.AsType[*clustercache.OptionError](s.Start(t.Context(), q))
			require.True(t, ok, field)
			require.Equal(t, field, e.Field)
		}
		require.Empty(t, q.Take())
	})
}

func TestMappingIsGivenTheFormThatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		for _, row := range []struct {
			form events.Representation
			want client.Object
		}{
			{events.Packed, &informerpool.Object{}}, {events.Typed, &corev1.ConfigMap{}},
			{events.Unstructured, &unstructured.Unstructured{}},
			{events.Metadata, &metav1.PartialObjectMetadata{}},
		} {
			api.Put("one", "old", nil)
			synctest.Wait()
			var got []client.Object
			s := controller.ObjectSource(cc, events.Selection{
				Kinds: fleettest.ConfigMaps}, func(ctx context.Context, c client.ObjectKey,
				o client.Object) []controller.Request {
				got = append(got, o)
				return controller.EnqueueObject(ctx, c, o)
			}, controller.ObjectSourceOptions{Representation: row.form})
			require.NoError(t, s.Start(t.Context(), q))
			require.Equal(t, []string{"(one)", "(two)"}, q.Names())
			got = nil
			api.Put("one", "new", nil)
			require.Equal(t, []controller.Request{fleettest.RequestFor("one")},
				[]controller.Request{q.Take()[0].Request})
			require.Len(t, got, 2, "what it was and what it is")
			values := []string{}
			for _, o := range got {
				require.IsType(t, row.want, o)
				require.Equal(t, fleettest.ConfigMap, o.GetObjectKind().GroupVersionKind())
				switch o := o.(type) {
				case *corev1.ConfigMap:
					values = append(values, o.Data["value"])
				case *unstructured.Unstructured:
					value, _, err := unstructured.NestedString(o.Object, "data", "value")
					require.NoError(t, err)
					values = append(values, value)
				}
				if row.form != events.Packed {
					o.SetName("changed") // it belongs to the callee
				}
			}
			if len(values) > 0 {
				require.Equal(t, []string{"old", "new"}, values)
			}
			require.NoError(t, s.Close(t.Context()))
		}
	})
}

func TestPanicsOfMappingAndPredicateLoseOneEventAndAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		bad := predicate.NewPredicateFuncs(func(o client.Object) bool {
			if o.GetName() == "predicate" {
				panic("no")
			}
			return true
		})
		s := controller.ObjectSource(cc,
			events.Selection{Kinds: fleettest.ConfigMaps, Predicates: []predicate.Predicate{bad}},
			func(ctx context.Context, c client.ObjectKey, o client.Object) []controller.Request {
				if o.GetName() == "mapping" {
					panic("no")
				}
				return controller.EnqueueObject(ctx, c, o)
			})
		require.NoError(t, s.Start(t.Context(), q))
		for _, name := range []string{"mapping", "predicate", "good"} {
			api.Put(name, "1", nil)
			synctest.Wait()
		}
		require.Equal(t, []string{"(one)", "(two)", "good"}, q.Names())
		require.EqualValues(t, 2, s.Failures())

		clusters := controller.ClusterSource(cc, func(_ context.Context,
			e events.Cluster) []controller.Request {
			if e.Type == events.Connected {
				panic("no")
			}
			return []controller.Request{{Cluster: e.Cluster}}
		})
		require.NoError(t, clusters.Start(t.Context(), q))
		require.Empty(t, q.Take())
		require.EqualValues(t, 1, clusters.Failures())
		api.Die()
		time.Sleep(time.Minute)
		require.NotEmpty(t, q.Take(), "it goes on")
		require.NoError(t, clusters.Close(t.Context()))
		require.NoError(t, s.Close(t.Context()))
		require.EqualValues(t, 2, s.Failures())

		feed := events.Selection{Clusters: func(client.ObjectKey) bool { panic("no") }}
		left := controller.ObjectSource(cc, feed, controller.EnqueueObject)
		require.NoError(t, left.Start(t.Context(), q))
		require.Empty(t, q.Take(), "a cluster that nobody can decide on is left out")
		left.Stop()
	})
}
