// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestServerThatForbidsEverythingAtItsStartIsTheSameCluster: an API server
// answers before it has read its RBAC rules.
func TestServerThatForbidsEverythingAtItsStartIsTheSameCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		w := fleettest.Watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		before, lists := fleettest.Status(t, cc), api.Count("stream "+fleettest.PathOf("ConfigMap"))

		api.Die()
		time.Sleep(time.Minute)
		require.False(t, fleettest.Status(t, cc).Connected)
		api.FailWith(http.StatusForbidden, "/")
		api.Live()
		require.Eventually(t, func() bool { return api.Count("get /api/v1/namespaces/kube-system") > 1 }, time.Minute,
			100*time.Millisecond)
		time.Sleep(2 * time.Second)
		api.Heal()
		time.Sleep(time.Minute)

		after := fleettest.Status(t, cc)
		require.Equal(t, status.PhaseReady, after.Phase)
		require.Equal(t, before.UID, after.UID)
		require.Equal(t, before.Epoch, after.Epoch)
		require.Zero(t, after.HistoryResets)
		require.Equal(t, lists, api.Count("stream "+fleettest.PathOf("ConfigMap")))
		require.True(t, w.HasSynced())
	})
}
