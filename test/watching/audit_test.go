// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestClusterThatWasAwayIsAuditedSoon: a backup may have been restored while
// the cluster was disconnected. A cluster that was away only for a moment is
// not audited.
func TestClusterThatWasAwayIsAuditedSoon(t *testing.T) {
	for away, audits := range map[time.Duration]int{10 * time.Minute: 1, 45 * time.Second: 0} {
		t.Run(away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, api, _ := fleettest.OneCluster(t)
				w := fleettest.Watch(t, cc)
				require.NoError(t, w.WaitForSync(t.Context()))
				const list = "get /api/v1/configmaps"
				before := api.Count(list)
				api.Die()
				time.Sleep(away)
				api.Live()
				time.Sleep(6 * time.Minute)
				synctest.Wait()
				require.Equal(t, audits, api.Count(list)-before)
			})
		})
	}
}

// TestClusterWhoseServerWasExchangedIsAuditedSoon: a different certificate or
// version means a different server. A new connection alone does not.
func TestClusterWhoseServerWasExchangedIsAuditedSoon(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, proxy *fleettest.Front, api *fleettest.API)
		audits int
	}{
		"another certificate": {func(_ *testing.T, proxy *fleettest.Front, _ *fleettest.API) { proxy.Renew() }, 1},
		"another version": {func(_ *testing.T, _ *fleettest.Front, api *fleettest.API) {
			api.Upgrade("v1.37.0")
		}, 1},
		"nothing": {func(*testing.T, *fleettest.Front, *fleettest.API) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := fleettest.NewAPI(t, "uid-a")
				proxy, d := fleettest.NewFront(t, true, api), fleettest.NewDirectory()
				d.Set(fleettest.Key("a"), proxy.Config())
				cc := fleettest.Start(t, fleettest.Silent(d))
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				w := fleettest.Watch(t, cc)
				require.NoError(t, w.WaitForSync(t.Context()))
				const list = "get /api/v1/configmaps"
				before := api.Count(list)
				tc.change(t, proxy, api)
				proxy.Reset()
				time.Sleep(6 * time.Minute)
				synctest.Wait()
				require.Equal(t, tc.audits, api.Count(list)-before)
			})
		})
	}
}
