// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestALateReplicaShowsThePastInWatchesAlone checks that a lagging server
// behaves like one of two kube-apiservers of one etcd, one of which lags
// behind.
func TestALateReplicaShowsThePastInWatchesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		s.Lag(2*time.Second, func(*Request) bool { return true })
		create(t, s, "early")
		time.Sleep(time.Minute)
		from := strconv.FormatInt(s.ResourceVersion(), 10)
		create(t, s, "late")
		now := strconv.FormatInt(s.ResourceVersion(), 10)
		require.Contains(t, as(t, s, configMaps).Body.String(), `"late"`, "a list of the newest state")
		require.Equal(t, http.StatusOK, as(t, s, configMaps+"/late").Code)
		watch := func(from, seconds string) string {
			return as(t, s, configMaps+"?watch=true&timeoutSeconds="+seconds+"&resourceVersion="+from).Body.String()
		}
		require.Empty(t, watch(from, "1"), "it does not know of it yet")
		require.Contains(t, watch(from, "4"), `"late"`)
		create(t, s, "later")
		require.NotContains(t, watch(now, "4"), `"late"`, "what the client has seen on the other server")
		create(t, s, "last")
		const stream = configMaps + "?watch=true&timeoutSeconds=1&allowWatchBookmarks=true" +
			"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
		require.Contains(t, as(t, s, stream).Body.String(), `"last"`, "a streamed list waits until it is not behind")
	})
}

func TestAHeldWatchShowsItsBeginningAndNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		create(t, s, "before")
		s.Hold(func(r *Request) bool { return r.Stream })
		time.AfterFunc(time.Minute/2, func() { create(t, s, "after") })
		const plain = configMaps + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=90&resourceVersion="
		const stream = plain + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
		from := strconv.FormatInt(s.ResourceVersion(), 10)
		held := as(t, s, stream).Body.String()
		require.Contains(t, held, `"before"`)
		require.NotContains(t, held, `"after"`)
		require.Contains(t, held, `"BOOKMARK"`)
		require.NotContains(t, held, strconv.FormatInt(s.ResourceVersion(), 10), "a bookmark passes no change")
		require.Contains(t, as(t, s, plain+from).Body.String(), `"after"`, "another watch")

		s.Hold(nil)
		require.Contains(t, as(t, s, stream).Body.String(), `"after"`)
	})
}
