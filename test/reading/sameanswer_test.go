// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// someConfigMaps returns n objects of two applications.
func someConfigMaps(n int) []client.Object {
	objs := make([]client.Object, n)
	for i := range objs {
		objs[i] = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default",
				Name:      fmt.Sprintf("config-%d", i),
				Labels:    map[string]string{"app": fmt.Sprint(i % 2)},
			},
		}
	}
	return objs
}

// configMapFleet returns a cluster with objects, an index of them by
// application, and a reader.
func configMapFleet(t *testing.T, n int) (*clustercache.ClusterCache, client.Reader) {
	t.Helper()
	fleet := clustercachetest.New(t, clustercachetest.Options{
		Cache: clustercache.Options{
			Indexes: []clustercache.Index{{
				GVK:    fleettest.ConfigMap,
				Field:  "app",
				Values: func(o client.Object) []string { return []string{o.GetLabels()["app"]} },
			}},
		},
	})
	fleet.Add("fleet/a", someConfigMaps(n)...)
	cc := fleet.ClusterCache()
	require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
	require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
	return cc, cc.Cluster(fleettest.Key("a")).Reader()
}

// configMapForms returns an object and a list in every form.
func configMapForms() map[string]func() (client.Object, client.ObjectList) {
	kinds := fleettest.ConfigMap
	kinds.Kind += "List"
	return map[string]func() (client.Object, client.ObjectList){
		"typed": func() (client.Object, client.ObjectList) { return &corev1.ConfigMap{}, &corev1.ConfigMapList{} },
		"unstructured": func() (client.Object, client.ObjectList) {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(fleettest.ConfigMap)
			return u, fleettest.ListOf(fleettest.ConfigMap)
		},
		"metadata": func() (client.Object, client.ObjectList) {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kinds)
			return clustercache.Kind(fleettest.ConfigMap), list
		},
	}
}

// TestHazardAnswerDependsOnWhoAnswers: a read returns the same whether the
// cache or the API server answers, including the type meta, which client-go
// omits from typed objects and caches do not: otherwise a reconciler that looks
// at an object's kind works only until its cluster is disconnected.
func TestHazardAnswerDependsOnWhoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, r := configMapFleet(t, 4)
		type answer struct {
			object client.Object
			lists  []client.ObjectList
		}
		read := func(cached bool) map[string]answer {
			answers := map[string]answer{}
			for form, fresh := range configMapForms() {
				origin := clustercache.Origin{}
				one, _ := fresh()
				require.NoError(t, r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "config-1"}, one,
					&origin))
				require.Equal(t, cached, origin.Cached, form)
				require.Equal(t, fleettest.ConfigMap, one.GetObjectKind().GroupVersionKind(), form)
				a := answer{object: one}
				for _, opts := range [][]client.ListOption{
					{client.MatchingFields{"metadata.name": "config-1"}},
					{client.MatchingFields{"metadata.name": "config-1", "app": "1"}},
					{client.MatchingLabels{"app": "none"}},
				} {
					_, list := fresh()
					list.SetContinue("of another list")
					require.NoError(t, r.List(t.Context(), list, append(opts, &origin)...), form)
					require.Equal(t, cached, origin.Cached, form)
					require.Empty(t, list.GetContinue(), form)
					list.SetContinue("")        // absent and empty are the same
					list.SetResourceVersion("") // the cache's may be an older one
					a.lists = append(a.lists, list)
				}
				answers[form] = a
			}
			return answers
		}
		live := read(false)
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		for form, cached := range read(true) {
			require.Equal(t, cached.object, live[form].object, form)
			for i, list := range cached.lists {
				require.Equal(t, list, live[form].lists[i], "%s list %d", form, i)
			}
		}
	})
}

// TestHazardCutListLooksWhole: a caller that reads page by page gets all
// objects, or an error, but never a part that looks complete, whatever answers.
func TestHazardCutListLooksWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 6
		cc, r := configMapFleet(t, n)
		ways := map[string][]client.ListOption{
			"plain":           nil,
			"cache only":      {clustercache.CacheOnly},
			"labels":          {client.MatchingLabels{"app": "1"}},
			"index":           {client.MatchingFields{"app": "1"}},
			"index and field": {client.MatchingFields{"app": "1", "metadata.namespace": "default"}},
			"namespace field": {client.MatchingFields{"metadata.namespace": "default"}},
		}
		check := func(cached bool) {
			for way, opts := range ways {
				want := n
				if way != "plain" && way != "cache only" && way != "namespace field" {
					want = n / 2
				}
				for form, fresh := range configMapForms() {
					for limit := 1; limit <= n+1; limit++ {
						if !cached && way == "cache only" {
							continue
						}
						what := fmt.Sprintf("%s, %s, %d of %d, cached %t", way, form, limit, want, cached)
						_, list := fresh()
						got, err := pages(t, r, list, limit, opts)
						if err == nil {
							require.Equal(t, want, got, what)
							continue
						}
						require.ErrorIs(t, err, clustercache.ErrUnsupported, what)
						require.Less(t, limit, want, what)
					}
				}
			}
		}
		check(false)
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		check(true)
	})
}

// pages reads a list page by page, and returns the number of objects.
func pages(t *testing.T, r client.Reader, list client.ObjectList, limit int, opts []client.ListOption) (int, error) {
	t.Helper()
	names := map[string]struct{}{}
	for {
		paged := append([]client.ListOption{client.Limit(int64(limit)), client.Continue(list.GetContinue())}, opts...)
		if err := r.List(t.Context(), list, paged...); err != nil {
			return len(names), err
		}
		require.LessOrEqual(t, meta.LenList(list), limit)
		require.NoError(t, meta.EachListItem(list, func(o runtime.Object) error {
			names[o.(client.Object).GetName()] = struct{}{}
			return nil
		}))
		if list.GetContinue() == "" {
			return len(names), nil
		}
	}
}
