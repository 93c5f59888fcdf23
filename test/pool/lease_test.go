// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

func TestEveryFormIsTheCallersOwn(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 7, "app=x")
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		for range 5 { // from the second read on, the typed form comes from the cache of decoded objects
			var typed pooltest.Widget
			typed.Labels = map[string]string{"left": "over"}
			require.NoError(t, l.GetInto("ns", "a", &typed))
			require.Equal(t, 7, typed.Spec.Value)
			require.Equal(t, map[string]string{"app": "x"}, typed.Labels)
			require.Equal(t, "Widget", typed.Kind)
			typed.Labels["app"] = "mine"
			typed.Spec.Value = 8

			var u unstructured.Unstructured
			require.NoError(t, l.GetInto("ns", "a", &u))
			require.Equal(t, "example.com/v1", u.GetAPIVersion())
			require.Equal(t, map[string]any{"value": int64(7)}, u.Object["spec"])
			u.Object["spec"].(map[string]any)["value"] = int64(9)

			var m metav1.PartialObjectMetadata
			require.NoError(t, l.GetInto("ns", "a", &m))
			require.Equal(t, "x", m.Labels["app"])
			m.Labels["app"] = "mine"
		}
		s.Put("ns", "a", 70)
		synctest.Wait()
		var typed pooltest.Widget
		require.NoError(t, l.GetInto("ns", "a", &typed))
		require.Equal(t, 70, typed.Spec.Value, "a new state is never served from the old one's decoded form")
	})
}

func TestListNarrowsByEverythingAQueryCanSay(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for i := range 30 {
			s.Put(fmt.Sprint("ns", i%3), fmt.Sprint("o", i), i%5, fmt.Sprint("n=", i%2))
		}
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		count := func(q informerpool.Query) int {
			objects, rv, err := l.List(q)
			require.NoError(t, err)
			require.NotEmpty(t, rv)
			return len(objects)
		}
		byValue := func(o *informerpool.Object) []string {
			var w pooltest.Widget
			if o.Into(&w) != nil {
				return nil
			}
			return []string{fmt.Sprint(w.Spec.Value), "all", "all"}
		}
		require.NoError(t, l.AddIndex("value", byValue))
		require.ErrorIs(t, l.AddIndex("value", byValue), informerpool.ErrIndexExists)
		even := labels.SelectorFromSet(labels.Set{"n": "0"})
		require.Equal(t, 30, count(informerpool.Query{}))
		require.Equal(t, 10, count(informerpool.Query{Namespace: "ns1"}))
		require.Equal(t, 15, count(informerpool.Query{Labels: even}))
		require.Equal(t, 5, count(informerpool.Query{Namespace: "ns1", Labels: even}))
		require.Equal(t, 7, count(informerpool.Query{Limit: 7}))
		require.Equal(t, 6, count(informerpool.Query{Index: "value", Value: "3"}))
		require.Equal(t, 2, count(informerpool.Query{Index: "value", Value: "3", Namespace: "ns0"}))
		require.Equal(t, 30, count(informerpool.Query{Index: "value", Value: "all"}))
		require.Zero(t, count(informerpool.Query{Owner: "nobody"}))
		_, _, err := l.List(informerpool.Query{Index: "none"})
		require.ErrorIs(t, err, informerpool.ErrNoIndex)
		s.Put("ns0", "o3", 4) // was 3
		s.Delete("ns0", "o18")
		synctest.Wait()
		require.Equal(t, 4, count(informerpool.Query{Index: "value", Value: "3"}))
		s.Become("b", 10)
		s.Put("ns0", "x", 3)
		pooltest.After(pooltest.Long)
		require.Equal(t, 1, count(informerpool.Query{Index: "value", Value: "3"}), "indexes follow into a new epoch")
	})
}

func TestIndexAddedBeforeTheFirstListSurvivesItsFailures(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.PagedLists = true
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for i := range 20 {
			s.Put("ns", fmt.Sprint("o", i), 1)
		}
		s.CutAfter = 1500
		l := pooltest.Acquire(t, p, pooltest.Everything)
		require.NoError(t, l.AddIndex("all", func(*informerpool.Object) []string { return []string{"all"} }))
		pooltest.After(time.Minute)
		require.Zero(t, l.Status().Objects, "nothing of a first list that broke is kept")
		s.Set(func(s *pooltest.Server) { s.CutAfter = 0 })
		require.NoError(t, l.WaitForSync(context.Background()))
		found, _, err := l.List(informerpool.Query{Index: "all", Value: "all"})
		require.NoError(t, err)
		require.Len(t, found, 20)
	})
}

func TestObjectsAreFoundByTheirOwner(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1, "owner=x")
		s.Put("other", "b", 1, "owner=x")
		s.Put("ns", "c", 1, "owner=y")
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		owned := func(q informerpool.Query) []string {
			objects, err := l.All(q)
			require.NoError(t, err)
			var names []string
			for o := range objects {
				names = append(names, o.GetName())
			}
			slices.Sort(names)
			list, _, err := l.List(q)
			require.NoError(t, err)
			require.Len(t, list, len(names))
			return names
		}
		require.Equal(t, []string{"a", "b"}, owned(informerpool.Query{Owner: "x"}))
		require.Equal(t, []string{"a"}, owned(informerpool.Query{Owner: "x", Namespace: "ns"}))
		require.Len(t, owned(informerpool.Query{Owner: "x", Limit: 1}), 1)
		s.Put("ns", "c", 2, "owner=x")
		s.Delete("ns", "a")
		synctest.Wait()
		require.Equal(t, []string{"b", "c"}, owned(informerpool.Query{Owner: "x"}))
		require.Empty(t, owned(informerpool.Query{Owner: "y"}))
		l.Release()
		_, err := l.All(informerpool.Query{Owner: "x"})
		require.ErrorIs(t, err, informerpool.ErrReleased)
	})
}

// TestHazardIndexFunctionThatPanicsIsAnErrorOfTheList: a list by an index that
// lacks objects fails as long as it lacks them, and nothing else is affected.
func TestHazardIndexFunctionThatPanicsIsAnErrorOfTheList(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Put("ns", "bad", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		require.NoError(t, l.AddIndex("name", func(o *informerpool.Object) []string {
			if o.GetName() == "bad" {
				panic("no")
			}
			return []string{o.GetName()}
		}))
		s.Put("ns", "b", 1)
		synctest.Wait()
		require.Len(t, pooltest.Contents(t, l), 3)
		_, _, err := l.List(informerpool.Query{Index: "name", Value: "a"})
		failed, ok := errors.AsType[*informerpool.IndexError](err)
		require.True(t, ok, "%v", err)
		require.ErrorIs(t, err, informerpool.ErrIndexPanicked)
		require.Equal(t, "bad", failed.Object.Name)
		require.Equal(t, 1, failed.Objects)
		s.Delete("ns", "bad")
		synctest.Wait()
		found, _, err := l.List(informerpool.Query{Index: "name", Value: "b"})
		require.NoError(t, err)
		require.Len(t, found, 1)
	})
}

// TestFirstQueriesForAnOwnerAreAllAnswered: one of the queries builds the
// index, of so many objects that others arrive meanwhile, in one cluster or
// another.
func TestFirstQueriesForAnOwnerAreAllAnswered(t *testing.T) {
	const objects = 3000
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for i := range objects {
			s.Put("ns", fmt.Sprint("o", i), 1, "owner=x")
		}
		for i := range 10 {
			k := pooltest.Everything
			k.Cluster.Name = fmt.Sprint("cluster", i)
			l := pooltest.AcquireSynced(t, p, k)
			var readers sync.WaitGroup
			for range 16 {
				readers.Go(func() {
					found, _, err := l.List(informerpool.Query{Owner: "x"})
					if assert.NoError(t, err) {
						assert.Len(t, found, objects)
					}
				})
			}
			readers.Wait()
		}
	})
}

// TestIndexAddedWhileObjectsComeMissesNone adds an index amid writes, during
// which no lock is held.
func TestIndexAddedWhileObjectsComeMissesNone(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		for round := range 50 {
			name := fmt.Sprint("index", round)
			var writers sync.WaitGroup
			writers.Go(func() {
				for i := range 20 {
					s.Put("ns", fmt.Sprint("o", i), round)
				}
			})
			require.NoError(t, l.AddIndex(name, func(o *informerpool.Object) []string {
				return []string{o.GetResourceVersion()}
			}))
			writers.Wait()
			synctest.Wait()
			for _, o := range contentsOf(t, l) {
				found, _, err := l.List(informerpool.Query{Index: name, Value: o.GetResourceVersion()})
				require.NoError(t, err)
				require.Equal(t, []*informerpool.Object{o}, found)
			}
		}
	})
}

func contentsOf(t *testing.T, l *informerpool.Lease) []*informerpool.Object {
	t.Helper()
	objects, _, err := l.List(informerpool.Query{})
	require.NoError(t, err)
	return objects
}

func TestTransformRunsOncePerStateAndCannotChangeIdentity(t *testing.T) {
	calls := 0
	change := func(u *unstructured.Unstructured) error {
		calls++
		switch u.GetName() {
		case "renamed":
			u.SetName("other")
		case "failed":
			return fmt.Errorf("no")
		case "panicked":
			panic("no")
		}
		u.Object["spec"] = map[string]any{"value": int64(42)}
		return nil
	}
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{pooltest.Widgets.GroupResource(): change}
	}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for _, name := range []string{"a", "renamed", "failed", "panicked"} {
			s.Put("ns", name, 1)
		}
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		require.Equal(t, []string{"ns/a"}, pooltest.Sorted(pooltest.Contents(t, l)))
		require.EqualValues(t, 3, l.Status().Rejected)
		require.Equal(t, 4, calls)
		var w pooltest.Widget
		require.NoError(t, l.GetInto("ns", "a", &w))
		require.Equal(t, 42, w.Spec.Value)
	})
}

func TestStatusNamesOwnersAndCounts(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		first, err := p.AcquireAs(t.Context(), "zeta", pooltest.Everything)
		require.NoError(t, err)
		_, err = p.AcquireAs(t.Context(), "alpha", pooltest.Everything)
		require.NoError(t, err)
		require.NoError(t, first.WaitForSync(t.Context()))
		st := p.Status()
		require.Len(t, st, 1)
		require.Equal(t, []string{"alpha", "zeta"}, st[0].Owners)
		require.Equal(t, 2, st[0].Leases)
		require.Equal(t, 1, st[0].Objects)
		require.Positive(t, st[0].Bytes)
		require.Equal(t, informerpool.StateSynced, st[0].State)
		require.Equal(t, "101", st[0].ResourceVersion)
		require.False(t, st[0].LastSeen.IsZero())
		require.Equal(t, st, p.ClusterStatus(pooltest.Everything.Cluster))
		s.Delete("ns", "a")
		synctest.Wait()
		require.Zero(t, p.Status()[0].Objects)
		require.Zero(t, p.Status()[0].Bytes)
	})
}

func TestOptionsNameWhatIsWrong(t *testing.T) {
	_, err := informerpool.New(informerpool.Options{StallTimeout: 1, ListConcurrency: -1, MaxBackoff: 1})
	for _, field := range []string{"Source", "StallTimeout", "ListConcurrency", "MaxBackoff"} {
		require.ErrorContains(t, err, "option "+field)
	}
}
