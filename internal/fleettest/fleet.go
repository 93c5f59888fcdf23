// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// WithFakeCluster runs a test in virtual time with a fleet of one full fake
// cluster.
func WithFakeCluster(t *testing.T, o clustercachetest.Options,
	test func(t *testing.T, f *clustercachetest.Fleet, c *clustercachetest.Cluster, cc *clustercache.ClusterCache)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := clustercachetest.New(t, o)
		c := f.Add("fleet/a")
		cc := f.ClusterCache()
		require.NoError(t, cc.Cluster(c.Key()).Engage())
		f.WaitSynced()
		test(t, f, c, cc)
	})
}

// ColoredConfigMap returns a ConfigMap with one value.
func ColoredConfigMap(name, color string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data: map[string]string{"color": color}}
}

// Status returns the status of the cluster a.
func Status(t *testing.T, cc *clustercache.ClusterCache) status.Cluster {
	t.Helper()
	s, err := cc.Cluster(Key("a")).Status()
	require.NoError(t, err)
	return s
}

// Brisk sets intervals of a second, and time-outs that suffice on a loaded
// machine.
func Brisk(r resolver.Resolver) clustercache.Options {
	return clustercache.Options{
		Resolver:      r,
		UserAgent:     Agent,
		ProbeInterval: time.Second,
		ProbeTimeout:  5 * time.Second,
		RetryInterval: time.Second,
		MaxBackoff:    time.Second,
	}
}

// ConfigMap is the kind of the objects of an API.
var ConfigMap = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// Key returns the key of a cluster.
func Key(name string) client.ObjectKey { return client.ObjectKey{Namespace: "fleet", Name: name} }

// Start runs a ClusterCache until the test ends.
func Start(t *testing.T, o clustercache.Options) *clustercache.ClusterCache {
	t.Helper()
	if o.Logger.GetSink() == nil {
		o.Logger = logr.FromSlogHandler(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	cc, err := clustercache.New(o)
	require.NoError(t, err)
	Run(t, cc)
	return cc
}

// Run runs something, such as a ClusterCache, until the test ends or the
// returned function is called, which waits for its end.
func Run(t testing.TB, r manager.Runnable) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = r.Start(ctx)
	}()
	stop = func() {
		t.Helper()
		cancel()
		<-ended
		require.NoError(t, err)
	}
	t.Cleanup(stop)
	return stop
}

// ObjectMeta names an object of the namespace default.
func ObjectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name}
}

// SilentWith is Silent with metrics.
func SilentWith(r resolver.Resolver, registry prometheus.Registerer) clustercache.Options {
	o := Silent(r)
	o.MetricsRegisterer = registry
	return o
}

// SeriesOf returns the number of metric series of a cluster.
func SeriesOf(t *testing.T, registry prometheus.Gatherer, cluster string) int {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	n := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "cluster" && l.GetValue() == cluster {
					n++
				}
			}
		}
	}
	return n
}

// Silent returns options that keep the test output short; times are virtual.
func Silent(r resolver.Resolver) clustercache.Options {
	return clustercache.Options{Resolver: r, Logger: logr.FromSlogHandler(slog.DiscardHandler)}
}

// OneCluster is the usual set-up of a bubble: a connected cluster with two
// objects.
func OneCluster(t *testing.T, set ...func(*clustercache.Options)) (*clustercache.ClusterCache, *API, *Directory) {
	t.Helper()
	api := NewAPI(t, "uid-a")
	api.Put("one", "1", map[string]any{"app": "x"})
	api.Put("two", "2", map[string]any{"app": "y"})
	d := NewDirectory()
	d.Set(Key("a"), api.Config())
	o := Silent(d)
	o.Indexes = []clustercache.Index{{GVK: ConfigMap, Field: "app",
		Values: func(o client.Object) []string { return []string{o.GetLabels()["app"]} }}}
	for _, set := range set {
		set(&o)
	}
	cc := Start(t, o)
	require.NoError(t, cc.Cluster(Key("a")).Engage())
	synctest.Wait()
	return cc, api, d
}

// Get reads the object one of the cluster a.
func Get(t *testing.T, cc *clustercache.ClusterCache, opts ...client.GetOption) error {
	t.Helper()
	return cc.Cluster(Key("a")).Reader().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"},
		&corev1.ConfigMap{}, opts...)
}

// Watch watches the ConfigMaps of the cluster a.
func Watch(t *testing.T, cc *clustercache.ClusterCache, opts ...client.ListOption) *clustercache.Watch {
	t.Helper()
	w, err := cc.Cluster(Key("a")).Watch(t.Context(), &corev1.ConfigMap{}, opts...)
	require.NoError(t, err)
	return w
}

// Synced watches the ConfigMaps of the cluster a, and waits until they are
// cached.
func Synced(t *testing.T, cc *clustercache.ClusterCache, _ *API) {
	t.Helper()
	require.NoError(t, Watch(t, cc).WaitForSync(t.Context()))
}

// Disconnect caches the ConfigMaps of the cluster a, and takes its server away.
func Disconnect(t *testing.T, cc *clustercache.ClusterCache, api *API) {
	t.Helper()
	Synced(t, cc, api)
	api.Die()
	time.Sleep(45 * time.Second)
	synctest.Wait()
}

// Subscriptions returns the number of subscriptions to events, as in the
// metrics.
func Subscriptions(t *testing.T, cc *clustercache.ClusterCache) int {
	t.Helper()
	registry, ok := cc.Options().MetricsRegisterer.(prometheus.Gatherer)
	require.True(t, ok)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "fleetcache_event_subscribers" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	require.Fail(t, "no such metric")

	return 0
}
