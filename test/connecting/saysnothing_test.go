// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// everything answers all requests alike.
func everything(answer http.HandlerFunc) fleettest.AnswerFunc {
	return func(*http.Request) http.HandlerFunc { return answer }
}

// forbidding answers the identity query with 403, and the rest with next.
func forbidding(next fleettest.AnswerFunc) fleettest.AnswerFunc {
	return func(r *http.Request) http.HandlerFunc {
		if strings.HasPrefix(r.URL.Path, "/api/v1/namespaces") {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusForbidden)
				_, _ = w.Write(
					[]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
			}
		}
		return next(r)
	}
}

// served leaves all requests to the server.
func served(*http.Request) http.HandlerFunc { return nil }

// aHostile runs a test in a bubble with a cluster whose server answers as set.
func aHostile(t *testing.T, first fleettest.AnswerFunc,
	test func(t *testing.T, h *fleettest.API, cc *clustercache.ClusterCache)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		h.Set(first)
		d.Set(fleettest.Key("a"), h.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(time.Minute)
		test(t, h, cc)
		h.Set(nil)
	})
}

// requireSaysWhy requires that the cluster is not Ready, and reports the
// reason.
func requireSaysWhy(t *testing.T, cc *clustercache.ClusterCache, reason string) {
	t.Helper()
	s := fleettest.Status(t, cc)
	require.NotEqual(t, status.PhaseReady, s.Phase)
	require.Equal(t, reason, s.Reason)
	require.ErrorIs(t, s.LastError, clustercache.ErrNotKubernetes)
}

// TestHazardServerThatSaysNothingIsReady: a gateway answers everything,
// including health, with a success without content. The identity proof fails,
// and the status reports that within 90 s, for as long as it lasts.
func TestHazardServerThatSaysNothingIsReady(t *testing.T) {
	for name, nothing := range fleettest.Nothings() {
		t.Run(name, func(t *testing.T) {
			t.Run("from the first connect on", func(t *testing.T) {
				aHostile(t, everything(nothing), func(t *testing.T, h *fleettest.API,
					cc *clustercache.ClusterCache) {
					requireSaysWhy(t, cc, "NotKubernetes")
					h.Set(served)
					time.Sleep(time.Minute)
					require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
				})
			})
			aHostile(t, served, func(t *testing.T, h *fleettest.API, cc *clustercache.ClusterCache) {
				require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
				uid, phases := fleettest.Status(t, cc).UID, recordPhases(t, cc)
				h.Set(everything(nothing))
				time.Sleep(90 * time.Second)
				for range repeat.Times(30) {
					requireSaysWhy(t, cc, "NotKubernetes")
					time.Sleep(time.Minute)
				}
				h.Set(served)
				time.Sleep(30 * time.Second)
				s := fleettest.Status(t, cc)
				require.Equal(t, status.PhaseReady, s.Phase)
				require.Empty(t, s.Reason)
				require.NoError(t, s.LastError)
				require.Equal(t, uid, s.UID)
				require.Zero(t, s.HistoryResets)
				require.Equal(t, []status.Phase{status.PhaseDegraded, status.PhaseReady}, phases())
			})
		})
	}
}

// recordPhases returns the phases in the cluster's events since the call.
func recordPhases(t *testing.T, cc *clustercache.ClusterCache) func() []status.Phase {
	t.Helper()
	feed := fleettest.Follow(t, cc)
	synctest.Wait()
	for len(feed.Events) > 0 {
		<-feed.Events
	}
	var mu sync.Mutex
	return func() (out []status.Phase) {
		mu.Lock()
		defer mu.Unlock()
		synctest.Wait()
		for len(feed.Events) > 0 {
			out = append(out, (<-feed.Events).Phase)
		}
		return out
	}
}

// TestHazardPresumedClusterSaysNothing: the server does not identify itself, so
// that nothing is proven, and answers everything else with a success without
// content.
func TestHazardPresumedClusterSaysNothing(t *testing.T) {
	for name, nothing := range fleettest.Nothings() {
		t.Run(name, func(t *testing.T) {
			t.Run("from the first connect on", func(t *testing.T) {
				aHostile(t, forbidding(everything(nothing)), func(t *testing.T, h *fleettest.API,
					cc *clustercache.ClusterCache) {
					requireSaysWhy(t, cc, "NotKubernetes")
					h.Set(forbidding(served))
					time.Sleep(time.Minute)
					require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
					require.Contains(t, fleettest.Status(t, cc).UID, "presumed-")
				})
			})
			for way, broken := range map[string]fleettest.AnswerFunc{
				"everything":          everything(nothing),
				"all but kube-system": forbidding(everything(nothing)),
			} {
				t.Run(way, func(t *testing.T) {
					aHostile(t, forbidding(served), func(t *testing.T, h *fleettest.API,
						cc *clustercache.ClusterCache) {
						require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
						uid := fleettest.Status(t, cc).UID
						require.Contains(t, uid, "presumed-")
						h.Set(broken)
						time.Sleep(2 * time.Minute)
						for range repeat.Times(20) {
							requireSaysWhy(t, cc, "NotKubernetes")
							time.Sleep(time.Minute)
						}
						h.Set(forbidding(served))
						time.Sleep(30 * time.Second)
						s := fleettest.Status(t, cc)
						require.Equal(t, status.PhaseReady, s.Phase)
						require.Empty(t, s.Reason)
						require.Equal(t, uid, s.UID)
						require.Zero(t, s.HistoryResets)
					})
				})
			}
		})
	}
}

// TestHazardPresumedIdentityIsForEver: the right to read the identity is
// granted later. From then on the identity is the server's own, and another
// cluster behind the same address is detected.
func TestHazardPresumedIdentityIsForEver(t *testing.T) {
	aHostile(t, forbidding(served), func(t *testing.T, h *fleettest.API, cc *clustercache.ClusterCache) {
		require.Contains(t, fleettest.Status(t, cc).UID, "presumed-")
		time.Sleep(time.Hour)
		require.Contains(t, fleettest.Status(t, cc).UID, "presumed-")
		require.Zero(t, fleettest.Status(t, cc).HistoryResets)
		h.Set(served)
		time.Sleep(6 * time.Minute)
		s := fleettest.Status(t, cc)
		require.NotContains(t, s.UID, "presumed-")
		require.Equal(t, status.PhaseReady, s.Phase)
		require.Equal(t, 1, s.HistoryResets)
		time.Sleep(time.Hour)
		require.Equal(t, 1, fleettest.Status(t, cc).HistoryResets)
	})
}
