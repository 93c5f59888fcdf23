// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restarting_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/persist/bolt"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// operator is one process of an operator, without its own memory of another.
type operator struct {
	*clustercache.ClusterCache

	t       *testing.T
	metrics *prometheus.Registry
	cancel  context.CancelFunc
	done    chan error
	disk    *bolt.Store
}

// begin starts a process with the file of the one before.
func begin(t *testing.T, r resolver.Resolver, path string, change func(*clustercache.Options)) *operator {
	t.Helper()
	disk, err := bolt.Open(path, bolt.Options{
		Later:    true,
		OnDamage: func(why error) { require.NoError(t, why) },
	})
	require.NoError(t, err)
	o := &operator{
		t:       t,
		metrics: prometheus.NewRegistry(),
		done:    make(chan error, 1),
		disk:    disk,
	}
	options := clustercache.Options{
		Resolver:          r,
		Discover:          true,
		Logger:            logr.Discard(),
		MetricsRegisterer: o.metrics,
		Persist:           persist.Options{Store: disk},
	}
	if change != nil {
		change(&options)
	}
	o.ClusterCache, err = clustercache.New(options)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	go func() { o.done <- o.Start(ctx) }()

	return o
}

func (o *operator) end() {
	o.t.Helper()
	o.cancel()
	require.NoError(o.t, <-o.done)
	require.NoError(o.t, o.disk.Close())
}

// watch watches kinds in a cluster, and waits for them.
func (o *operator) watch(cluster client.ObjectKey, kinds ...client.Object) {
	o.t.Helper()
	for _, kind := range kinds {
		w, err := o.Cluster(cluster).Watch(o.t.Context(), kind)
		require.NoError(o.t, err)
		require.NoError(o.t, w.WaitForSync(o.t.Context()))
	}
}

// metric returns the sum of a metric.
func (o *operator) metric(name string) (sum float64) {
	o.t.Helper()
	families, err := o.metrics.Gather()
	require.NoError(o.t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// names returns the ConfigMaps of the cache, and their values.
func (o *operator) names(cluster client.ObjectKey) map[string]string {
	o.t.Helper()
	return namesIn(o.t, o.Cluster(cluster).Reader(), clustercache.CacheOnly)
}

func namesIn(t *testing.T, r client.Reader, opts ...client.ListOption) map[string]string {
	t.Helper()
	var l corev1.ConfigMapList
	require.NoError(t, r.List(t.Context(), &l, opts...))
	out := map[string]string{}
	for _, o := range l.Items {
		out[o.Name] = o.Data["color"]
	}
	return out
}

// kinds are those that the fleet's operator watches.
func kinds() []client.Object {
	return []client.Object{&corev1.ConfigMap{}, &appsv1.Deployment{}, &corev1.Namespace{}, &corev1.Pod{}}
}

// lists returns the lists that a cluster has received: streamed ones, and those
// in pages, which are of metadata unless the metric of lists counts them.
func lists(c *clustercachetest.Cluster) (streamed, paged int) {
	for _, r := range c.Requests() {
		switch {
		case r.Resource == "" || strings.Contains(r.Query, "fleetcache-history") ||
			strings.Contains(r.Query, "kube-system"):
		case r.Initial:
			streamed++
		case r.Verb == "list":
			paged++
		}
	}
	return streamed, paged
}

// TestRestartedFleetListsNothing: a fleet whose servers keep their histories is
// served again without a list of objects. One list of metadata per informer of
// a cluster that has changed shows what its watch has to bring.
func TestRestartedFleetListsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, path := clustercachetest.New(t, clustercachetest.Options{}), filepath.Join(t.TempDir(), "cache.db")
		const size = 25
		var clusters []*clustercachetest.Cluster
		for i := range size {
			var objects []client.Object
			for j := range 20 {
				objects = append(objects, fleettest.ColoredConfigMap(fmt.Sprint("c", j), "red"))
			}
			clusters = append(clusters, f.Add(fmt.Sprint("fleet/c", i), objects...))
		}
		first := begin(t, f.Resolver(), path, nil)
		for _, c := range clusters {
			first.watch(c.Key(), kinds()...)
		}
		synctest.Wait()
		first.end()

		changed, before := 0, 0
		for i, c := range clusters {
			streamed, paged := lists(c)
			before += streamed
			require.Zero(t, paged)
			if i%2 == 0 {
				continue
			}
			changed++
			require.NoError(t, c.Client().Create(t.Context(), fleettest.ColoredConfigMap("new", "green")))
			require.NoError(t, c.Client().Update(t.Context(), fleettest.ColoredConfigMap("c1", "blue")))
			require.NoError(t, c.Client().Delete(t.Context(), fleettest.ColoredConfigMap("c2", "")))
		}
		require.Equal(t, size*len(kinds()), before)

		second := begin(t, f.Resolver(), path, nil)
		defer second.end()
		began, after, metadata := time.Now(), 0, 0
		for _, c := range clusters {
			second.watch(c.Key(), kinds()...)
			require.Equal(t, namesIn(t, c.Client()), second.names(c.Key()), c.Key())
			streamed, paged := lists(c)
			after += streamed
			metadata += paged
		}
		require.Zero(t, after-before)
		require.Zero(t, second.metric("fleetcache_list_requests_total"))
		require.Equal(t, changed*len(kinds()), metadata)
		require.InDelta(t, size*len(kinds()), second.metric("fleetcache_restores_total"), 0)
		require.Zero(t, second.metric("fleetcache_persist_dropped_total"))
		t.Logf("%d informers of %d clusters: %d lists, %d of metadata, all read after %v of virtual time",
			size*len(kinds()), size, after-before, metadata, time.Since(began))
	})
}

// TestRestartBesideChangedClusters: each cluster's own proofs decide, and
// nothing wrong is ever delivered.
func TestRestartBesideChangedClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, path := clustercachetest.New(t, clustercachetest.Options{}), filepath.Join(t.TempDir(), "cache.db")
		clusters := map[string]*clustercachetest.Cluster{}
		for _, name := range []string{"same", "other", "restored", "forgetful", "hung"} {
			clusters[name] = f.Add("fleet/"+name, fleettest.ColoredConfigMap("kept", "red"))
		}
		snapshot := clusters["restored"].Snapshot()
		undone := fleettest.ColoredConfigMap("undone", "red")
		require.NoError(t, clusters["restored"].Client().Create(t.Context(), undone))
		first := begin(t, f.Resolver(), path, nil)
		for _, c := range clusters {
			first.watch(c.Key(), &corev1.ConfigMap{})
		}
		synctest.Wait()
		first.end()

		clusters["other"].NewEpoch(fleettest.ColoredConfigMap("others", "blue"))
		clusters["restored"].Rollback(snapshot)
		require.NoError(t, clusters["forgetful"].Client().Delete(t.Context(), fleettest.ColoredConfigMap("kept", "")))
		clusters["forgetful"].Compact()
		clusters["hung"].Hang()

		second := begin(t, f.Resolver(), path, nil)
		defer second.end()
		for name, c := range clusters {
			if name != "hung" {
				before, _ := lists(c)
				second.watch(c.Key(), &corev1.ConfigMap{})
				require.Equal(t, namesIn(t, c.Client()), second.names(c.Key()), name)
				after, _ := lists(c)
				require.Equal(t, name != "same", after-before > 0, name)
			}
		}
		_, err := second.Cluster(clusters["hung"].Key()).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		err = second.Cluster(clusters["hung"].Key()).Reader().List(t.Context(), &corev1.ConfigMapList{},
			clustercache.CacheOnly)
		require.Error(t, err, "a cluster that has not proved its identity shows nothing")
		clusters["hung"].Connect()
		second.watch(clusters["hung"].Key(), &corev1.ConfigMap{})
		require.Equal(t, map[string]string{"kept": "red"}, second.names(clusters["hung"].Key()))
	})
}

// TestSecretsAreKeptOnlyIfAskedFor: they would be on the disk.
func TestSecretsAreKeptOnlyIfAskedFor(t *testing.T) {
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, path := clustercachetest.New(t, clustercachetest.Options{}), filepath.Join(t.TempDir(), "cache.db")
			c := f.Add("fleet/a", &corev1.Secret{ObjectMeta: fleettest.ObjectMeta("s")})
			for i := range 2 {
				o := begin(t, f.Resolver(), path, func(o *clustercache.Options) { o.Persist.Secrets = asked })
				o.watch(c.Key(), &corev1.Secret{}, &corev1.ConfigMap{})
				restored := 0.0
				switch {
				case i == 1 && asked:
					restored = 2
				case i == 1:
					restored = 1
				}
				require.InDelta(t, restored, o.metric("fleetcache_restores_total"), 0)
				o.end()
			}
		})
	}
}

// TestKindsThatAreLeftOutAreListed, and the others are not.
func TestKindsThatAreLeftOutAreListed(t *testing.T) {
	configMap, secret := schema.GroupKind{Kind: "ConfigMap"}, schema.GroupKind{Kind: "Secret"}
	for restored, options := range map[float64]persist.Options{
		2: {Secrets: true},
		1: {Except: []schema.GroupKind{secret}},
		0: {Except: []schema.GroupKind{configMap}},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, path := clustercachetest.New(t, clustercachetest.Options{}), filepath.Join(t.TempDir(), "cache.db")
			c := f.Add("fleet/a", &corev1.Secret{ObjectMeta: fleettest.ObjectMeta("s")})
			for i := range 2 {
				o := begin(t, f.Resolver(), path, func(o *clustercache.Options) {
					options.Store = o.Persist.Store
					o.Persist = options
				})
				o.watch(c.Key(), &corev1.Secret{}, &corev1.ConfigMap{})
				require.InDelta(t, restored*float64(i), o.metric("fleetcache_restores_total"), 0)
				o.end()
			}
		})
	}
}

// TestRolledOutOperatorKeepsItsCaches: the process before has the file when the
// next one begins, and ends once that is ready.
func TestRolledOutOperatorKeepsItsCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, path := clustercachetest.New(t, clustercachetest.Options{}), filepath.Join(t.TempDir(), "cache.db")
		c := f.Add("fleet/a", &corev1.ConfigMap{ObjectMeta: fleettest.ObjectMeta("kept")})
		before := begin(t, f.Resolver(), path, nil)
		before.watch(c.Key(), &corev1.ConfigMap{})
		for range 3 {
			next := begin(t, f.Resolver(), path, nil)
			next.watch(c.Key(), &corev1.ConfigMap{})
			require.Zero(t, next.metric("fleetcache_restores_total"))
			time.Sleep(10 * time.Minute)
			require.Zero(t, next.metric("fleetcache_persist_failures_total"), "it waits, and fails at nothing")
			before.end()
			time.Sleep(2 * persist.DefaultInterval)
			require.NotZero(t, next.metric("fleetcache_persist_written_bytes_total"))
			before = next
		}
		before.end()
		last := begin(t, f.Resolver(), path, nil)
		last.watch(c.Key(), &corev1.ConfigMap{})
		require.InDelta(t, 1, last.metric("fleetcache_restores_total"), 0)
		last.end()
	})
}

// TestUselessPersistOptionsAreErrors: each names its field.
func TestUselessPersistOptionsAreErrors(t *testing.T) {
	for field, o := range map[string]persist.Options{
		"Persist.Store":    {Secrets: true},
		"Persist.Interval": {Store: &bolt.Store{}, Interval: time.Millisecond},
		"Persist.Key":      {Store: &bolt.Store{}, Key: []byte("short")},
		"Persist.Only":     {Store: &bolt.Store{}, Only: []schema.GroupKind{{Kind: "Secret"}}},
		"Persist.Except":   {Store: &bolt.Store{}, Except: []schema.GroupKind{{Group: "apps"}}},
	} {
		_, err := clustercache.New(clustercache.Options{Resolver: fleettest.NewDirectory(), Persist: o})
		var typed *clustercache.OptionError
		require.ErrorAs(t, err, &typed)
		require.Equal(t, field, typed.Field)
	}
	_, err := clustercache.New(clustercache.Options{
		Resolver: fleettest.NewDirectory(),
		Persist:  persist.Options{Store: (*bolt.Store)(nil)},
	})
	require.ErrorContains(t, err, "Persist.Store")
}
