// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardHalfASuccessSpinsTheInformers: a gateway passes lists and fails
// watches. Every attempt is a failure and a success at once, and its success
// must not end the pauses between attempts.
func TestHazardHalfASuccessSpinsTheInformers(t *testing.T) {
	for _, code := range []int{
		http.StatusNotImplemented,
		http.StatusBadGateway,
		http.StatusTooManyRequests,
	} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
				api.Put("one", "1", nil)
				d.Set(fleettest.Key("a"), api.Config())
				cc := fleettest.Start(t, fleettest.Silent(d))
				w := fleettest.Watch(t, cc)
				require.NoError(t, w.WaitForSync(t.Context()))
				time.Sleep(time.Minute)

				var requests atomic.Int64
				api.Respond(func(r *http.Request) int {
					requests.Add(1)
					if r.URL.Query().Get("watch") == "true" {
						return code
					}
					return 0
				})
				api.Cut()
				time.Sleep(10 * time.Minute)
				require.Less(t, requests.Load(), int64(1800), "three requests a second")
				api.Put("two", "2", nil)
				api.Heal()
				time.Sleep(30 * time.Second)
				require.NoError(t, w.WaitForSync(t.Context()))
				require.Equal(t, 2, fleettest.Status(t, cc).Objects)
			})
		})
	}
}

// TestHazardClosedConnectionsAreTriedWithoutEnd: a proxy closes the HTTP/1.1
// connection of every watch without an answer. net/http retries those that have
// served another request, as all of ours have.
func TestHazardClosedConnectionsAreTriedWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		api.Put("one", "1", nil)
		d.Set(fleettest.Key("a"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		w := fleettest.Watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		time.Sleep(time.Minute)

		var watches atomic.Int64
		api.Respond(func(r *http.Request) int {
			if r.URL.Query().Get("watch") != "true" {
				return 0
			}
			if watches.Add(1) > 1000 {
				return http.StatusBadGateway // without the bound it continues forever
			}
			panic(http.ErrAbortHandler)
		})
		api.Cut()
		time.Sleep(5 * time.Minute)
		require.Less(t, watches.Load(), int64(300), "one watch a second")
		api.Heal()
		api.Put("two", "2", nil)
		time.Sleep(time.Minute)
		require.Equal(t, 2, fleettest.Status(t, cc).Objects)
	})
}
