// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardTwoKeysLeadToOneCluster: nothing fails, so that only a report
// reveals that everything is done twice. It ends with one of the keys.
func TestHazardTwoKeysLeadToOneCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, book := fleettest.NewDirectory(), &fleettest.Logbook{}
		api, other := fleettest.NewAPI(t, "uid-a"), fleettest.NewAPI(t, "uid-b")
		d.Set(fleettest.Key("a"), api.Config())
		d.Set(fleettest.Key("old-a"), api.Config())
		d.Set(fleettest.Key("b"), other.Config())
		o := fleettest.Silent(d)
		o.Discover, o.Logger = true, book.Logger()
		cc := fleettest.Start(t, o)
		time.Sleep(time.Minute)
		same := func(name string) []client.ObjectKey {
			s, err := cc.Cluster(fleettest.Key(name)).Status()
			require.NoError(t, err)
			require.True(t, s.Connected)
			require.Empty(t, s.Reason, "it is no failure")
			return s.SameAs
		}
		require.Equal(t, []client.ObjectKey{fleettest.Key("old-a")}, same("a"))
		require.Equal(t, []client.ObjectKey{fleettest.Key("a")}, same("old-a"))
		require.Empty(t, same("b"))
		require.Equal(t, 1, book.Count("Two keys lead to the same cluster"))
		status, err := cc.Cluster(fleettest.Key("a")).Status()
		require.NoError(t, err)
		text, err := json.Marshal(status)
		require.NoError(t, err)
		require.Contains(t, string(text), `"sameAs":["fleet/old-a"]`)
		page := httptest.NewRecorder()
		cc.DebugHandler().ServeHTTP(page, httptest.NewRequest("GET", "/?cluster=fleet/a", nil))
		require.Contains(t, page.Body.String(), "fleet/old-a: these keys lead to one cluster")

		api.Die()
		time.Sleep(5 * time.Minute)
		api.Live()
		time.Sleep(5 * time.Minute)
		require.Len(t, same("a"), 1)
		require.Equal(t, 1, book.Count("Two keys lead to the same cluster"), "once, not with each connection")

		d.Remove(fleettest.Key("old-a"))
		time.Sleep(10 * time.Minute)
		require.Empty(t, same("a"))
		d.Set(fleettest.Key("old-a"), api.Config())
		time.Sleep(time.Minute)
		require.Len(t, same("a"), 1)
		require.Equal(t, 2, book.Count("Two keys lead to the same cluster"))
	})
}
