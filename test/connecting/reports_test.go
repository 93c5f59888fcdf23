// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardReportsThatChangeNothing: a resolver may report a cluster with each
// change of an object, such as every patch of its status. A report is not
// another access: it brings no request, failure, event or log line.
func TestHazardReportsThatChangeNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		begin func(d *fleettest.Directory, api *fleettest.API)
		// connected clusters meet the fault after 15 s.
		connected func(d *fleettest.Directory, api *fleettest.API)
		phase     status.Phase
		failures  int // at most
		requests  int // at most
	}{
		"connections are refused": {
			begin:    func(_ *fleettest.Directory, api *fleettest.API) { api.Die() },
			phase:    status.PhaseDisconnected,
			failures: 4,
		},
		"credentials are rejected": {
			begin:    func(_ *fleettest.Directory, api *fleettest.API) { api.FailWith(http.StatusUnauthorized, "/") },
			phase:    status.PhaseDisconnected,
			failures: 4,
			requests: 24,
		},
		"the cluster is not ready": {
			begin: func(d *fleettest.Directory, _ *fleettest.API) { d.Fail(fleettest.Key("a"), resolver.ErrNotReady) },
			phase: status.PhasePending,
		},
		"the Secret is missing": {
			begin: func(d *fleettest.Directory, _ *fleettest.API) {
				d.Fail(fleettest.Key("a"), resolver.ErrSecretNotFound)
			},
			phase:    status.PhasePending,
			failures: 1,
		},
		"policy refuses the access": {
			begin: func(d *fleettest.Directory, _ *fleettest.API) {
				d.Fail(fleettest.Key("a"), &resolver.RefusedError{Field: "user.exec", Reason: "is refused"})
			},
			phase:    status.PhaseRefused,
			failures: 1,
		},
		"the hub does not answer": {
			begin: func(d *fleettest.Directory, _ *fleettest.API) {
				d.Fail(fleettest.Key("a"), errors.New("hub does not answer"))
			},
			phase:    status.PhaseDisconnected,
			failures: 4,
		},
		"probes of a connected cluster fail": {
			connected: func(_ *fleettest.Directory, api *fleettest.API) {
				api.FailWith(http.StatusBadGateway, "/readyz")
			},
			phase:    status.PhaseDegraded,
			failures: 2,
			requests: 12,
		},
		"new access of a connected cluster is rejected": {
			connected: func(d *fleettest.Directory, api *fleettest.API) {
				api.Respond(func(r *http.Request) int {
					if r.Header.Get("Authorization") == "Bearer new" {
						return http.StatusUnauthorized
					}
					return 0
				})
				config := api.Config()
				config.BearerToken = "new"
				d.Set(fleettest.Key("a"), config)
			},
			phase:    status.PhaseReady,
			failures: 7,
			requests: 30,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, d, log := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory(), &fleettest.Logbook{}
				d.Set(fleettest.Key("a"), api.Config())
				if tc.begin != nil {
					tc.begin(d, api)
				}
				o := fleettest.Silent(d)
				o.Logger = log.Logger()
				cc := fleettest.Start(t, o)
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				time.Sleep(100 * time.Millisecond)
				if tc.connected != nil {
					require.True(t, fleettest.Status(t, cc).Connected)
					tc.connected(d, api)
					time.Sleep(12 * time.Second)
				}
				synctest.Wait()
				require.Equal(t, tc.phase, fleettest.Status(t, cc).Phase)
				events := fleettest.Follow(t, cc)
				synctest.Wait()
				told, lines, requests := len(events.Events), log.Count("Cluster changed phase"), api.Total()

				asked := d.TimesAsked(fleettest.Key("a"))
				for range 20 {
					d.Changed(fleettest.Key("a"))
					time.Sleep(200 * time.Millisecond)
				}
				synctest.Wait()
				require.GreaterOrEqual(t, d.TimesAsked(fleettest.Key("a")), asked+20)
				s := fleettest.Status(t, cc)
				require.Equal(t, tc.phase, s.Phase)
				require.LessOrEqual(t, s.Failures, tc.failures)
				require.LessOrEqual(t, api.Total()-requests, tc.requests)
				require.Len(t, events.Events, told)
				require.Equal(t, lines, log.Count("Cluster changed phase"))

				api.Heal()
				api.Live()
				other := api.Config()
				other.BearerToken = "other"
				d.Set(fleettest.Key("a"), other)
				synctest.Wait()
				s = fleettest.Status(t, cc)
				require.Equal(t, status.PhaseReady, s.Phase, "other access is tried at once")
				require.Zero(t, s.Failures)
				require.Empty(t, s.Reason)
			})
		})
	}
}

// TestAccessThatFailedIsTriedWhenItIsDue although it is reported all the time,
// and no later than without.
func TestAccessThatFailedIsTriedWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		api.Die()
		d.Set(fleettest.Key("a"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(10 * time.Minute)
		api.Live()
		for range 31 {
			d.Changed(fleettest.Key("a"))
			time.Sleep(time.Second)
		}
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
	})
}
