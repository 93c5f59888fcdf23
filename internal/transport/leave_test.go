// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestConnectionThatIsLeftCarriesOnlyWhatItCarried: new requests make another
// one, the watch goes on, and the connection ends with it.
func TestConnectionThatIsLeftCarriesOnlyWhatItCarried(t *testing.T) {
	for name, way := range map[string]struct{ http2, netHTTP bool }{
		"own":            {http2: true},
		"http2 net/http": {http2: true, netHTTP: true},
		"http1":          {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				more := make(chan struct{}, 10)
				n := newMemnet(t, way.http2, func(w http.ResponseWriter, r *http.Request) {
					if !isWatch(r) {
						return
					}
					streamLines(w, r, more)
				})
				s := connect(t, Options{Dial: n.dial, NetHTTP: way.netHTTP}, n.config())
				stream := watch(t, s)
				read := func() (over net.Conn) {
					ctx := WithConnCheck(t.Context(), func(_ context.Context, c net.Conn) error {
						over = c
						return nil
					})
					code, _, err := fetch(ctx, s, "/api/v1/pods")
					require.NoError(t, err)
					require.Equal(t, http.StatusOK, code)
					synctest.Wait()
					return over
				}
				first := read()
				require.Same(t, first, read())

				s.Leave(first)
				second := read()
				require.NotSame(t, first, second)
				require.Same(t, second, read())
				_, err := s.ProbeAside(t.Context(), "/readyz")
				require.NoError(t, err)
				require.Same(t, second, read())
				for range 10 {
					more <- struct{}{}
					expectLine(t, stream)
				}
				s.Leave(first)
				require.Same(t, second, read(), "it was left before")

				require.NoError(t, stream.Close())
				synctest.Wait()
				require.Equal(t, 1, connections(s))
			})
		})
	}
}
