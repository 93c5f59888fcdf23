// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// narrowly matches the requests of informers that select a part of a kind.
func narrowly(is bool) clustercachetest.Match {
	return func(r clustercachetest.Request) bool {
		q, _ := url.ParseQuery(r.Query)
		narrow := r.Namespace != "" || q.Get("labelSelector")+q.Get("fieldSelector") != ""
		return (r.Verb == "list" || r.Verb == "watch") && narrow == is
	}
}

// TestHazardChangeThroughAnotherWatchGoesUnheard: an owner's reads are answered
// from whatever watch covers them. What that watch brings calls the owner, also
// while the watch that it has declared is broken.
func TestHazardChangeThroughAnotherWatchGoesUnheard(t *testing.T) {
	parts := map[string][]client.ListOption{
		"a namespace":            {client.InNamespace("default")},
		"a label":                {client.MatchingLabels{"color": "red"}},
		"a label in a namespace": {client.InNamespace("default"), client.MatchingLabels{"color": "red"}},
		"a name":                 {client.InNamespace("default"), client.MatchingFields{"metadata.name": "x"}},
		"a name anywhere":        {client.MatchingFields{"metadata.name": "x"}},
	}
	others := map[string]func(t *testing.T, cc *clustercache.ClusterCache, part ...client.ListOption){
		"declared": func(t *testing.T, cc *clustercache.ClusterCache, part ...client.ListOption) {
			t.Helper()
			fleettest.Declare(t, cc, fleettest.Owner("two"), fleettest.Target("a", "ConfigMap", part...))
		},
		"declared by label": func(t *testing.T, cc *clustercache.ClusterCache, part ...client.ListOption) {
			t.Helper()
			target := fleettest.Target("", "ConfigMap", part...)
			target.Cluster, target.ClusterSelector = client.ObjectKey{}, labels.Everything()
			fleettest.Declare(t, cc, fleettest.Owner("two"), target)
		},
		"watched": func(t *testing.T, cc *clustercache.ClusterCache, part ...client.ListOption) {
			t.Helper()
			fleettest.Watch(t, cc, part...)
		},
	}
	for name, part := range parts {
		for how, other := range others {
			for _, narrow := range []bool{true, false} {
				own, its := part, []client.ListOption(nil)
				title := name + " is declared, and all is " + how
				if !narrow {
					own, its, title = nil, part, "all is declared, and "+name+" is "+how
				}
				t.Run(title, func(t *testing.T) {
					fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T,
						_ *clustercachetest.Fleet, c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
					) {
						c.Fail(clustercachetest.Status(http.StatusServiceUnavailable), configMaps, narrowly(narrow))
						calls := ownersOf(t, cc)
						fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap", own...))
						other(t, cc, its...)
						calls.take(5 * time.Minute) // the watches stay open for longer
						x := fleettest.ColoredConfigMap("x", "red")
						x.Labels = map[string]string{"color": "red"}
						require.NoError(t, c.Client().Create(t.Context(), x))
						require.Contains(t, calls.take(time.Second), "one")
						got := clustercache.Kind(fleettest.ConfigMap)
						require.NoError(t, cc.Cluster(c.Key()).Reader().Get(t.Context(),
							client.ObjectKeyFromObject(x), got,
							clustercache.CacheOnly))
						x.Annotations = map[string]string{"changed": "yes"}
						require.NoError(t, c.Client().Update(t.Context(), x))
						require.Contains(t, calls.take(time.Second), "one")
						x.Labels["color"] = "none"
						require.NoError(t, c.Client().Update(t.Context(), x))
						require.Contains(t, calls.take(time.Second), "one")
						x.Labels["color"] = "red"
						require.NoError(t, c.Client().Update(t.Context(), x))
						require.Contains(t, calls.take(time.Second), "one")
						require.NoError(t, c.Client().Delete(t.Context(), x))
						require.Contains(t, calls.take(time.Second), "one")
						require.NoError(t, c.Client().Create(t.Context(), fleettest.ColoredConfigMap("y", "green")))
						called := calls.take(time.Second)
						if narrow && name != "a namespace" {
							require.NotContains(t, called, "one", "the target does not cover it")
						}
						require.Empty(t, calls.take(5*time.Minute), "nothing happens")
					})
				})
			}
		}
	}
}

// TestHazardStateOfAnotherWatchGoesUnheard: an owner's reads are answered by a
// wider watch, until that is refused.
func TestHazardStateOfAnotherWatchGoesUnheard(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		c.Fail(clustercachetest.Status(http.StatusServiceUnavailable), configMaps, narrowly(true))
		calls := ownersOf(t, cc)
		part := client.MatchingLabels{"color": "red"}
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap", part))
		fleettest.Declare(t, cc, fleettest.Owner("three"),
			fleettest.Target("a", "ConfigMap", client.MatchingLabels{"color": "green"}))
		calls.take(time.Hour)
		list := func() error {
			return cc.Cluster(c.Key()).Reader().List(t.Context(), &corev1.ConfigMapList{}, part, clustercache.CacheOnly)
		}
		require.ErrorIs(t, list(), clustercache.ErrNotSynced)
		fleettest.Declare(t, cc, fleettest.Owner("two"), fleettest.Target("a", "ConfigMap"))
		require.Equal(t, []string{"one", "two", "three"}, calls.take(time.Minute))
		require.NoError(t, list())
		heal := c.Fail(clustercachetest.Status(http.StatusForbidden), configMaps, narrowly(false))
		require.Equal(t, []string{"one", "two", "three"}, calls.take(time.Minute))
		require.Error(t, list())
		require.Empty(t, calls.take(time.Hour), "nothing changes")
		heal()
		require.Equal(t, []string{"one", "two", "three"}, calls.take(time.Minute))
		require.NoError(t, list())
	})
}
