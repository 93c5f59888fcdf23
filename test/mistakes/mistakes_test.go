// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package mistakes

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/fleet"
	"github.com/fleetcache/fleetcache/clustercache/watchset"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// patience is how long a beginner waits for an explanation.
const patience = 5 * time.Second

// beginner is one who makes a mistake in a fleet of one cluster that works.
type beginner struct {
	*testing.T

	cc      *clustercache.ClusterCache
	cluster *clustercachetest.Cluster
	options clustercache.Options // with which another cache can be made
}

var (
	key    = fleettest.Key("a")
	gadget = schema.GroupVersionKind{Group: "shop.example", Version: "v1", Kind: "Gadget"}
)

func ignore[T any](T) {}

// mistakes are those of a first hour. Each is explained within the patience, by
// the error that make returns or by a log line, with the text.
var mistakes = map[string]struct {
	text string
	make func(b *beginner) error
}{
	"no resolver": {"Resolver: required", func(b *beginner) error {
		b.options.Resolver = nil
		_, err := clustercache.New(b.options)
		return err
	}},
	"not a number": {"QPS: not a number", func(b *beginner) error {
		b.options.QPS = math.NaN()
		_, err := clustercache.New(b.options)
		return err
	}},
	"negative interval": {"ProbeInterval: negative", func(b *beginner) error {
		b.options.ProbeInterval = -1
		_, err := clustercache.New(b.options)
		return err
	}},
	"interval without unit": {"a number without a unit counts nanoseconds", func(b *beginner) error {
		b.options.ProbeInterval = 10
		_, err := clustercache.New(b.options)
		return err
	}},
	"cache that is never started": {"until its Start is called", func(b *beginner) error {
		cc, err := clustercache.New(b.options)
		require.NoError(b, err)
		return cc.Engage(key)
	}},
	"read before start": {"cluster cache not started", func(b *beginner) error {
		cc, err := clustercache.New(b.options)
		require.NoError(b, err)
		return cc.Reader(key).Get(b.Context(), client.ObjectKey{Name: "x"}, &corev1.Node{})
	}},
	"second start": {"started already", func(b *beginner) error { return b.cc.Start(b.Context()) }},
	"two caches of one name": {"set Options.Name", func(b *beginner) error {
		b.options.MetricsRegisterer = prometheus.NewRegistry()
		for range 2 {
			cc, err := clustercache.New(b.options)
			require.NoError(b, err)
			fleettest.Run(b.T, cc)
		}
		return nil
	}},
	"kind that the scheme lacks": {"no kind is registered", func(b *beginner) error {
		b.options.Scheme = runtime.NewScheme()
		cc, err := clustercache.New(b.options)
		require.NoError(b, err)
		_, err = cc.Watch(b.Context(), key, &corev1.Pod{})
		return err
	}},
	"watch of nil": {"obj is nil", func(b *beginner) error {
		_, err := b.cc.Watch(b.Context(), key, nil)
		return err
	}},
	"typo in the name of a cluster": {"unknown cluster", func(b *beginner) error {
		return b.cc.Reader(client.ObjectKey{Namespace: "fleet", Name: "aa"}).
			Get(b.Context(), client.ObjectKey{Name: "x"}, &corev1.Node{})
	}},
	"kind that is not served": {"no matches for kind", func(b *beginner) error {
		w, err := b.cc.Watch(b.Context(), key, clustercache.Kind(gadget))
		require.NoError(b, err)
		return w.WaitForSync(b.Context())
	}},
	"kind that is forbidden": {"forbidden", func(b *beginner) error {
		b.cluster.Fail(clustercachetest.Status(403), clustercachetest.Resource("configmaps"))
		w, err := b.cc.Watch(b.Context(), key, &corev1.ConfigMap{})
		require.NoError(b, err)
		return w.WaitForSync(b.Context())
	}},
	"read of the cache without a watch": {"not watched", func(b *beginner) error {
		return b.cc.Reader(key).List(b.Context(), &corev1.ConfigMapList{}, clustercache.CacheOnly)
	}},
	"field without an index": {"not supported by the cache", func(b *beginner) error {
		b.sync(&corev1.ConfigMap{})
		return b.cc.Reader(key).List(b.Context(), &corev1.ConfigMapList{}, clustercache.CacheOnly,
			client.MatchingFields{"data.color": "red"})
	}},
	"subscription that is not started": {"call its Start", func(b *beginner) error {
		_, err := b.cc.SubscribeClusters(ignore)
		return err
	}},
	"subscription to objects that is not started": {"call its Start", func(b *beginner) error {
		_, err := b.cc.Subscribe(clustercache.ObjectSelection{}, ignore)
		return err
	}},
	"events of what nothing watches": {"set ObjectSelection.Watch", func(b *beginner) error {
		s, err := b.cc.Subscribe(clustercache.ObjectSelection{Kinds: []client.Object{&corev1.Secret{}}}, ignore)
		require.NoError(b, err)
		s.Start()
		b.Cleanup(s.Stop)
		return nil
	}},
	"watch set without a handler": {"set Options.Handle", func(b *beginner) error {
		set, err := watchset.New(b.cc, watchset.Options{})
		require.NoError(b, err)
		b.Cleanup(set.Stop)
		_, err = set.Replace(b.Context(), map[string]watchset.Entry{"all": {
			Cluster: key,
			GVK:     fleettest.ConfigMap,
		}})
		return err
	}},
	"negative option of a read of the fleet": {"Concurrency: must not be negative", func(b *beginner) error {
		var failed error
		for _, err := range fleet.List(b.Context(), b.cc, &corev1.Pod{}, &fleet.Options{Concurrency: -1}) {
			failed = errors.Join(failed, err)
		}
		return failed
	}},
	"read of a fleet without clusters": {"set Discover", func(b *beginner) error {
		b.cc.Disengage(key)
		synctest.Wait()
		var failed error
		var total fleet.Total
		for _, err := range fleet.List(b.Context(), b.cc, &corev1.Pod{}, &total) {
			failed = errors.Join(failed, err)
		}
		require.False(b, total.Complete())
		return failed
	}},
	"handler that is nil": {"handler: required", func(b *beginner) error {
		_, err := b.cc.Subscribe(clustercache.ObjectSelection{}, nil)
		return err
	}},
	"watch without a kind": {"needs Kinds or Selections", func(b *beginner) error {
		_, err := b.cc.Subscribe(clustercache.ObjectSelection{Watch: true}, ignore)
		return err
	}},
}

func (b *beginner) sync(obj client.Object) {
	b.Helper()
	w, err := b.cc.Watch(b.Context(), key, obj)
	require.NoError(b, err)
	require.NoError(b, w.WaitForSync(b.Context()))
}

// TestFirstMistakeIsExplained makes each mistake once, and two more periods of
// patience later has still one explanation.
func TestFirstMistakeIsExplained(t *testing.T) {
	for name, mistake := range mistakes {
		t.Run(name, func(t *testing.T) {
			book := &fleettest.Logbook{}
			withBeginner(t, book, func(b *beginner) {
				ctx, cancel := context.WithTimeout(b.Context(), patience)
				defer cancel()
				began := time.Now()
				err := mistake.make(b)
				require.LessOrEqual(t, time.Since(began), patience)
				require.NoError(t, ctx.Err())
				if err != nil {
					require.ErrorContains(t, err, mistake.text)
					return
				}
				time.Sleep(patience - time.Since(began))
				require.Equal(t, 1, book.Count(mistake.text), book.Lines)
				time.Sleep(2 * patience)
				require.Equal(t, 1, book.Count(mistake.text), book.Lines)
			})
		})
	}
}

func withBeginner(t *testing.T, book *fleettest.Logbook, test func(b *beginner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := clustercachetest.New(t, clustercachetest.Options{})
		c := f.Add("fleet/a")
		o := fleettest.Silent(f.Resolver())
		o.Logger = book.Logger()
		cc := fleettest.Start(t, o)
		require.NoError(t, cc.Engage(c.Key()))
		synctest.Wait()
		test(&beginner{T: t, cc: cc, cluster: c, options: o})
	})
}

// TestReleaseIsNoInterruption gives up a cluster in the ordinary way.
func TestReleaseIsNoInterruption(t *testing.T) {
	book := &fleettest.Logbook{}
	withBeginner(t, book, func(b *beginner) {
		w, err := b.cc.Watch(b.Context(), key, &corev1.ConfigMap{})
		require.NoError(b, err)
		require.NoError(b, w.WaitForSync(b.Context()))
		b.cc.Disengage(key)
		w.ReleaseCluster()
		time.Sleep(10 * time.Minute)
		require.Zero(b, book.Count("interrupted"), book.Lines)
	})
}

// TestRefusalIsAnErrorOnceForEachChange has a watch refused, and then permitted
// and refused again.
func TestRefusalIsAnErrorOnceForEachChange(t *testing.T) {
	book := &fleettest.Logbook{}
	withBeginner(t, book, func(b *beginner) {
		for i := range 2 {
			heal := b.cluster.Fail(clustercachetest.Status(403), clustercachetest.Resource("configmaps"))
			w, err := b.cc.Watch(b.Context(), key, &corev1.ConfigMap{})
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
