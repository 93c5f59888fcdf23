// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/watchset"
)

// TestOnStatusFollowsTheWatch: a right that is revoked and granted is reported,
// though no object and no cluster has an event.
func TestOnStatusFollowsTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, st := newFleet(t), &statuses{}
		s := f.newSet(watchset.Options{OnStatus: st.record})
		f.replace(s, entries{"e": of("a", "")})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Contains(t, st.take(), "e Synced")

		for range 3 {
			heal := f.a.Fail(clustercachetest.Status(http.StatusForbidden), clustercachetest.Resource("configmaps"))
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, "e Refused", st.take())
			time.Sleep(time.Second)
			heal()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, "e Synced", st.take())
		}
		require.NoError(t, s.Close(t.Context()))
		require.Empty(t, st.take())
	})
}
