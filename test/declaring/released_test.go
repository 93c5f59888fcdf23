// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"context"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// theWide begins a watch of all objects of a kind, and returns what ends it
// within 20 minutes.
type theWide func(t *testing.T, cc *clustercache.ClusterCache, all clustercache.Target) (end func())

func wideOfOwner(end func(t *testing.T, cc *clustercache.ClusterCache, two clustercache.Owner)) theWide {
	return func(t *testing.T, cc *clustercache.ClusterCache, all clustercache.Target) func() {
		t.Helper()
		fleettest.Declare(t, cc, fleettest.Owner("two"), all)
		return func() { end(t, cc, fleettest.Owner("two")) }
	}
}

// TestHazardEndOfAnotherWatchGoesUnheard: an owner's reads are answered by a
// wider watch, until that is released, however it is. The owner is called if
// reads are answered differently then: if no other watch answers as well.
func TestHazardEndOfAnotherWatchGoesUnheard(t *testing.T) {
	const refused, failing = http.StatusForbidden, http.StatusServiceUnavailable
	states := map[string]struct {
		gvk     schema.GroupVersionKind
		code    int           // with which the narrow watch fails
		after   time.Duration // how long after it was declared
		last    bool          // it is declared after the wide one
		another bool          // a third watch covers it
		changes bool
	}{
		"fine":                    {gvk: fleettest.ConfigMap},
		"not served":              {gvk: gadgets},
		"refused":                 {gvk: fleettest.ConfigMap, code: refused, after: time.Minute, changes: true},
		"refused at first":        {gvk: fleettest.ConfigMap, code: refused, changes: true},
		"refused, declared last":  {gvk: fleettest.ConfigMap, code: refused, last: true, changes: true},
		"stale":                   {gvk: fleettest.ConfigMap, code: failing, after: time.Minute, changes: true},
		"not synced":              {gvk: fleettest.ConfigMap, code: failing, changes: true},
		"refused, and another":    {gvk: fleettest.ConfigMap, code: refused, after: time.Minute, another: true},
		"not synced, and another": {gvk: fleettest.ConfigMap, code: failing, another: true},
	}
	parts := map[string][]client.ListOption{
		"a namespace": {client.InNamespace("default")},
		"a label":     {client.InNamespace("default"), client.MatchingLabels{"color": "red"}},
		"a name":      {client.InNamespace("default"), client.MatchingFields{"metadata.name": "x"}},
	}
	var gone atomic.Bool
	ends := map[string]theWide{
		"released": func(t *testing.T, cc *clustercache.ClusterCache, all clustercache.Target) func() {
			t.Helper()
			w, err := cc.Cluster(all.Cluster).Watch(t.Context(), all.Kind)
			require.NoError(t, err)
			return w.Release
		},
		"dropped": wideOfOwner(func(_ *testing.T, cc *clustercache.ClusterCache, two clustercache.Owner) {
			cc.Drop(two)
		}),
		"replaced": wideOfOwner(func(t *testing.T, cc *clustercache.ClusterCache, two clustercache.Owner) {
			t.Helper()
			fleettest.Declare(t, cc, two, fleettest.Target("a", "Node"))
		}),
		"of an owner that ends": wideOfOwner(func(*testing.T, *clustercache.ClusterCache, clustercache.Owner) {
			gone.Store(true)
		}),
		"of reads": func(t *testing.T, cc *clustercache.ClusterCache, all clustercache.Target) func() {
			t.Helper()
			_ = read(t, cc, all, clustercache.AutoWatch) // gadgets are not served
			return func() {}
		},
	}
	for state, s := range states {
		for part, narrow := range parts {
			if s.another && part == "a namespace" {
				continue // no third one is between the two
			}
			for how, begin := range ends {
				if how != "dropped" && (part != "a name" || state != "fine" && state != "refused") {
					continue
				}
				t.Run(state+"/"+part+"/"+how, func(t *testing.T) {
					gone.Store(false)
					o := clustercachetest.Options{}
					o.Cache.GC.InUse = func(_ context.Context, owner clustercache.Owner) (bool, error) {
						return owner.Name != "two" || !gone.Load(), nil
					}
					fleettest.WithFakeCluster(t, o, func(t *testing.T, _ *clustercachetest.Fleet,
						c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
					) {
						x := fleettest.ColoredConfigMap("x", "red")
						x.Labels = map[string]string{"color": "red"}
						require.NoError(t, c.Client().Create(t.Context(), x))
						fault := func() {
							c.Fail(clustercachetest.Status(s.code), func(r clustercachetest.Request) bool {
								q, _ := url.ParseQuery(r.Query)
								is := q.Get("labelSelector")+q.Get("fieldSelector") != ""
								is = is || part == "a namespace" && r.Namespace != ""
								return (r.Verb == "list" || r.Verb == "watch") && is
							})
						}
						calls := ownersOf(t, cc)
						target := clustercache.Target{Cluster: c.Key(), Kind: clustercache.Kind(s.gvk), Options: narrow}
						all := clustercache.Target{Cluster: c.Key(), Kind: target.Kind}
						declare := func() { fleettest.Declare(t, cc, fleettest.Owner("one"), target) }
						if !s.last {
							if s.code != 0 && s.after == 0 {
								fault()
							}
							declare()
							calls.take(time.Minute)
							if s.after != 0 {
								fault()
							}
							calls.take(5 * time.Minute)
							if s.changes {
								require.Error(t, read(t, cc, target, clustercache.CacheOnly))
							}
						}
						if s.another {
							fleettest.Watch(t, cc, client.InNamespace("default"))
						}
						end := begin(t, cc, all)
						calls.take(time.Minute)
						if s.last {
							declare()
							calls.take(time.Minute)
							if s.code != 0 {
								fault()
							}
							calls.take(time.Minute)
						}
						before := read(t, cc, target, clustercache.CacheOnly)
						if s.gvk == fleettest.ConfigMap {
							require.NoError(t, before)
						}

						end()
						called := calls.take(20 * time.Minute)
						after := read(t, cc, target, clustercache.CacheOnly)
						if s.changes {
							require.Error(t, after)
							require.Error(t, read(t, cc, target, clustercache.PreferCache))
							require.Contains(t, called, "one")
						} else {
							require.Equal(t, before, after)
							require.NotContains(t, called, "one")
						}
						require.Empty(t, calls.take(5*time.Minute), "nothing changes")
					})
				})
			}
		}
	}
}

// read reads the metadata of what a target selects, and the objects.
func read(t *testing.T, cc *clustercache.ClusterCache, target clustercache.Target, mode clustercache.ReadMode) error {
	t.Helper()
	gvk := target.Kind.GetObjectKind().GroupVersionKind()
	objects, metadata := &unstructured.UnstructuredList{}, &metav1.PartialObjectMetadataList{}
	objects.SetGroupVersionKind(gvk)
	metadata.SetGroupVersionKind(gvk)
	opts := append([]client.ListOption{mode}, target.Options...)
	err := cc.Cluster(target.Cluster).Reader().List(t.Context(), objects, opts...)
	other := cc.Cluster(target.Cluster).Reader().List(t.Context(), metadata, opts...)
	require.Equal(t, err == nil, other == nil)
	if err == nil {
		require.Len(t, metadata.Items, len(objects.Items))
	}
	return err
}
