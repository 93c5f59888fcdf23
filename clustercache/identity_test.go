// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache"
)

// TestServerThatForbidsEverythingAtItsStartIsTheSameCluster: an API server
// answers before it has read its RBAC rules.
func TestServerThatForbidsEverythingAtItsStartIsTheSameCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		w := watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		before, lists := status(t, cc), api.count("stream "+pathOf("ConfigMap"))

		api.die()
		time.Sleep(time.Minute)
		require.False(t, status(t, cc).Connected)
		api.failWith(http.StatusForbidden, "/")
		api.live()
		require.Eventually(t, func() bool { return api.count("get /api/v1/namespaces/kube-system") > 1 }, time.Minute, 100*time.Millisecond)
		time.Sleep(2 * time.Second)
		api.heal()
		time.Sleep(time.Minute)

		after := status(t, cc)
		require.Equal(t, clustercache.PhaseReady, after.Phase)
		require.Equal(t, before.UID, after.UID)
		require.Equal(t, before.Epoch, after.Epoch)
		require.Zero(t, after.HistoryResets)
		require.Equal(t, lists, api.count("stream "+pathOf("ConfigMap")))
		require.True(t, w.HasSynced())
	})
}
