// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClusterThatWasAwayIsAuditedSoon: a backup may have been restored while
// the cluster was disconnected. A cluster that was away only for a moment is
// not audited.
func TestClusterThatWasAwayIsAuditedSoon(t *testing.T) {
	for away, audits := range map[time.Duration]int{10 * time.Minute: 1, 45 * time.Second: 0} {
		t.Run(away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, api, _ := oneCluster(t)
				w := watch(t, cc)
				require.NoError(t, w.WaitForSync(t.Context()))
				const list = "get /api/v1/configmaps"
				before := api.count(list)
				api.die()
				time.Sleep(away)
				api.live()
				time.Sleep(6 * time.Minute)
				synctest.Wait()
				require.Equal(t, audits, api.count(list)-before)
			})
		})
	}
}

// TestClusterWhoseServerWasExchangedIsAuditedSoon: a different certificate or
// version means a different server. A new connection alone does not.
func TestClusterWhoseServerWasExchangedIsAuditedSoon(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, proxy *front, api *fakeAPI)
		audits int
	}{
		"another certificate": {func(t *testing.T, proxy *front, _ *fakeAPI) { proxy.renew(t) }, 1},
		"another version":     {func(_ *testing.T, _ *front, api *fakeAPI) { api.upgrade("v1.37.0") }, 1},
		"nothing":             {func(*testing.T, *front, *fakeAPI) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newFakeAPI(t, "uid-a")
				proxy, d := newFront(t, true, api), newDirectory()
				d.set(key("a"), proxy.config())
				cc := start(t, silent(d))
				require.NoError(t, cc.Engage(key("a")))
				w := watch(t, cc)
				require.NoError(t, w.WaitForSync(t.Context()))
				const list = "get /api/v1/configmaps"
				before := api.count(list)
				tc.change(t, proxy, api)
				proxy.reset()
				time.Sleep(6 * time.Minute)
				synctest.Wait()
				require.Equal(t, tc.audits, api.count(list)-before)
			})
		})
	}
}
