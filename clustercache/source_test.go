// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
)

// queue is a controller's queue that records what is added, and how.
type queue[request comparable] struct {
	workqueue.TypedRateLimitingInterface[request] // nil: only the methods below are called

	mu   sync.Mutex // protects what follows
	log  []queued[request]
	full func(request) // called with each request, without the lock
}

type queued[request comparable] struct {
	request request
	low     bool
	at      time.Time
}

// Add implements workqueue.TypedInterface.
func (q *queue[request]) Add(r request) { q.put(r, false) }

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *queue[request]) AddWithOpts(o priorityqueue.AddOpts, rs ...request) {
	for _, r := range rs {
		q.put(r, o.Priority != nil && *o.Priority == handler.LowPriority)
	}
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *queue[request]) GetWithPriority() (r request, priority int, shutdown bool) {
	return r, 0, true
}

func (q *queue[request]) put(r request, low bool) {
	q.mu.Lock()
	q.log = append(q.log, queued[request]{request: r, low: low, at: time.Now()})
	q.mu.Unlock()
	if q.full != nil {
		q.full(r)
	}
}

// take waits until the bubble is idle and returns what was added since the last
// call.
func (q *queue[request]) take() []queued[request] {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	log := q.log
	q.log = nil
	return log
}

// names returns the names of the taken requests, sorted; a name in parentheses
// has low priority.
func (q *queue[request]) names() []string {
	names := []string{}
	for _, x := range q.take() {
		name := any(x.request).(clustercache.Request).Name
		if x.low {
			name = "(" + name + ")"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

var configMaps = []client.Object{&corev1.ConfigMap{}}

func request(name string) clustercache.Request {
	return clustercache.Request{Cluster: key("a"), GVK: configMap, ObjectKey: client.ObjectKey{Namespace: "default", Name: name}}
}

// sourced is the set-up of a bubble: a watched cluster with the objects one
// (app=x) and two (app=y).
func sourced(t *testing.T) (*clustercache.ClusterCache, *fakeAPI, *queue[clustercache.Request]) {
	t.Helper()
	cc, api, _ := oneCluster(t)
	synced(t, cc, api)
	return cc, api, &queue[clustercache.Request]{}
}

func TestPredicatesOfControllerRuntimeWorkWithoutDecoding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := sourced(t)
		selected, err := predicate.LabelSelectorPredicate(metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}})
		require.NoError(t, err)
		for _, row := range []struct {
			name      string
			predicate predicate.Predicate
			initial   []string
			relabel   []string // two gets another label
			rewrite   []string // two gets other data
		}{
			{"generation", predicate.GenerationChangedPredicate{}, []string{"(one)", "(two)"}, []string{}, []string{}},
			{"version", predicate.ResourceVersionChangedPredicate{}, []string{"(one)", "(two)"}, []string{"two"}, []string{"two"}},
			{"labels", predicate.LabelChangedPredicate{}, []string{"(one)", "(two)"}, []string{"two"}, []string{}},
			{"selector", selected, []string{"(one)"}, []string{}, []string{}},
			{"neither new nor old", predicate.Funcs{
				CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
				UpdateFunc: func(e event.UpdateEvent) bool {
					return e.ObjectOld.GetLabels()["app"] == "y" && e.ObjectNew.GetLabels()["app"] == "z"
				},
			}, []string{}, []string{"two"}, []string{}},
		} {
			api.put("two", "2", map[string]any{"app": "y"})
			synctest.Wait()
			s := clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: configMaps, Predicates: []predicate.Predicate{row.predicate}}, clustercache.EnqueueObject)
			require.NoError(t, s.Start(t.Context(), q))
			require.Equal(t, row.initial, q.names(), row.name)
			api.put("two", "2", map[string]any{"app": "z"})
			require.Equal(t, row.relabel, q.names(), row.name)
			api.put("two", "3", map[string]any{"app": "z"})
			require.Equal(t, row.rewrite, q.names(), row.name)
			require.NoError(t, s.Close(t.Context()))
			require.Zero(t, s.Failures())
		}
	})
}

func TestSelectionWithoutOwnWatchSeesObjectsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := sourced(t)
		before := api.total()
		events := followObjects(t, cc, clustercache.ObjectFeed{Kinds: configMaps, Options: []client.ListOption{client.MatchingLabels{"app": "x"}}})
		both := followObjects(t, cc, clustercache.ObjectFeed{Selections: []clustercache.Selection{
			{Kind: clustercache.Kind(configMap), Options: []client.ListOption{client.MatchingFields{"metadata.name": "two"}, client.InNamespace("default")}},
			{Kind: &corev1.ConfigMap{}, Options: []client.ListOption{client.MatchingLabels{"app": "x"}, client.InNamespace("default")}},
			{Kind: &corev1.Secret{}},
		}})
		types := func(f *objectFeed) (out []string) {
			synctest.Wait()
			for len(f.events) > 0 {
				e := <-f.events
				out = append(out, string(e.Type)+" "+e.Object().GetName())
			}
			slices.Sort(out)
			return out
		}
		require.Equal(t, []string{"Added one"}, types(events))
		require.Equal(t, []string{"Added one", "Added two"}, types(both), "either selection")
		api.put("one", "1", map[string]any{"app": "y"})
		require.Equal(t, []string{"Deleted one"}, types(events))
		require.Equal(t, []string{"Deleted one"}, types(both))
		api.put("two", "1", map[string]any{"app": "x"})
		require.Equal(t, []string{"Added two"}, types(events))
		require.Equal(t, []string{"Updated two"}, types(both))
		require.Equal(t, before, api.total(), "no request was sent")
	})
}

func TestFeedThatWatchesHasTheEventsOfItsOwnWatchesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, q := sourced(t) // with a watch of everything
		s := clustercache.ObjectSource(cc, clustercache.ObjectFeed{Watch: true, Selections: []clustercache.Selection{
			{Kind: &corev1.ConfigMap{}, Options: []client.ListOption{client.MatchingLabels{"app": "x"}}},
		}}, clustercache.EnqueueObject)
		require.NoError(t, s.Start(t.Context(), q))
		require.Equal(t, []string{"(one)"}, q.names())
		require.NoError(t, s.Close(t.Context()))
	})
}

func TestIteratorHasTheFiltersOfAFeedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := sourced(t)
		f := followObjects(t, cc, clustercache.ObjectFeed{
			Kinds: configMaps, ResyncInterval: time.Hour, Clusters: func(c client.ObjectKey) bool { return c == key("a") },
			Predicates: []predicate.Predicate{predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()["app"] == "x" })},
		})
		synctest.Wait()
		api.put("two", "3", map[string]any{"app": "y"})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, f.events, 2)
		require.True(t, (<-f.events).Initial)
		e := <-f.events
		require.True(t, e.Resync && e.Requested)
		require.Equal(t, "one", e.New.GetName())
	})
}

// TestControllersDoNotWaitForSources: a controller waits for sources that
// report when they have synced, and ends if that takes too long.
func TestControllersDoNotWaitForSources(t *testing.T) {
	cc, err := clustercache.New(silent(newDirectory()))
	require.NoError(t, err)
	for _, s := range []source.TypedSource[reconcile.Request]{
		clustercache.ObjectSource(cc, clustercache.ObjectFeed{}, clustercache.EnqueueClusterOf), clustercache.ClusterSource(cc, clustercache.EnqueueCluster),
	} {
		_, syncs := s.(source.TypedSyncingSource[reconcile.Request])
		require.False(t, syncs)
	}
}

func TestSourcesNameThemselvesInLogs(t *testing.T) {
	cc, err := clustercache.New(silent(newDirectory()))
	require.NoError(t, err)
	for want, feed := range map[string]clustercache.ObjectFeed{
		"fleetcache object source":                             {Watch: true},
		"fleetcache object source: v1 ConfigMap, v1 Namespace": {Kinds: []client.Object{&corev1.Namespace{}, &corev1.ConfigMap{}, clustercache.Kind(configMap)}},
	} {
		require.Equal(t, want, clustercache.ObjectSource(cc, feed, clustercache.EnqueueObject).String())
	}
	require.Equal(t, "fleetcache cluster source", clustercache.ClusterSource(cc, clustercache.EnqueueCluster).String())
}

func TestFeedNamesWhatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, q := sourced(t)
		for field, spec := range map[string]clustercache.ObjectFeed{
			"Watch":              {Watch: true},
			"ResyncInterval":     {ResyncInterval: -1},
			"Kinds[1]":           {Kinds: []client.Object{&corev1.Pod{}, nil}},
			"Selections[0].Kind": {Selections: []clustercache.Selection{{}}},
			"Options":            {Options: []client.ListOption{client.MatchingFields{"spec.nodeName": "n"}}},
			"Kinds[0]":           {Kinds: configMaps, Options: []client.ListOption{client.MatchingFields{"spec.nodeName": "n"}}},
		} {
			_, err := cc.ObjectEvents(t.Context(), spec)
			e, ok := errors.AsType[*clustercache.OptionError](err)
			require.True(t, ok, field)
			require.Equal(t, field, e.Field)
			require.ErrorAs(t, clustercache.ObjectSource(cc, spec, clustercache.EnqueueObject).Start(t.Context(), q), &e)
		}
		for field, o := range map[string]clustercache.ObjectSourceOptions{"Form": {Form: 9}, "Debounce": {Debounce: -1}, "MaxDelay": {MaxDelay: -1}} {
			e, ok := errors.AsType[*clustercache.OptionError](clustercache.ObjectSource(cc, clustercache.ObjectFeed{}, clustercache.EnqueueObject, o).Start(t.Context(), q))
			require.True(t, ok, field)
			require.Equal(t, field, e.Field)
		}
		require.Empty(t, q.take())
	})
}

func TestMappingIsGivenTheFormThatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := sourced(t)
		for _, row := range []struct {
			form clustercache.Form
			want client.Object
		}{
			{clustercache.Packed, &informerpool.Object{}}, {clustercache.Typed, &corev1.ConfigMap{}},
			{clustercache.Unstructured, &unstructured.Unstructured{}}, {clustercache.Metadata, &metav1.PartialObjectMetadata{}},
		} {
			api.put("one", "old", nil)
			synctest.Wait()
			var got []client.Object
			s := clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: configMaps}, func(ctx context.Context, c client.ObjectKey, o client.Object) []clustercache.Request {
				got = append(got, o)
				return clustercache.EnqueueObject(ctx, c, o)
			}, clustercache.ObjectSourceOptions{Form: row.form})
			require.NoError(t, s.Start(t.Context(), q))
			require.Equal(t, []string{"(one)", "(two)"}, q.names())
			got = nil
			api.put("one", "new", nil)
			require.Equal(t, []clustercache.Request{request("one")}, []clustercache.Request{q.take()[0].request})
			require.Len(t, got, 2, "what it was and what it is")
			values := []string{}
			for _, o := range got {
				require.IsType(t, row.want, o)
				require.Equal(t, configMap, o.GetObjectKind().GroupVersionKind())
				switch o := o.(type) {
				case *corev1.ConfigMap:
					values = append(values, o.Data["value"])
				case *unstructured.Unstructured:
					value, _, err := unstructured.NestedString(o.Object, "data", "value")
					require.NoError(t, err)
					values = append(values, value)
				}
				if row.form != clustercache.Packed {
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
		cc, api, q := sourced(t)
		bad := predicate.NewPredicateFuncs(func(o client.Object) bool {
			if o.GetName() == "predicate" {
				panic("no")
			}
			return true
		})
		s := clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: configMaps, Predicates: []predicate.Predicate{bad}},
			func(ctx context.Context, c client.ObjectKey, o client.Object) []clustercache.Request {
				if o.GetName() == "mapping" {
					panic("no")
				}
				return clustercache.EnqueueObject(ctx, c, o)
			})
		require.NoError(t, s.Start(t.Context(), q))
		for _, name := range []string{"mapping", "predicate", "good"} {
			api.put(name, "1", nil)
			synctest.Wait()
		}
		require.Equal(t, []string{"(one)", "(two)", "good"}, q.names())
		require.EqualValues(t, 2, s.Failures())

		clusters := clustercache.ClusterSource(cc, func(_ context.Context, e clustercache.ClusterEvent) []clustercache.Request {
			if e.Type == clustercache.Connected {
				panic("no")
			}
			return []clustercache.Request{{Cluster: e.Cluster}}
		})
		require.NoError(t, clusters.Start(t.Context(), q))
		require.Empty(t, q.take())
		require.EqualValues(t, 1, clusters.Failures())
		api.die()
		time.Sleep(time.Minute)
		require.NotEmpty(t, q.take(), "it goes on")
		require.NoError(t, clusters.Close(t.Context()))
		require.NoError(t, s.Close(t.Context()))
		require.EqualValues(t, 2, s.Failures())

		feed := clustercache.ObjectFeed{Clusters: func(client.ObjectKey) bool { panic("no") }}
		left := clustercache.ObjectSource(cc, feed, clustercache.EnqueueObject)
		require.NoError(t, left.Start(t.Context(), q))
		require.Empty(t, q.take(), "a cluster that nobody can decide on is left out")
		left.Stop()
	})
}
