// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package owning_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReplicaIsReadyOnceItsShareIsOwnedAndWarm has lists of the remote clusters
// take long, and one cluster that is dead.
func TestReplicaIsReadyOnceItsShareIsOwnedAndWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 12)
		g.standbys = 1
		g.apis[0].Die()
		a := g.start("operator-0")
		require.Error(t, a.ready(nil), "its share is not owned yet, let alone warm")
		time.Sleep(time.Minute)
		require.NoError(t, a.ready(nil))

		slow := make(chan struct{})
		for i, api := range g.apis {
			api.Set(func(r *http.Request) http.HandlerFunc {
				if strings.HasPrefix(r.UserAgent(), "operator-1") && strings.HasSuffix(r.URL.Path, "/configmaps") {
					select {
					case <-slow:
					case <-r.Context().Done():
					}
				}
				return g.judge(g.clusters[i], r)
			})
		}
		b := g.start("operator-1")
		time.Sleep(15 * time.Second)
		require.Error(t, b.ready(nil))
		require.NoError(t, a.ready(nil), "it has all that it has to have until then")
		close(slow)
		time.Sleep(time.Minute)
		require.NoError(t, b.ready(nil))
		require.NoError(t, a.ready(nil))
		owned := 0
		for _, key := range g.clusters {
			if b.cc.Cluster(key).Owned() {
				owned++
			}
		}
		require.InDelta(t, 6, owned, 3)

		close(b.net.cut)
		time.Sleep(11 * time.Second)
		require.ErrorContains(t, b.ready(nil), "no valid Lease")
		a.stop()
		b.stop()
		require.Error(t, a.ready(nil))
		require.Empty(t, g.wrong)
	})
}
