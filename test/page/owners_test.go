// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build chromium

package page_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// road is the network of a replica. Once it is cut, nothing arrives any more.
type road struct {
	next http.RoundTripper
	cut  atomic.Bool
}

func (r *road) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.cut.Load() {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	return r.next.RoundTrip(request)
}

// join starts a replica, which ends with the test.
func join(t *testing.T, hub *testenv.Cluster, identity string) (*sharding.Sharding, *road) {
	t.Helper()
	config, r := hub.Config(), &road{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		r.next = next
		return r
	})
	s, err := sharding.New(config, sharding.Options{
		Namespace:     "default",
		Name:          "operator",
		Identity:      identity,
		Slots:         16,
		LeaseDuration: 30 * time.Second, // the page is seen without an owner for 10 s
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Start(t.Context()) }()
	t.Cleanup(func() {
		r.cut.Store(false)
		require.NoError(t, <-ended)
	})
	return s, r
}

// TestPhoneShowsWhoOwnsAClusterAndWhyNoneDoes has a real hub, and two replicas,
// one of which is cut off.
func TestPhoneShowsWhoOwnsAClusterAndWhyNoneDoes(t *testing.T) {
	hub := testenv.Start(t, 1)[0]
	share, _ := join(t, hub, "operator-0")
	other, road := join(t, hub, "operator-1")
	fleet := clustercachetest.New(t, clustercachetest.Options{
		Cache: clustercache.Options{ProbeTimeout: time.Minute, Sharding: share},
	})
	var keys []client.ObjectKey
	for _, name := range []string{"fleet/east", "fleet/north", "fleet/south", "fleet/west"} {
		keys = append(keys, fleet.Add(name).Key())
	}
	other.SetClusters(keys)
	theirs := func() (n int) {
		for _, key := range keys {
			if other.Owns(key) {
				n++
			}
		}
		return n
	}
	web := httptest.NewServer(fleet.ClusterCache().DebugHandler())
	t.Cleanup(web.Close)
	require.Eventually(t, func() bool { return theirs() > 0 && theirs() < len(keys) },
		time.Minute, 100*time.Millisecond)
	b := launch(t)
	b.show(phone, "light")
	b.open(web.URL + "/?refresh=2")
	require.Equal(t, phone.width, width(b))
	require.Regexp(t,
		`(?s)Replicas 2.*operator-0\s+active.*owns \d, stands by for 0.*Clusters of other replicas`, b.text())

	road.cut.Store(true)
	lost := regexp.MustCompile(`(?s)without an owner.*silent.*operator-1 has it, and has not renewed its Lease`)
	reload(t, b, lost.MatchString)
	require.Equal(t, phone.width, width(b))
	back := regexp.MustCompile(`without an owner|operator-1`)
	reload(t, b, func(text string) bool { return !back.MatchString(text) }) // taken over
}

// reload has the page load itself again until it shows what is expected.
func reload(t *testing.T, b *browser, shows func(text string) bool) {
	t.Helper()
	begin := time.Now()
	for text := b.text(); !shows(text); text = b.text() {
		require.Less(t, time.Since(begin), 90*time.Second, text)
		b.loaded(func() {}) // by itself
	}
}
