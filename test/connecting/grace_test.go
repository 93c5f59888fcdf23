// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestWithdrawnAccessIsUsedForGraceAtMost, and without a grace not at all:
// cached objects stay, and no request is sent until there is access again.
func TestWithdrawnAccessIsUsedForGraceAtMost(t *testing.T) {
	for name, tc := range map[string]struct{ grace, used time.Duration }{
		"default": {0, 30 * time.Second},
		"short":   {3 * time.Second, 3 * time.Second},
		"none":    {-1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
				api.Put("one", "1", nil)
				d.Set(fleettest.Key("a"), api.Config())
				o := fleettest.Silent(d)
				o.Grace = tc.grace
				cc := fleettest.Start(t, o)
				fleettest.Synced(t, cc, api)
				d.Fail(fleettest.Key("a"), resolver.ErrSecretNotFound)
				if tc.used > 0 {
					time.Sleep(tc.used - time.Millisecond)
					require.True(t, fleettest.Status(t, cc).Connected)
				}
				time.Sleep(2 * time.Millisecond)
				synctest.Wait()
				require.False(t, fleettest.Status(t, cc).Connected)
				require.Equal(t, status.PhasePending, fleettest.Status(t, cc).Phase)
				sent := api.Total()
				time.Sleep(time.Hour)
				require.Equal(t, sent, api.Total(), "nothing is sent")

				lists := api.Count("stream /api/v1/configmaps")
				d.Set(fleettest.Key("a"), api.Config())
				time.Sleep(time.Minute)
				require.True(t, fleettest.Status(t, cc).Connected)
				require.Equal(t, lists, api.Count("stream /api/v1/configmaps"), "it goes on without a list")
			})
		})
	}
}
