// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// reconnecting is a cluster behind a proxy over HTTP/2, with five watches, whose
// requests are recorded.
type reconnecting struct {
	cc    *clustercache.ClusterCache
	api   *fleettest.API
	proxy *fleettest.Front

	mu    sync.Mutex // protects asked
	asked []string   // what is not asked for an informer, in order
}

func newReconnecting(t *testing.T) *reconnecting {
	t.Helper()
	r := &reconnecting{api: fleettest.NewAPI(t, "uid-a")}
	r.api.Put("one", "1", nil)
	r.proxy = fleettest.NewFront(t, true, r.api)
	r.proxy.Answer = func(req *http.Request) http.HandlerFunc {
		if path := req.URL.Path; path == identity || !strings.HasPrefix(path, "/api/") {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.asked = append(r.asked, path)
		}
		return nil
	}
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), r.proxy.Config())
	r.cc = fleettest.Start(t, fleettest.Silent(d))
	for _, o := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Service{}, &corev1.Pod{},
		&corev1.ServiceAccount{}} {
		w, err := r.cc.Cluster(fleettest.Key("a")).Watch(t.Context(), o)
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
	}
	time.Sleep(37 * time.Second)

	return r
}

const identity = "/api/v1/namespaces/kube-system"

// outage takes the server away for a time, or only cuts its connections, and
// returns what is asked until all watches are back, and for some seconds after.
func (r *reconnecting) outage(t *testing.T, away time.Duration) []string {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	r.asked = nil
	r.mu.Unlock()

	if away > 0 {
		r.proxy.Net.Down()
		time.Sleep(away)
		r.proxy.Net.Up()
	} else {
		r.proxy.Reset()
	}
	require.Eventually(t, func() bool { return len(r.api.Fake.Watched()) == 5 }, time.Minute, 10*time.Millisecond)
	time.Sleep(4 * time.Second)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.asked
}

// TestReconnectAsksNoMoreThanItNeeds: after a cut, the identity is asked for
// once, by a query that follows the answer to the first watch, which shows that
// the server lives, too. A server that was away is asked for its health and its
// identity before the cluster is connected, and for its identity again over the
// connection that has answered a watch. Another process may answer after each of
// the two, and so is asked for its version. Kinds are not asked for. A query that
// is made from time to time may be due in one of several outages, of whose times
// some are random.
func TestReconnectAsksNoMoreThanItNeeds(t *testing.T) {
	for name, tc := range map[string]struct {
		away time.Duration
		want []string
	}{
		"cut":            {want: []string{identity, "/version"}},
		"outage of 5 s":  {away: 5 * time.Second, want: []string{"/readyz", identity, "/version", identity}},
		"outage of 20 s": {away: 20 * time.Second, want: []string{"/readyz", identity, "/version", identity}},
		"long outage": {away: 10 * time.Minute, want: []string{"/readyz", identity, "/version", identity,
			"/api", "/apis"}},
	} {
		t.Run(name, func(t *testing.T) {
			as, other := 0, []string(nil)
			for range 7 {
				synctest.Test(t, func(t *testing.T) {
					asked := newReconnecting(t).outage(t, tc.away)
					if slices.Equal(slices.Sorted(slices.Values(asked)), slices.Sorted(slices.Values(tc.want))) {
						as++
					} else {
						other = asked
					}
				})
			}
			require.GreaterOrEqual(t, as, 4, "%v instead of %v", other, tc.want)
		})
	}
}

// TestHazardKindsOfAnUpgradedServer: a server that returns from a short outage as
// another version may serve other kinds, and is asked for them.
func TestHazardKindsOfAnUpgradedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReconnecting(t)
		r.api.Upgrade("v1.37.1")
		require.Contains(t, r.outage(t, 5*time.Second), "/apis")
		require.Equal(t, "v1.37.1", fleettest.Status(t, r.cc).ServerVersion)
	})
}

// TestHazardKindAppearsDuringAnOutage: a watch that waits for a kind is bound
// once the cluster is back, however short the outage was, and so is one that
// begins then.
func TestHazardKindAppearsDuringAnOutage(t *testing.T) {
	widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	for name, waits := range map[string]bool{"waits": true, "begins": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReconnecting(t)
				watch := func() *clustercache.Watch {
					w, err := r.cc.Cluster(fleettest.Key("a")).Watch(t.Context(), clustercache.Kind(widget))
					require.NoError(t, err)
					return w
				}
				var w *clustercache.Watch
				if waits {
					w = watch()
					time.Sleep(5 * time.Minute)
					require.False(t, w.HasSynced())
				}
				r.proxy.Net.Down()
				time.Sleep(5 * time.Second)
				r.api.Fake.Register(fakeapi.Kind{Group: widget.Group, Versions: []string{"v1"}, Kind: widget.Kind})
				r.proxy.Net.Up()
				require.NoError(t, r.cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
				connected := time.Now()
				if !waits {
					w = watch()
				}
				require.Eventually(t, w.HasSynced, time.Minute, time.Millisecond)
				require.Less(t, time.Since(connected), time.Second)
			})
		})
	}
}

// TestHazardCheckOfKindsIsDueDuringAnOutage: it is made up for when the cluster
// is back.
func TestHazardCheckOfKindsIsDueDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReconnecting(t)
		time.Sleep(7*time.Minute + 30*time.Second - 37*time.Second) // the check is due after 8 to 10 minutes
		found := false
		for range 4 {
			asked := r.outage(t, 50*time.Second)
			found = found || strings.Contains(strings.Join(asked, " "), "/apis")
		}
		require.True(t, found)
	})
}
