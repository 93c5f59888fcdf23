// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// definitions matches the requests for CustomResourceDefinitions and
// APIServices, other than those of the test.
var definitions = clustercachetest.Match(func(r clustercachetest.Request) bool {
	return r.Resource == "customresourcedefinitions" || r.Resource == "apiservices"
})

// discoveries matches the queries of discovery.
var discoveries = clustercachetest.Match(func(r clustercachetest.Request) bool { return r.Path == "/apis" })

// declareGadgets has one owner declare gadgets, which are not served.
func declareGadgets(t *testing.T, c *clustercachetest.Cluster, cc *clustercache.ClusterCache) (*callLog, *watchLog) {
	t.Helper()
	calls, watches := ownersOf(t, cc), watchesOf(t, cc)
	fleettest.Declare(t, cc, fleettest.Owner("one"),
		clustercache.Target{Cluster: c.Key(), Kind: clustercache.Kind(gadgets)})
	require.Contains(t, calls.take(time.Minute), "one")
	require.True(t, meta.IsNoMatchError(watches.last("Gadget").Err))
	return calls, watches
}

// TestKindIsServedWithinASecond after it was installed, with default options
// and without an object, however long it was missing; also one that was removed
// and is installed again.
func TestKindIsServedWithinASecond(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		calls, watches := declareGadgets(t, c, cc)
		waits := []time.Duration{time.Second, time.Minute, time.Hour}
		if !testing.Short() {
			waits = append(waits, 24*time.Hour)
		}
		for _, missing := range waits {
			calls.take(missing)
			require.NoError(t, c.Client().Create(t.Context(), gadgetDefinition()))
			require.Equal(t, one, calls.take(time.Second), missing)
			require.True(t, watches.last("Gadget").Synced)
			require.NoError(t, watches.last("Gadget").Err)

			calls.take(10 * time.Minute)
			require.NoError(t, c.Client().Delete(t.Context(), gadgetDefinition()))
			require.Equal(t, one, calls.take(20*time.Minute), "it is not served any more")
			require.Equal(t, "NotServed", watches.last("Gadget").Reason)
		}
	})
}

// TestKindThatIsNotServedIsLoggedOnce for each cluster, however many watch it.
func TestKindThatIsNotServedIsLoggedOnce(t *testing.T) {
	book := &fleettest.Logbook{}
	options := clustercachetest.Options{Cache: clustercache.Options{Logger: book.Logger()}}
	fleettest.WithFakeCluster(t, options, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		fleettest.Declare(t, cc, fleettest.Owner("two"), clustercache.Target{
			Cluster: c.Key(),
			Kind:    clustercache.Kind(gadgets),
			Options: []client.ListOption{client.InNamespace("default")},
		})
		declareGadgets(t, c, cc)
		time.Sleep(time.Hour)
		require.Equal(t, 1, book.Count("Kind is not watched yet"))
		require.Equal(t, 1, book.Count("no matches for kind"))
	})
}

// TestHazardDiscoveryLagsBehindADefinition: the kind is served in the moment in
// which discovery has it.
func TestHazardDiscoveryLagsBehindADefinition(t *testing.T) {
	for _, lag := range []time.Duration{50 * time.Millisecond, 700 * time.Millisecond, 4 * time.Second} {
		fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
			c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
		) {
			calls, watches := declareGadgets(t, c, cc)
			calls.take(time.Hour)
			heal := c.Fail(clustercachetest.Status(http.StatusServiceUnavailable), discoveries)
			require.NoError(t, c.Client().Create(t.Context(), gadgetDefinition()))
			time.Sleep(lag)
			heal()
			calls.take(time.Second)
			require.True(t, watches.last("Gadget").Synced, lag)
		})
	}
}

// TestHazardDefinitionsAreCutOffWhileDiscoveryLags: what the watch has reported
// before its end counts.
func TestHazardDefinitionsAreCutOffWhileDiscoveryLags(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		calls, watches := declareGadgets(t, c, cc)
		calls.take(time.Hour)
		heal := c.Fail(clustercachetest.Status(http.StatusServiceUnavailable), discoveries)
		require.NoError(t, c.Client().Create(t.Context(), gadgetDefinition()))
		time.Sleep(300 * time.Millisecond)
		c.Reset()
		time.Sleep(4 * time.Second)
		heal()
		calls.take(time.Second)
		require.True(t, watches.last("Gadget").Synced)
	})
}

// TestDefinitionsAreWatchedWhileKindsAreMissing, and not otherwise. Changes of
// other groups cause no query of discovery.
func TestDefinitionsAreWatchedWhileKindsAreMissing(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		requests := func() int { return len(c.Requests(definitions)) }
		fleettest.Declare(t, cc, fleettest.Owner("two"), fleettest.Target("a", "ConfigMap"))
		time.Sleep(time.Hour)
		require.Zero(t, requests(), "every kind is served")

		calls, _ := declareGadgets(t, c, cc)
		require.NotZero(t, requests())
		status, err := cc.Cluster(c.Key()).Status()
		require.NoError(t, err)
		require.Equal(t, 2, status.Watches, "that of the definitions is nobody's")
		require.Equal(t, 1, status.Informers)

		other := gadgetDefinition()
		other.SetName("widgets.other.example")
		require.NoError(t, unstructured.SetNestedField(other.Object, "other.example", "spec", "group"))
		require.NoError(t, unstructured.SetNestedField(other.Object, "Widget", "spec", "names", "kind"))
		require.NoError(t, unstructured.SetNestedField(other.Object, "widgets", "spec", "names", "plural"))
		calls.take(5 * time.Second)
		before := len(c.Requests(discoveries))
		require.NoError(t, c.Client().Create(t.Context(), other))
		calls.take(5 * time.Second)
		require.LessOrEqual(t, len(c.Requests(discoveries))-before, 1, "RetryInterval")

		require.NoError(t, c.Client().Create(t.Context(), gadgetDefinition()))
		calls.take(2 * time.Minute)
		before = requests()
		calls.take(2 * time.Hour)
		require.Equal(t, before, requests(), "nothing is missing any more")
	})
}

// TestHazardDefinitionsAreForbidden: kinds are then looked up every
// RetryInterval, and the refused watch is rarely repeated.
func TestHazardDefinitionsAreForbidden(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		heal := c.Fail(clustercachetest.Status(http.StatusForbidden), definitions)
		calls, watches := declareGadgets(t, c, cc)
		before := len(c.Requests(definitions))
		require.Empty(t, calls.take(time.Hour))
		require.LessOrEqual(t, len(c.Requests(definitions))-before, 2*25)

		require.NoError(t, c.Client().Create(t.Context(), gadgetDefinition()))
		require.Equal(t, one, calls.take(13*time.Second))
		require.True(t, watches.last("Gadget").Synced)
		heal()
	})
}

// TestHazardDefinitionsChangeAllTheTime: a server that reports changes without
// an end is queried about twice a second.
func TestHazardDefinitionsChangeAllTheTime(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		calls, _ := declareGadgets(t, c, cc)
		other := gadgetDefinition()
		other.SetName("others." + gadgets.Group)
		require.NoError(t, unstructured.SetNestedField(other.Object, "Other", "spec", "names", "kind"))
		require.NoError(t, unstructured.SetNestedField(other.Object, "others", "spec", "names", "plural"))
		require.NoError(t, c.Client().Create(t.Context(), other))
		before := len(c.Requests(discoveries))
		for n := range 1000 {
			other.SetAnnotations(map[string]string{"n": time.Duration(n).String()})
			require.NoError(t, c.Client().Update(t.Context(), other))
			time.Sleep(20 * time.Millisecond)
		}
		require.Empty(t, calls.take(0))
		require.LessOrEqual(t, len(c.Requests(discoveries))-before, 60)
	})
}

// TestGrantedRightIsUsedWithinASecond, with default options, if it was missing
// for up to a minute.
func TestGrantedRightIsUsedWithinASecond(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		calls, watches := ownersOf(t, cc), watchesOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		calls.take(time.Minute)
		for _, missing := range []time.Duration{time.Second, 10 * time.Second, 50 * time.Second} {
			heal := c.Fail(clustercachetest.Status(http.StatusForbidden), configMaps)
			require.Equal(t, one, calls.take(missing))
			heal()
			require.Equal(t, one, calls.take(time.Second), missing)
			require.True(t, watches.last("ConfigMap").Synced)
			require.NoError(t, cc.Cluster(c.Key()).Serving(&corev1.ConfigMap{}))
			calls.take(time.Minute)
		}
	})
}

// TestRevokedRightIsNoticedWithinStaleAfterAndASecond, with default options,
// though the server continues the watches that it authorized before and no
// object changes.
func TestRevokedRightIsNoticedWithinStaleAfterAndASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		calls, watches := ownersOf(t, cc), watchesOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		calls.take(time.Minute)
		for _, after := range []time.Duration{time.Second, 100 * time.Second, time.Hour} {
			time.Sleep(after)
			require.True(t, watches.last("ConfigMap").Synced, after)
			open := api.WatchingNow(fleettest.PathOf("ConfigMap"))
			api.FailWith(http.StatusForbidden, fleettest.PathOf("ConfigMap"))
			synctest.Wait()
			require.Equal(t, open, api.WatchingNow(fleettest.PathOf("ConfigMap")), "the server keeps them open")
			require.Equal(t, one, calls.take(cc.Options().StaleAfter+time.Second), after)
			require.Equal(t, "Forbidden", watches.last("ConfigMap").Reason)
			require.False(t, watches.last("ConfigMap").Synced)

			api.Heal()
			require.Equal(t, one, calls.take(10*time.Second), after)
		}
	})
}
