// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
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
				api, d := newFakeAPI(t, "uid-a"), newDirectory()
				api.put("one", "1", nil)
				d.set(key("a"), api.config())
				o := silent(d)
				o.Grace = tc.grace
				cc := start(t, o)
				synced(t, cc, api)
				d.fail(key("a"), resolver.ErrSecretNotFound)
				if tc.used > 0 {
					time.Sleep(tc.used - time.Millisecond)
					require.True(t, status(t, cc).Connected)
				}
				time.Sleep(2 * time.Millisecond)
				synctest.Wait()
				require.False(t, status(t, cc).Connected)
				require.Equal(t, clustercache.PhasePending, status(t, cc).Phase)
				sent := api.total()
				time.Sleep(time.Hour)
				require.Equal(t, sent, api.total(), "nothing is sent")

				lists := api.count("stream /api/v1/configmaps")
				d.set(key("a"), api.config())
				time.Sleep(time.Minute)
				require.True(t, status(t, cc).Connected)
				require.Equal(t, lists, api.count("stream /api/v1/configmaps"), "it goes on without a list")
			})
		})
	}
}
