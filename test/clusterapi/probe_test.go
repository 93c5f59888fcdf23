// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// wrongToken answers requests that carry the token with 401.
func wrongToken(f *fleettest.API, token string) {
	f.FailIf(http.StatusUnauthorized, func(r *http.Request) bool {
		return r.Header.Get("Authorization") == "Bearer "+token
	})
}

// quietly changes the resolver's answer without reporting the change.
func quietly(d *fleettest.Directory, api *fleettest.API, token string) {
	config := api.Config()
	config.BearerToken = token
	d.SetQuietly(fleettest.Key("a"), config)
}

// caseUnauthorizedProbe: differs in that a 401 does not disconnect before the
// resolver was queried: if it has new credentials, no user notices the change.
func caseUnauthorizedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := fleettest.OneCluster(t)
		clusters := fleettest.Follow(t, cc)
		clusters.Wait(fleettest.Key("a"), events.Connected)
		asked := d.TimesAsked(fleettest.Key("a"))
		quietly(d, api, "renewed")
		wrongToken(api, "t")
		time.Sleep(probeInterval)
		synctest.Wait()
		require.Equal(t, asked+1, d.TimesAsked(fleettest.Key("a")))
		s := fleettest.Status(t, cc)
		require.Equal(t, status.PhaseReady, s.Phase)
		require.NoError(t, s.LastError)
		require.Equal(t, 1, s.Connects)
		require.Empty(t, clusters.Events, "nobody noticed")
		require.NoError(t, fleettest.Get(t, cc))
	})
}

func caseOneMissedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := fleettest.OneCluster(t)
		asked := d.TimesAsked(fleettest.Key("a"))
		api.FailWith(http.StatusBadRequest, "/")
		time.Sleep(probeInterval)
		synctest.Wait()
		s := fleettest.Status(t, cc)
		require.Equal(t, status.PhaseDegraded, s.Phase)
		require.True(t, s.Connected)
		require.Error(t, s.LastError)
		require.Equal(t, asked, d.TimesAsked(fleettest.Key("a")))
	})
}

func caseThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		o := fleettest.Silent(d)
		o.FailureThreshold = 5
		cc := fleettest.Start(t, o)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		synctest.Wait()
		api.FailWith(http.StatusServiceUnavailable, "/readyz")
		before := api.Count("get /readyz")
		for fleettest.Status(t, cc).Connected {
			require.LessOrEqual(t, api.Count("get /readyz")-before, 4)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		require.Equal(t, 5, api.Count("get /readyz")-before)
		s := fleettest.Status(t, cc)
		require.Equal(t, status.PhaseDisconnected, s.Phase)
		require.Equal(t, "Server", s.Reason)
	})
}

// caseSuccessResets: differs in that a degraded cluster is ready again after
// two good answers in a row, so that a cluster that answers only now and then
// does not flap. It stays connected either way.
func caseSuccessResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		o := fleettest.Silent(d)
		o.ResolveInterval = -1 // no refresh, which would prove a degraded cluster as two good probes do
		cc := fleettest.Start(t, o)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		synctest.Wait()
		probe := func() {
			t.Helper()
			n := api.Count("get /readyz")
			for n == api.Count("get /readyz") {
				time.Sleep(100 * time.Millisecond)
			}
			synctest.Wait()
		}
		for range 20 { // two missed probes, of the three that disconnect, and a good one
			api.FailWith(http.StatusServiceUnavailable, "/readyz")
			probe()
			probe()
			require.Equal(t, status.PhaseDegraded, fleettest.Status(t, cc).Phase)
			api.Heal()
			probe()
			require.Equal(t, status.PhaseDegraded, fleettest.Status(t, cc).Phase)
		}
		probe()
		s := fleettest.Status(t, cc)
		require.Equal(t, status.PhaseReady, s.Phase)
		require.NoError(t, s.LastError)
		require.Equal(t, 1, s.Connects)
	})
}

// probes returns the number of probes that a registry has counted.
func probes(t *testing.T, registry prometheus.Gatherer) (n float64) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "fleetcache_probes_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

func caseNoProbeWithoutConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		api := fleettest.NewAPI(t, "uid-a")
		d := fleettest.NewDirectory()
		cc := fleettest.Start(t, fleettest.SilentWith(d, registry))
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(time.Hour) // pending
		require.Zero(t, probes(t, registry))
		api.Die()
		d.Set(fleettest.Key("a"), api.Config())
		time.Sleep(time.Hour) // never connected
		require.Zero(t, probes(t, registry))
		api.Live()
		time.Sleep(time.Minute)
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		api.Die()
		time.Sleep(45 * time.Second)
		require.Equal(t, status.PhaseDisconnected, fleettest.Status(t, cc).Phase)
		before := probes(t, registry)
		require.Positive(t, before)
		time.Sleep(time.Hour)
		require.InDelta(t, before, probes(t, registry), 0)
	})
}

// caseNoEarlyProbe: differs in that any sign of life counts as a probe: a
// cluster that answers reads is not probed.
func caseNoEarlyProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := fleettest.OneCluster(t)
		before := api.Count("get /readyz")
		for range 7 {
			require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
			d.Set(fleettest.Key("a"), api.Config())
			_, err := cc.Cluster(fleettest.Key("a")).Client()
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		require.Equal(t, before, api.Count("get /readyz"))
		for range 100 {
			require.NoError(t, fleettest.Get(t, cc))
			time.Sleep(3 * time.Second)
		}
		require.Equal(t, before, api.Count("get /readyz"), "reads are life enough")
		time.Sleep(probeInterval)
		require.Equal(t, before+1, api.Count("get /readyz"), "without them it is probed after the rest of the interval")
	})
}

func caseHealthyIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		clusters := fleettest.Follow(t, cc)
		clusters.Wait(fleettest.Key("a"), events.Connected)
		before := api.Count("get /readyz")
		time.Sleep(time.Hour)
		probes := api.Count("get /readyz") - before
		require.GreaterOrEqual(t, probes, int(time.Hour/probeInterval)-1)
		require.LessOrEqual(t, probes, int(time.Hour/(probeInterval*4/5))+1)
		s := fleettest.Status(t, cc)
		require.Equal(t, status.PhaseReady, s.Phase)
		require.Equal(t, 1, s.Connects)
		require.LessOrEqual(t, time.Since(s.LastLife), probeInterval)
		require.Empty(t, clusters.Events)
	})
}

// caseUnauthorizedDisconnects: the resolver has no other credentials, so the
// first 401 disconnects the cluster. It stays known with its watch, and the
// event holds the time and the reason.
func caseUnauthorizedDisconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := fleettest.OneCluster(t)
		w := fleettest.Watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		clusters := fleettest.Follow(t, cc)
		clusters.Wait(fleettest.Key("a"), events.Connected)
		asked := d.TimesAsked(fleettest.Key("a"))
		wrongToken(api, "t")
		time.Sleep(probeInterval)
		synctest.Wait()
		e := clusters.Wait(fleettest.Key("a"), events.Disconnected)
		require.Equal(t, "Unauthorized", e.Reason)
		require.LessOrEqual(t, time.Since(e.Time), probeInterval)
		s := fleettest.Status(t, cc)
		require.Equal(t, status.PhaseDisconnected, s.Phase)
		require.Equal(t, e.Time, s.Since)
		require.Equal(t, 1, w.Status().References)
		require.Greater(t, d.TimesAsked(fleettest.Key("a")), asked)
		time.Sleep(time.Second)
		synctest.Wait()
		require.GreaterOrEqual(t, d.TimesAsked(fleettest.Key("a")), asked+2)

		quietly(d, api, "renewed") // not reported: the next attempt of the back-off finds it
		time.Sleep(maxBackoff)
		synctest.Wait()
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		require.True(t, w.HasSynced())
		require.Equal(t, 1, api.Count("stream /api/v1/configmaps"))
	})
}

// caseChangesAreToldOnce: differs in that trouble is reported with the first
// missed probe (PhaseChanged to Degraded), not after a window that each source
// sets. A source that wants to wait finds the age of the trouble in
// Status.LastLife.
func caseChangesAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		clusters := fleettest.Follow(t, cc)
		synctest.Wait()
		next := func(want events.ClusterType, p status.Phase, reason string) {
			t.Helper()
			synctest.Wait()
			require.NotEmpty(t, clusters.Events)
			e := <-clusters.Events
			require.Equal(t, want, e.Type)
			require.Equal(t, p, e.Phase)
			require.Equal(t, reason, e.Reason)
			require.Empty(t, clusters.Events)
		}
		next(events.Connected, status.PhaseReady, "")
		n := api.Count("get /readyz")
		api.FailWith(http.StatusServiceUnavailable, "/")
		for api.Count("get /readyz") == n {
			require.Empty(t, clusters.Events, "trouble before a probe noticed it")
			time.Sleep(time.Second)
			synctest.Wait()
		}
		next(events.PhaseChanged, status.PhaseDegraded, "Server")
		time.Sleep(2 * probeInterval)
		next(events.Disconnected, status.PhaseDisconnected, "Server")
		time.Sleep(time.Hour) // a hundred attempts
		require.Empty(t, clusters.Events)
		api.Heal()
		time.Sleep(maxBackoff)
		next(events.Connected, status.PhaseReady, "")
		time.Sleep(time.Hour)
		require.Empty(t, clusters.Events)
	})
}
