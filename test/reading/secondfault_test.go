// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// TestHazardSecondFaultRevivesWhatWasRefused: list and watch are forbidden for
// five seconds, or one of them, and then fail in another way. The right has not
// returned, and so no read shows what was cached before: it is live, or fails.
func TestHazardSecondFaultRevivesWhatWasRefused(t *testing.T) {
	type cluster = *clustercachetest.Cluster
	failing := func(err error, matches ...clustercachetest.Match) func(cluster) func() {
		return func(c cluster) func() { return c.Fail(err, matches...) }
	}
	configMaps := []clustercachetest.Match{
		clustercachetest.Verb("list", "watch"),
		clustercachetest.Resource("configmaps"),
	}
	ready := func(r clustercachetest.Request) bool { return r.Path == "/readyz" }
	broken := errors.New("broken")
	seconds := map[string]func(cluster) (heal func()){
		"503":             failing(clustercachetest.Status(http.StatusServiceUnavailable), configMaps...),
		"429":             failing(clustercachetest.Status(http.StatusTooManyRequests), configMaps...),
		"500":             failing(clustercachetest.Status(http.StatusInternalServerError), configMaps...),
		"401 once":        failing(clustercachetest.Status(http.StatusUnauthorized), clustercachetest.Verb("watch")),
		"reset":           failing(broken, configMaps...),
		"all 503":         failing(clustercachetest.Status(http.StatusServiceUnavailable)),
		"all reset":       failing(broken),
		"readyz 500":      failing(clustercachetest.Status(http.StatusInternalServerError), ready),
		"hang":            func(c cluster) func() { c.Hang(); return c.Connect },
		"disconnect":      func(c cluster) func() { c.Disconnect(); return c.Connect },
		"disconnect once": func(c cluster) func() { c.Reset(); return func() {} },
	}
	for first, verbs := range map[string][]string{
		"list and watch": {"list", "watch"},
		"watch":          {"watch"},
		"list":           {"list"},
	} {
		for second, strike := range seconds {
			t.Run(first+", then "+second, func(t *testing.T) {
				o := clustercachetest.Options{}
				o.Cache.Informers.PagedLists = verbs[0] == "list" // a streamed one is a watch
				fleettest.WithFakeCluster(t, o, func(t *testing.T, f *clustercachetest.Fleet,
					c cluster, cc *clustercache.ClusterCache) {
					afterSecondFault(t, f, c, cc, verbs, strike)
				})
			})
		}
	}
}

func afterSecondFault(t *testing.T, f *clustercachetest.Fleet, c *clustercachetest.Cluster,
	cc *clustercache.ClusterCache, verbs []string, strike func(*clustercachetest.Cluster) func()) {
	t.Helper()
	c.Store(fleettest.ColoredConfigMap("one", "blue"))
	w, err := cc.Cluster(c.Key()).Watch(t.Context(), &corev1.ConfigMap{})
	require.NoError(t, err)
	f.WaitSynced()
	c.Disconnect()
	c.Store(fleettest.ColoredConfigMap("one", "red"))
	if verbs[0] == "list" {
		c.Compact() // so that the watch cannot continue without
	}
	lift := c.Fail(clustercachetest.Status(http.StatusForbidden), clustercachetest.Verb(verbs...),
		clustercachetest.Resource("configmaps"))
	c.Connect()
	time.Sleep(5 * time.Second)
	forbidden := func() bool {
		_, err := colorOf(t, cc, c.Key(), clustercache.CacheOnly)
		return apierrors.IsForbidden(err)
	}
	require.True(t, forbidden())

	heal := strike(c)
	reads := repeat.Times(200)
	for range reads {
		time.Sleep(200 * time.Second / time.Duration(reads))
		for _, opts := range [][]client.GetOption{
			{clustercache.PreferCache},
			{clustercache.AutoWatch},
			{clustercache.MaxStaleness(time.Hour)},
			{clustercache.CacheOnly},
			{clustercache.CacheOnly, clustercache.MaxStaleness(time.Hour)},
		} {
			color, err := colorOf(t, cc, c.Key(), opts...)
			if err == nil {
				require.Equal(t, "red", color, "%v", opts)
			}
		}
		if w.Status().Informer.Synced && forbidden() {
			require.True(t, apierrors.IsForbidden(w.Status().LastError), "%v", w.Status().LastError)
			require.Equal(t, "Forbidden", clustercache.ReasonOf(w.Status().LastError))
			_, synced, err := cc.Cluster(c.Key()).WatchAndRead(t.Context(), fleettest.ConfigMap)
			require.NoError(t, err)
			require.False(t, synced)
		}
	}

	lift()
	heal()
	time.Sleep(2 * time.Minute)
	color, err := colorOf(t, cc, c.Key(), clustercache.CacheOnly)
	require.NoError(t, err)
	require.Equal(t, "red", color)
	require.NoError(t, w.Status().LastError)
}

func colorOf(
	t *testing.T, cc *clustercache.ClusterCache, cluster client.ObjectKey, opts ...client.GetOption,
) (string, error) {
	t.Helper()
	got := &corev1.ConfigMap{}
	err := cc.Cluster(cluster).Reader().Get(t.Context(),
		client.ObjectKeyFromObject(fleettest.ColoredConfigMap("one", "")), got,
		opts...)
	return got.Data["color"], err
}
