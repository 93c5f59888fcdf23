// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package mistakes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// patience is how long a beginner waits for an explanation.
const patience = 5 * time.Second

// mistake is one of a first hour.
type mistake struct {
	// says is what the error that make returns, or a log line, has to say: all
	// of these, in any order.
	says []string
	make func(b *beginner) error
}

func says(texts ...string) []string { return texts }

// mistakes has one row for each mistake.
var mistakes = []map[string]mistake{
	ofOptions, ofLifecycle, ofWatching, ofReading, ofDeclaring, ofControllers, ofTheFleet, ofAccess,
}

// beginner is one who makes a mistake in a fleet of one cluster that works, and
// of another one, the hub.
type beginner struct {
	*testing.T

	fleet   *clustercachetest.Fleet
	cc      *clustercache.ClusterCache
	cluster *clustercachetest.Cluster
	hub     *clustercachetest.Cluster
	options clustercache.Options // with which another cache can be made
}

var (
	key    = fleettest.Key("a")
	gadget = schema.GroupVersionKind{Group: "shop.example", Version: "v1", Kind: "Gadget"}
)

func ignore[T any](T) {}

func (b *beginner) sync(obj client.Object) {
	b.Helper()
	w, err := b.cc.Cluster(key).Watch(b.Context(), obj)
	require.NoError(b, err)
	require.NoError(b, w.WaitForSync(b.Context()))
}

// TestFirstMistakeIsExplained makes each mistake once. It is explained within
// the patience, and two more periods of patience later has still one
// explanation.
func TestFirstMistakeIsExplained(t *testing.T) {
	rows := 0
	for _, part := range mistakes {
		for name, mistake := range part {
			rows++
			t.Run(name, func(t *testing.T) {
				book := &fleettest.Logbook{}
				withBeginner(t, book, func(b *beginner) { explained(b, book, mistake) })
			})
		}
	}
	require.GreaterOrEqual(t, rows, 45)
}

func explained(b *beginner, book *fleettest.Logbook, m mistake) {
	b.Helper()
	began := time.Now()
	err := m.make(b)
	require.LessOrEqual(b, time.Since(began), patience)
	if err != nil {
		for _, text := range m.says {
			require.ErrorContains(b, err, text)
		}
		return
	}
	time.Sleep(patience - time.Since(began))
	synctest.Wait()
	require.Equal(b, 1, book.Count(m.says...), book.Lines)
	time.Sleep(2 * patience)
	require.Equal(b, 1, book.Count(m.says...), book.Lines)
}

// alone makes the cache that runs give up the cluster, so that what happens to
// it is logged once.
func (b *beginner) alone() {
	b.cc.Cluster(key).Disengage()
	synctest.Wait()
}

// started makes another cache with the options, and runs it.
func (b *beginner) started() *clustercache.ClusterCache {
	b.Helper()
	b.options.MetricsRegisterer = prometheus.NewRegistry()
	return fleettest.Start(b.T, b.options)
}

func withBeginner(t *testing.T, book *fleettest.Logbook, test func(b *beginner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := clustercachetest.New(t, clustercachetest.Options{})
		c, hub := f.Add("fleet/a"), f.Add("hub")
		o := fleettest.Silent(f.Resolver())
		o.Logger = book.Logger()
		cc := fleettest.Start(t, o)
		require.NoError(t, cc.Cluster(c.Key()).Engage())
		synctest.Wait()
		test(&beginner{
			T:       t,
			fleet:   f,
			cc:      cc,
			cluster: c,
			hub:     hub,
			options: o,
		})
	})
}

// deaf is an Aware that engages no cluster.
type deaf struct{}

func (deaf) Engage(context.Context, string, cluster.Cluster) error { return errors.New("not now") }

// TestClusterHasOneNameInTheLog fails in one way after the other about a cluster
// without a namespace: nothing else of the log finds the lines of "/weak".
func TestClusterHasOneNameInTheLog(t *testing.T) {
	book := &fleettest.Logbook{}
	withBeginner(t, book, func(b *beginner) {
		weak := b.fleet.Add("weak")
		require.NoError(b, b.cc.Cluster(weak.Key()).Engage())
		clusters := multicluster.New(b.cc, multicluster.Options{})
		provider := multicluster.NewProvider[string, deaf](clusters, multicluster.ProviderOptions{})
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- provider.Start(ctx, deaf{}) }()
		time.Sleep(patience)
		weak.Fail(clustercachetest.Status(403), clustercachetest.Resource("configmaps"))
		_, err := b.cc.Cluster(weak.Key()).Watch(b.Context(), &corev1.ConfigMap{})
		require.NoError(b, err)
		time.Sleep(patience)
		cancel()
		require.NoError(b, <-done)
		require.NotZero(b, book.Count("could not be engaged", `"cluster"="weak"`), book.Lines)
		require.Equal(b, 1, book.Count("Informer refused", `"informer"="weak `), book.Lines)
		require.Zero(b, book.Count(`"/weak`), book.Lines)
	})
}

// TestReleaseIsNoInterruption gives up a cluster in the ordinary way.
func TestReleaseIsNoInterruption(t *testing.T) {
	book := &fleettest.Logbook{}
	withBeginner(t, book, func(b *beginner) {
		w, err := b.cc.Cluster(key).Watch(b.Context(), &corev1.ConfigMap{})
		require.NoError(b, err)
		require.NoError(b, w.WaitForSync(b.Context()))
		b.cc.Cluster(key).Disengage()
		w.ReleaseCluster()
		time.Sleep(10 * time.Minute)
		require.Zero(b, book.Count("interrupted"), book.Lines)
	})
}

// TestReadOfWhatCannotBeWatchedIsNoMistake: the API server answers it.
func TestReadOfWhatCannotBeWatchedIsNoMistake(t *testing.T) {
	book := &fleettest.Logbook{}
	withBeginner(t, book, func(b *beginner) {
		for range 2 {
			_ = b.cc.Cluster(key).Reader().Get(b.Context(), fleettest.Key("x"), kindOf("Binding"),
				clustercache.AutoWatch)
			time.Sleep(patience)
		}
		require.Zero(b, book.Count("Kind is not watched"), book.Lines)
	})
}

// TestRefusalIsAnErrorOnceForEachChange has a watch refused, and then permitted
// and refused again.
func TestRefusalIsAnErrorOnceForEachChange(t *testing.T) {
	book := &fleettest.Logbook{}
	withBeginner(t, book, func(b *beginner) {
		for i := range 2 {
			heal := b.cluster.Fail(clustercachetest.Status(403), clustercachetest.Resource("configmaps"))
			w, err := b.cc.Cluster(key).Watch(b.Context(), &corev1.ConfigMap{})
			require.NoError(b, err)
			time.Sleep(10 * time.Minute)
			require.Equal(b, i+1, book.Count(`"msg"="Informer refused" "error"=`), book.Lines)
			heal()
			time.Sleep(30 * time.Minute)
			require.True(b, w.HasSynced())
			w.Release()
			time.Sleep(10 * time.Minute)
		}
	})
}
