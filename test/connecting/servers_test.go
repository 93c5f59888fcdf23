// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardForbiddenEverythingIsReady: a server that forbids every request has
// not shown that it is a cluster that knows us.
func TestHazardForbiddenEverythingIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		api.FailWith(http.StatusForbidden, "/")
		d.Set(fleettest.Key("a"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(time.Minute)
		s := fleettest.Status(t, cc)
		require.Equal(t, status.PhaseDisconnected, s.Phase)
		require.Equal(t, "Forbidden", s.Reason)
		require.True(t, apierrors.IsForbidden(s.LastError), "%v", s.LastError)
		require.Empty(t, s.UID)

		// One authorized answer is sufficient: discovery.
		api.Respond(func(r *http.Request) int {
			if !strings.HasPrefix(r.URL.Path, "/api") || strings.Contains(r.URL.Path, "kube-system") {
				return http.StatusForbidden
			}
			return 0
		})
		time.Sleep(time.Minute)
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		require.Contains(t, fleettest.Status(t, cc).UID, "presumed-")
	})
}

// TestHazardPublicPathsAreTakenForAnAuthorizedAnswer: health and version are
// public. A server that answers only these treats us as anonymous, or is no API
// server at this path.
func TestHazardPublicPathsAreTakenForAnAuthorizedAnswer(t *testing.T) {
	for code, reason := range map[int]string{http.StatusForbidden: "Forbidden", http.StatusNotFound: "NotFound"} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
				api.Respond(func(r *http.Request) int {
					switch r.URL.Path {
					case "/readyz", "/livez", "/healthz", "/version":
						return 0
					}
					return code
				})
				d.Set(fleettest.Key("a"), api.Config())
				cc := fleettest.Start(t, fleettest.Silent(d))
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				time.Sleep(time.Minute)
				s := fleettest.Status(t, cc)
				require.Equal(t, status.PhaseDisconnected, s.Phase)
				require.NotEmpty(t, s.Reason)
				require.Error(t, s.LastError)

				api.Heal()
				time.Sleep(time.Minute)
				require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
				require.Equal(t, "uid-a", fleettest.Status(t, cc).UID)
			})
		})
	}
}

// TestHazardBusyServerIsDead: a server over its limit answers 429, and serves
// watches. It stays connected, its watches are not cut, new informers succeed,
// and five seconds after the last 429 everything is up to date.
func TestHazardBusyServerIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		api.Put("one", "1", nil)
		d.Set(fleettest.Key("a"), api.Config())
		d.Set(fleettest.Key("b"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		w := fleettest.Watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		time.Sleep(30 * time.Second)
		connects := fleettest.Status(t, cc).Connects

		api.Respond(func(r *http.Request) int {
			if r.URL.Query().Get("watch") == "true" {
				return 0
			}
			return http.StatusTooManyRequests
		})
		require.NoError(t, cc.Cluster(fleettest.Key("b")).Engage()) // connects for the first time
		for range 60 {
			time.Sleep(time.Second)
			require.True(t, fleettest.Status(t, cc).Connected)
		}
		require.Equal(t, 1, api.Watching(fleettest.PathOf("ConfigMap")))
		api.Put("two", "2", nil)
		api.Heal()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, connects, fleettest.Status(t, cc).Connects)
		require.Zero(t, fleettest.Status(t, cc).HistoryResets)
		require.Equal(t, []string{"uid-a"}, origins(t, cc))
		b, err := cc.Cluster(fleettest.Key("b")).Status()
		require.NoError(t, err)
		require.True(t, b.Connected)
	})
}

// upgradable returns a watched cluster behind a proxy, its server, and the
// server that it is upgraded to.
func upgradable(t *testing.T) (cc *clustercache.ClusterCache, proxy *fleettest.Front, api, upgraded *fleettest.API) {
	t.Helper()
	api, upgraded = fleettest.NewAPI(t, "uid-a"), fleettest.NewAPI(t, "uid-a")
	upgraded.Upgrade("v1.37.1")
	proxy = fleettest.NewFront(t, false, api)
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), proxy.Config())
	cc = fleettest.Start(t, fleettest.Silent(d))
	require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
	return cc, proxy, api, upgraded
}

// TestHazardServerVersionIsForEver: a new version is reported soon after a
// server was upgraded in place.
func TestHazardServerVersionIsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, a, _, upgraded := upgradable(t)
		require.Equal(t, "v1.36.0", fleettest.Status(t, cc).ServerVersion)
		a.Move(upgraded)
		time.Sleep(7 * time.Minute)
		require.Equal(t, "v1.37.1", fleettest.Status(t, cc).ServerVersion)
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
	})
}

// TestHazardServerIsUpgradedAndSlow: an upgraded server that cannot return its
// version while it starts is queried again soon.
func TestHazardServerIsUpgradedAndSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, a, api, upgraded := upgradable(t)
		upgraded.FailWith(http.StatusInternalServerError, "/version")
		api.Die()
		a.Move(upgraded)
		time.Sleep(70 * time.Second)
		upgraded.Heal()
		time.Sleep(110 * time.Second)
		require.Equal(t, "v1.37.1", fleettest.Status(t, cc).ServerVersion)
	})
}

// TestHazardRefusedInformerSitsOut: the first success after a failure wakes the
// informers of a cluster that was never disconnected. There are many, since the
// pause of a single one may have ended by then.
func TestHazardRefusedInformerSitsOut(t *testing.T) {
	const informers = 10
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		o := fleettest.Silent(d)
		o.FailureThreshold = 10_000 // a server that refuses is probed twice a second
		cc := fleettest.Start(t, o)
		for i := range informers {
			w := fleettest.Watch(t, cc, client.MatchingLabels{"i": strconv.Itoa(i)})
			require.NoError(t, w.WaitForSync(t.Context()))
		}
		api.Die()
		time.Sleep(10 * time.Minute) // pauses have grown to their limit
		api.Live()
		api.Put("one", "1", nil)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		require.Equal(t, informers, api.Watching(fleettest.PathOf("ConfigMap")))
		require.True(t, fleettest.Status(t, cc).Connected)
	})
}
