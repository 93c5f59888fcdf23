// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wants

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/restmap"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

var configMaps = Selection{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}}

// site is a set with the cluster that it belongs to.
type site struct {
	*Set

	fake      *fakeapi.Server
	asked     atomic.Int32 // requests of discovery
	adding    func()       // called once, when indexes are added
	connected atomic.Bool
	bound     []Selection
	emptied   atomic.Int32
}

// newSite returns a site that is not connected. It ends with the test.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{fake: fakeapi.New(fakeapi.Options{})}
	through := s.fake.Transport()
	discover := func(r *http.Request) (*http.Response, error) {
		s.asked.Add(1)
		return through.RoundTrip(r)
	}
	endpoint := informerpool.Endpoint{Client: &http.Client{Transport: through}, URL: "http://cluster", Epoch: "one"}
	pool, err := informerpool.New(informerpool.Options{
		Source: informerpool.FromREST(func(context.Context, types.NamespacedName) (informerpool.Endpoint, error) {
			return endpoint, nil
		}),
	})
	require.NoError(t, err)
	timers := timetable.NewTimers()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		timers.Run(ctx)
	}()
	s.Set = New(Config{
		Name:           "cluster",
		Logger:         logr.Discard(),
		Context:        ctx,
		Pool:           pool,
		Mapper:         restmap.NewTable().NewMapper(discover, endpoint.URL, restmap.Options{}),
		Timers:         timers,
		LookUp:         func(job func()) { go job() },
		RequestTimeout: time.Minute,
		RetryInterval:  time.Minute,
		IdleTimeout:    time.Hour,
		Connected:      s.connected.Load,
		Epoch:          func() informerpool.Epoch { return endpoint.Epoch },
		AddIndexes: func(*informerpool.Lease, schema.GroupVersionKind) {
			if add := s.adding; add != nil {
				s.adding = nil
				add()
			}
		},
		Indexed:   func(schema.GroupVersionKind, string) bool { return false },
		Observed:  func() bool { return false },
		OnChanged: func(Selection, bool) {},
		OnBound:   func(w *Want) { s.bound = append(s.bound, w.Selection) },
		OnEmpty:   func() { s.emptied.Add(1) },
	})
	t.Cleanup(func() {
		s.Close(context.Canceled)
		cancel()
		<-ended
		require.NoError(t, pool.Close(context.Background()))
	})

	return s
}

// TestWantIsBoundWhenTheClusterConnects: what is wanted of a cluster that is
// not connected waits, and all who want the same share one informer.
func TestWantIsBoundWhenTheClusterConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.Acquire(configMaps)
		require.Same(t, w, s.Acquire(configMaps))
		synctest.Wait()
		require.Nil(t, w.Lease())
		require.Empty(t, s.Index.Of(configMaps.GVK))

		s.connected.Store(true)
		s.Kinds.MapNow()
		synctest.Wait()
		require.Equal(t, []Selection{configMaps}, s.bound)
		require.Equal(t, []*Want{w}, s.Index.Of(configMaps.GVK))
		require.True(t, w.Lease().HasSynced())

		s.Release(w, (*informerpool.Lease).Release)
		require.Equal(t, 1, s.References(w))
		require.Zero(t, s.emptied.Load())
		s.Release(w, (*informerpool.Lease).Release)
		require.EqualValues(t, 1, s.emptied.Load())
		require.Nil(t, s.Find(configMaps))
	})
}

// TestHazardReadsKeepAClusterForEver: what only reads want is released when it
// was not read for a while, and does not count as wanted before.
func TestHazardReadsKeepAClusterForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.connected.Store(true)
		w := s.Keep(configMaps)
		time.Sleep(59 * time.Minute)
		require.Same(t, w, s.Keep(configMaps))
		require.Equal(t, 1, s.References(w))
		require.False(t, s.Any())

		time.Sleep(59 * time.Minute)
		require.Same(t, w, s.Find(configMaps))
		time.Sleep(2 * time.Minute)
		require.Nil(t, s.Find(configMaps))
		require.EqualValues(t, 1, s.emptied.Load())
	})
}

// TestHazardForgottenClusterIsWanted: once a cluster is being forgotten, no
// want of its set would ever be served.
func TestHazardForgottenClusterIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.Acquire(configMaps)
		_, closed := s.CloseIfEmpty()
		require.False(t, closed)
		s.Release(w, (*informerpool.Lease).Release)
		_, closed = s.CloseIfEmpty()
		require.True(t, closed)
		require.Nil(t, s.Acquire(configMaps))
		require.Nil(t, s.Keep(configMaps))
	})
}

// TestHazardKindsAreNotCheckedAgainAfterAPause: how a kind is served is checked
// periodically also if nothing was wanted when a check was due.
func TestHazardKindsAreNotCheckedAgainAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.connected.Store(true)
		w := s.Acquire(configMaps)
		synctest.Wait()
		s.Release(w, (*informerpool.Lease).Release)
		time.Sleep(2 * remapInterval)

		s.Acquire(configMaps)
		synctest.Wait()
		before := s.asked.Load()
		time.Sleep(remapInterval + time.Second)
		require.Greater(t, s.asked.Load(), before)
	})
}

// TestHazardKindIsServedOtherwiseWhileAWantIsBound: discovery is read again, and
// what it says of the kind changes, between the look at it and the moment at
// which the want is found among those of the kind. A worker that binds the want
// by the newer one comes too late.
func TestHazardKindIsServedOtherwiseWhileAWantIsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.connected.Store(true)
		define := func(clusterScoped bool) {
			s.fake.Register(fakeapi.Kind{
				Group:         "example.com",
				Kind:          "Foo",
				Versions:      []string{"v1"},
				Resource:      "foos",
				Singular:      "foo",
				ClusterScoped: clusterScoped,
			})
		}
		define(false)
		foos := Selection{GVK: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Foo"}}
		s.Acquire(foos)
		synctest.Wait()
		require.Len(t, s.bound, 1)

		bound := make(chan struct{})
		s.adding = func() {
			define(true)
			s.adding = func() { <-bound }
			s.Kinds.RemapNow()
			synctest.Wait()
		}
		foos.Namespace = "default"
		w := s.Acquire(foos)
		close(bound)
		synctest.Wait()
		require.False(t, w.Mapping().Namespaced)
		require.Empty(t, w.Lease().Key().Namespace)
	})
}

// TestSelectionsThatMeanTheSameAreEqual: selectors are compared by what they
// select, and one that selects nothing is refused.
func TestSelectionsThatMeanTheSameAreEqual(t *testing.T) {
	selected := func(options ...client.ListOption) (Selection, error) {
		o := (&client.ListOptions{}).ApplyOptions(options)
		return Select(configMaps.GVK, o)
	}
	one, err := selected(client.MatchingLabels{"a": "1", "b": "2"})
	require.NoError(t, err)
	parsed, err := labels.Parse("b in (2), a=1")
	require.NoError(t, err)
	other, err := selected(client.MatchingLabelsSelector{Selector: parsed})
	require.NoError(t, err)
	require.Equal(t, one, other)
	require.Positive(t, one.Compare(configMaps))

	_, err = selected(client.MatchingLabelsSelector{Selector: labels.Nothing()})
	require.ErrorIs(t, err, errSelectsNothing)
}
