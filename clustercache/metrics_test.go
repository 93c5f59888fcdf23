// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// perCluster is the maximum number of series for one cluster.
const perCluster = 11

func TestMetricsOfRemovedClustersEndAndInstancesDoNotClash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		o := fleettest.Silent(d)
		o.MetricsRegisterer = registry
		one := fleettest.Start(t, o)
		synctest.Wait() // the first one registered gets the name
		two := fleettest.Start(t, fleettest.SilentWith(fleettest.NewDirectory(), registry))
		require.NoError(t, fleettest.Watch(t, one).WaitForSync(t.Context()))
		time.Sleep(time.Minute)
		problems, err := testutil.GatherAndLint(registry)
		require.NoError(t, err)
		require.Empty(t, problems)
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP fleetcache_cluster_up Whether the cluster is connected.
# TYPE fleetcache_cluster_up gauge
fleetcache_cluster_up{cache="default",cluster="fleet/a"} 1
# HELP fleetcache_cached_objects Objects in the cache.
# TYPE fleetcache_cached_objects gauge
fleetcache_cached_objects{cache="default",cluster="fleet/a"} 1
# HELP fleetcache_connects_total Connections made, the first one included.
# TYPE fleetcache_connects_total counter
fleetcache_connects_total{cache="default",cluster="fleet/a"} 1
`), "fleetcache_cluster_up", "fleetcache_cached_objects", "fleetcache_connects_total"))
		require.LessOrEqual(t, fleettest.SeriesOf(t, registry, "fleet/a"), perCluster)

		require.NoError(t, two.Cluster(fleettest.Key("b")).Engage())
		synctest.Wait()
		require.Positive(t, fleettest.SeriesOf(t, registry, "fleet/b"))
		two.Cluster(fleettest.Key("b")).Disengage()
		synctest.Wait()
		require.Zero(t, fleettest.SeriesOf(t, registry, "fleet/b"))
	})
}

var updateDocs = flag.Bool("docs.update", false, "write docs/metrics.md instead of comparing it")

// expiring returns a config whose token contains its expiry.
func expiring(api *fleettest.API) *rest.Config {
	config := api.Config()
	part := base64.RawURLEncoding.EncodeToString
	config.BearerToken = part([]byte(`{"alg":"none"}`)) +
		"." + part(fmt.Appendf(nil, `{"exp":%d}`, time.Now().Add(240*time.Hour).Unix())) + ".x"
	return config
}

// alone runs the only replica of a group until the test ends.
func alone(t *testing.T) *sharding.Sharding {
	t.Helper()
	hub := &rest.Config{Host: "http://hub", Transport: fakeapi.New(fakeapi.Options{}).Transport()}
	s, err := sharding.New(hub, sharding.Options{
		Namespace: "default",
		Name:      "operator",
		Identity:  "operator-0",
	})
	require.NoError(t, err)
	ended := make(chan error)
	go func() { ended <- s.Start(context.Background()) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close(context.Background()))
		require.NoError(t, <-ended)
	})
	return s
}

// busy runs a ClusterCache that exports every metric, and returns its registry.
func busy(t *testing.T, change func(*clustercache.Options)) (*clustercache.ClusterCache, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	api, dead := fleettest.NewAPI(t, "uid-a"), fleettest.NewAPI(t, "uid-b")
	dead.Die()
	api.Put("one", "1", nil)
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), expiring(api))
	d.Set(fleettest.Key("b"), dead.Config())
	o := fleettest.SilentWith(d, registry)
	o.Discover, o.Sharding = true, alone(t)
	if change != nil {
		change(&o)
	}
	cc := fleettest.Start(t, o)
	time.Sleep(time.Minute) // until it owns the clusters
	require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
	time.Sleep(time.Minute)
	return cc, registry
}

// TestMetricsAreDocumented compares docs/metrics.md with the registered
// metrics.
func TestMetricsAreDocumented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := busy(t, nil)
		families, err := all.Gather()
		require.NoError(t, err)
		problems, err := testutil.GatherAndLint(all)
		require.NoError(t, err)
		require.Empty(t, problems)
		_, fleet := busy(t, func(o *clustercache.Options) { o.FleetMetricsOnly = true })
		without, err := fleet.Gather()
		require.NoError(t, err)

		const path = "../docs/metrics.md"
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		marked := regexp.MustCompile(`(?s)(<!-- begin:[^\n]*-->\n).*(<!-- end -->)`)
		require.Regexp(t, marked, string(text))
		want := marked.ReplaceAllStringFunc(string(text), func(old string) string {
			parts := marked.FindStringSubmatch(old)
			return parts[1] + table(families, without) + parts[2]
		})
		if *updateDocs {
			require.NoError(t, os.WriteFile(path, []byte(want), 0o644)) //nolint:gosec // a page of the documentation
			text = []byte(want)
		}
		require.Equal(t, want, string(text),
			"go test ./clustercache -run TestMetricsAreDocumented -docs.update writes it anew")
		for _, desc := range described(all) {
			require.Contains(t, want, "`"+desc+"`",
				"no cluster of this test has it: the test has to be made to show it")
		}
	})
}

// described returns the names of the metrics that the registry's collectors
// describe.
func described(r *prometheus.Registry) []string {
	descs := make(chan *prometheus.Desc, 1000)
	r.Describe(descs)
	close(descs)
	var names []string
	for d := range descs {
		names = append(names, regexp.MustCompile(`fqName: "([^"]*)"`).FindStringSubmatch(d.String())[1])
	}
	return names
}

func table(families, fleet []*dto.MetricFamily) string {
	remains := map[string]bool{}
	for _, f := range fleet {
		remains[f.GetName()] = true
	}
	var b strings.Builder
	b.WriteString("\n| Metric | Type | Labels | Meaning |\n| --- | --- | --- | --- |\n")
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			if l.GetName() != "cache" {
				labels = append(labels, l.GetName())
			}
		}
		help := f.GetHelp()
		if strings.Join(labels, "") == "cluster" && remains[f.GetName()] {
			help += map[bool]string{true: " (worst)", false: " (sum)"}[strings.HasSuffix(f.GetName(), "_seconds")]
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()),
			strings.Join(labels, ", "), help)
	}
	return b.String() + "\n"
}

// TestReasonOfAClusterIsASeries: one for each cluster that is not well, and
// none for another.
func TestReasonOfAClusterIsASeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, registry := busy(t, nil)
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP fleetcache_cluster_reason Always 1. The label is why the cluster is not connected, or what fails while it is.
# TYPE fleetcache_cluster_reason gauge
fleetcache_cluster_reason{cache="default",cluster="fleet/b",reason="Unreachable"} 1
`), "fleetcache_cluster_reason"))
	})
}

func TestFleetMetricsOnlyLeavesNoSeriesOfACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, registry := busy(t, func(o *clustercache.Options) { o.FleetMetricsOnly = true })
		require.Zero(t, fleettest.SeriesOf(t, registry, "fleet/a"))
		require.Zero(t, fleettest.SeriesOf(t, registry, "fleet/b"))
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP fleetcache_cached_objects Objects in the cache.
# TYPE fleetcache_cached_objects gauge
fleetcache_cached_objects{cache="default",cluster=""} 1
# HELP fleetcache_clusters Known clusters by phase.
# TYPE fleetcache_clusters gauge
fleetcache_clusters{cache="default",phase="Connecting"} 0
fleetcache_clusters{cache="default",phase="Degraded"} 0
fleetcache_clusters{cache="default",phase="Disconnected"} 1
fleetcache_clusters{cache="default",phase="Gone"} 0
fleetcache_clusters{cache="default",phase="Pending"} 0
fleetcache_clusters{cache="default",phase="Ready"} 1
fleetcache_clusters{cache="default",phase="Refused"} 0
`), "fleetcache_cached_objects", "fleetcache_clusters"))
	})
}

// TestThousandClustersHaveAtMostTwelveThousandSeries counts the series of
// clusters that are all connected, watched and have credentials that expire.
func TestThousandClustersHaveAtMostTwelveThousandSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clusters := repeat.Times(1000)
		registry := prometheus.NewPedanticRegistry()
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		config := expiring(api)
		d := fleettest.NewDirectory()
		for i := range clusters {
			d.Set(fleettest.Key(fmt.Sprint("c", i)), config)
		}
		o := fleettest.SilentWith(d, registry)
		o.Discover = true
		cc := fleettest.Start(t, o)
		for i := range clusters {
			w, err := cc.Cluster(fleettest.Key(fmt.Sprint("c", i))).Watch(t.Context(), &corev1.ConfigMap{})
			require.NoError(t, err)
			require.NoError(t, w.WaitForSync(t.Context()))
		}
		families, err := registry.Gather()
		require.NoError(t, err)
		series := 0
		for _, f := range families {
			for _, m := range f.GetMetric() {
				series++
				if h := m.GetHistogram(); h != nil {
					series += len(h.GetBucket()) + 2 // +Inf and the sum; the count is the one above
					for _, l := range m.GetLabel() {
						require.NotEqual(t, "cluster", l.GetName(), f.GetName())
					}
				}
			}
		}
		t.Logf("%d clusters have %d series", clusters, series)
		require.LessOrEqual(t, series, 12*clusters)
		require.Equal(t, perCluster, fleettest.SeriesOf(t, registry, "fleet/c7"))
	})
}
