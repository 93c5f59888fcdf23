// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// wrongToken answers requests that carry the token with 401.
func (f *fakeAPI) wrongToken(token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = func(r *http.Request) int {
		if r.Header.Get("Authorization") == "Bearer "+token {
			return http.StatusUnauthorized
		}
		return 0
	}
}

// quietly changes the resolver's answer without reporting the change.
func (d *directory) quietly(api *fakeAPI, token string) {
	config := api.config()
	config.BearerToken = token
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries[key("a")] = func() (clustercache.Access, error) { return resolver.NewAccess(config) }
}

// caseUnauthorizedProbe: differs in that a 401 does not disconnect before the
// resolver was queried: if it has new credentials, no user notices the change.
func caseUnauthorizedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := oneCluster(t)
		clusters := follow(t, cc)
		clusters.wait(key("a"), clustercache.Connected)
		asked := d.timesAsked(key("a"))
		d.quietly(api, "renewed")
		api.wrongToken("t")
		time.Sleep(clustercache.DefaultProbeInterval)
		synctest.Wait()
		require.Equal(t, asked+1, d.timesAsked(key("a")))
		s := status(t, cc)
		require.Equal(t, clustercache.PhaseReady, s.Phase)
		require.NoError(t, s.LastError)
		require.Equal(t, 1, s.Connects)
		require.Empty(t, clusters.events, "nobody noticed")
		require.NoError(t, get(t, cc))
	})

	// The same on the pure decision: no missed probe, and no wait.
	s, now := connectedState(t)
	s, actions := phase.Next(decision, s, phase.Event{Kind: phase.Tick}, now)
	require.Equal(t, []phase.Action{phase.StartProbe}, actions)
	s, actions = phase.Next(decision, s, phase.Event{Kind: phase.Failed, Gen: s.Gen, Class: phase.Rejected, Err: errors.New("401")}, now)
	require.Equal(t, []phase.Action{phase.StartConnect}, actions)
	require.Zero(t, s.Failures)
	require.True(t, s.Connected)
}

func caseOneMissedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := oneCluster(t)
		asked := d.timesAsked(key("a"))
		api.failWith(http.StatusBadRequest, "/")
		time.Sleep(clustercache.DefaultProbeInterval)
		synctest.Wait()
		s := status(t, cc)
		require.Equal(t, clustercache.PhaseDegraded, s.Phase)
		require.True(t, s.Connected)
		require.Error(t, s.LastError)
		require.Equal(t, asked, d.timesAsked(key("a")))
	})
}

func caseThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, "uid-a")
		d := newDirectory()
		d.set(key("a"), api.config())
		o := silent(d)
		o.FailureThreshold = 5
		cc := start(t, o)
		require.NoError(t, cc.Engage(key("a")))
		synctest.Wait()
		api.failWith(http.StatusServiceUnavailable, "/readyz")
		before := api.count("get /readyz")
		for status(t, cc).Connected {
			require.LessOrEqual(t, api.count("get /readyz")-before, 4)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		require.Equal(t, 5, api.count("get /readyz")-before)
		s := status(t, cc)
		require.Equal(t, clustercache.PhaseDisconnected, s.Phase)
		require.Equal(t, "Server", s.Reason)
	})
}

// caseSuccessResets: differs in that a degraded cluster is ready again after
// two good answers in a row, so that a cluster that answers only now and then
// does not flap. It stays connected either way.
func caseSuccessResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, "uid-a")
		d := newDirectory()
		d.set(key("a"), api.config())
		o := silent(d)
		o.ResolveInterval = -1 // no refresh, which would prove a degraded cluster as two good probes do
		cc := start(t, o)
		require.NoError(t, cc.Engage(key("a")))
		synctest.Wait()
		probe := func() {
			t.Helper()
			n := api.count("get /readyz")
			for n == api.count("get /readyz") {
				time.Sleep(100 * time.Millisecond)
			}
			synctest.Wait()
		}
		for range 20 { // two missed probes, of the three that disconnect, and a good one
			api.failWith(http.StatusServiceUnavailable, "/readyz")
			probe()
			probe()
			require.Equal(t, clustercache.PhaseDegraded, status(t, cc).Phase)
			api.heal()
			probe()
			require.Equal(t, clustercache.PhaseDegraded, status(t, cc).Phase)
		}
		probe()
		s := status(t, cc)
		require.Equal(t, clustercache.PhaseReady, s.Phase)
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
		api := newFakeAPI(t, "uid-a")
		d := newDirectory()
		cc := start(t, silentWith(d, registry))
		require.NoError(t, cc.Engage(key("a")))
		time.Sleep(time.Hour) // pending
		require.Zero(t, probes(t, registry))
		api.die()
		d.set(key("a"), api.config())
		time.Sleep(time.Hour) // never connected
		require.Zero(t, probes(t, registry))
		api.live()
		time.Sleep(time.Minute)
		require.Equal(t, clustercache.PhaseReady, status(t, cc).Phase)
		api.die()
		time.Sleep(45 * time.Second)
		require.Equal(t, clustercache.PhaseDisconnected, status(t, cc).Phase)
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
		cc, api, d := oneCluster(t)
		before := api.count("get /readyz")
		for range 7 {
			require.NoError(t, cc.Engage(key("a")))
			d.set(key("a"), api.config())
			_, err := cc.Client(key("a"))
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		require.Equal(t, before, api.count("get /readyz"))
		for range 100 {
			require.NoError(t, get(t, cc))
			time.Sleep(3 * time.Second)
		}
		require.Equal(t, before, api.count("get /readyz"), "reads are life enough")
		time.Sleep(clustercache.DefaultProbeInterval)
		require.Equal(t, before+1, api.count("get /readyz"), "without them it is probed after the rest of the interval")
	})
}

func caseHealthyIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		clusters := follow(t, cc)
		clusters.wait(key("a"), clustercache.Connected)
		before := api.count("get /readyz")
		time.Sleep(time.Hour)
		probes := api.count("get /readyz") - before
		require.GreaterOrEqual(t, probes, int(time.Hour/clustercache.DefaultProbeInterval)-1)
		require.LessOrEqual(t, probes, int(time.Hour/(clustercache.DefaultProbeInterval*4/5))+1)
		s := status(t, cc)
		require.Equal(t, clustercache.PhaseReady, s.Phase)
		require.Equal(t, 1, s.Connects)
		require.LessOrEqual(t, time.Since(s.LastLife), clustercache.DefaultProbeInterval)
		require.Empty(t, clusters.events)
	})
}

// caseUnauthorizedDisconnects: the resolver has no other credentials, so the
// first 401 disconnects the cluster. It stays known with its watch, and the
// event holds the time and the reason.
func caseUnauthorizedDisconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := oneCluster(t)
		w := watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		clusters := follow(t, cc)
		clusters.wait(key("a"), clustercache.Connected)
		asked := d.timesAsked(key("a"))
		api.wrongToken("t")
		time.Sleep(clustercache.DefaultProbeInterval)
		synctest.Wait()
		e := clusters.wait(key("a"), clustercache.Disconnected)
		require.Equal(t, "Unauthorized", e.Reason)
		require.LessOrEqual(t, time.Since(e.Time), clustercache.DefaultProbeInterval)
		s := status(t, cc)
		require.Equal(t, clustercache.PhaseDisconnected, s.Phase)
		require.Equal(t, e.Time, s.Since)
		require.Equal(t, 1, w.Status().References)
		require.Greater(t, d.timesAsked(key("a")), asked)
		time.Sleep(time.Second)
		synctest.Wait()
		require.GreaterOrEqual(t, d.timesAsked(key("a")), asked+2)

		d.quietly(api, "renewed") // not reported: the next attempt of the back-off finds it
		time.Sleep(clustercache.DefaultMaxBackoff)
		synctest.Wait()
		require.Equal(t, clustercache.PhaseReady, status(t, cc).Phase)
		require.True(t, w.HasSynced())
		require.Equal(t, 1, api.count("stream /api/v1/configmaps"))
	})
}

var (
	decision = phase.Config{
		ProbeInterval: 20 * time.Second, FailureThreshold: 3, SuccessThreshold: 2, Grace: 30 * time.Second, RetryBase: time.Second,
		RetryMax: 30 * time.Second, ResolveRetry: 10 * time.Second,
	}
	decisionStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// connectedState returns the state of a cluster that was just connected, and
// the time of its first probe.
func connectedState(t *testing.T) (phase.State, time.Time) {
	t.Helper()
	s, actions := phase.Next(decision, phase.State{}, phase.Event{Kind: phase.Asked}, decisionStart)
	require.Equal(t, []phase.Action{phase.StartConnect}, actions)
	s, actions = phase.Next(decision, s, phase.Event{Kind: phase.Succeeded, Gen: s.Gen, Revision: "a"}, decisionStart)
	require.Equal(t, []phase.Action{phase.Up}, actions)
	return s, decisionStart.Add(decision.ProbeInterval)
}

func caseDueTimes(t *testing.T) {
	s, due := connectedState(t) // the attempt began at once
	require.Equal(t, due, s.Deadline())
	for at, want := range map[time.Duration][]phase.Action{
		5 * time.Second:  nil,
		20 * time.Second: {phase.StartProbe},
		60 * time.Second: {phase.StartProbe},
	} {
		now := decisionStart.Add(at)
		next, actions := phase.Next(decision, s, phase.Event{Kind: phase.Tick}, now)
		require.Equal(t, want, actions, "%s of %s", at, decision.ProbeInterval)
		if want == nil {
			require.Equal(t, 15*time.Second, next.Deadline().Sub(now))
		}
	}
	// A sign of life 5 s ago leaves 15 s of the interval.
	next, actions := phase.Next(decision, s, phase.Event{Kind: phase.Tick, Life: due.Add(-5 * time.Second)}, due)
	require.Empty(t, actions)
	require.Equal(t, 15*time.Second, next.Deadline().Sub(due))
}

// caseEarliestDeadline: differs in that sources have no failure windows, whose
// minimum would have to be found. The due times of one cluster remain of the
// case; cases 22 to 26 prove that zero options have defaults.
func caseEarliestDeadline(t *testing.T) {
	at := func(n int) time.Time { return decisionStart.Add(time.Duration(n) * time.Second) }
	require.Zero(t, phase.State{}.Deadline())
	require.Equal(t, at(3), phase.State{Connected: true, ProbeAt: at(3)}.Deadline())
	require.Equal(t, at(1), phase.State{Connected: true, ProbeAt: at(3), RetryAt: at(2), GraceUntil: at(1)}.Deadline())
	require.Equal(t, at(2), phase.State{Connected: true, ProbeAt: at(3), RetryAt: at(2), GraceUntil: at(4)}.Deadline())
	require.Equal(t, at(2), phase.State{ProbeAt: at(1), RetryAt: at(2)}.Deadline(), "no probe without a connection")
	require.Zero(t, phase.State{Running: phase.Connect, RetryAt: at(1)}.Deadline(), "the end of the attempt comes next")
}

// caseChangesAreToldOnce: differs in that trouble is reported with the first
// missed probe (PhaseChanged to Degraded), not after a window that each source
// sets. A source that wants to wait finds the age of the trouble in
// Status.LastLife.
func caseChangesAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		clusters := follow(t, cc)
		synctest.Wait()
		next := func(want clustercache.ClusterEventType, p clustercache.Phase, reason string) {
			t.Helper()
			synctest.Wait()
			require.NotEmpty(t, clusters.events)
			e := <-clusters.events
			require.Equal(t, want, e.Type)
			require.Equal(t, p, e.Phase)
			require.Equal(t, reason, e.Reason)
			require.Empty(t, clusters.events)
		}
		next(clustercache.Connected, clustercache.PhaseReady, "")
		n := api.count("get /readyz")
		api.failWith(http.StatusServiceUnavailable, "/")
		for api.count("get /readyz") == n {
			require.Empty(t, clusters.events, "trouble before a probe noticed it")
			time.Sleep(time.Second)
			synctest.Wait()
		}
		next(clustercache.PhaseChanged, clustercache.PhaseDegraded, "Server")
		time.Sleep(2 * clustercache.DefaultProbeInterval)
		next(clustercache.Disconnected, clustercache.PhaseDisconnected, "Server")
		time.Sleep(time.Hour) // a hundred attempts
		require.Empty(t, clusters.events)
		api.heal()
		time.Sleep(clustercache.DefaultMaxBackoff)
		next(clustercache.Connected, clustercache.PhaseReady, "")
		time.Sleep(time.Hour)
		require.Empty(t, clusters.events)
	})
}
