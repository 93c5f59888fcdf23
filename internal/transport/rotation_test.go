// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// rotating is a server whose certificate, of an authority of its own, can be
// replaced.
type rotating struct {
	*httptest.Server

	bundles [2][]byte
	pairs   [2]tls.Certificate
	serves  atomic.Int32 // index of the pair
}

func serveRotating(t *testing.T, http2 bool) *rotating {
	t.Helper()
	r := &rotating{}
	for i := range r.pairs {
		certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		require.NoError(t, err)
		r.pairs[i], err = tls.X509KeyPair(certPEM, keyPEM)
		require.NoError(t, err)
		r.bundles[i] = certPEM
	}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(w, req.Body)
	}))
	r.EnableHTTP2 = http2
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := &tls.Config{Certificates: []tls.Certificate{r.pairs[r.serves.Load()]}}
		if http2 {
			c.NextProtos = []string{"h2"}
		}
		return c, nil
	}}
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

// trusting returns access that trusts one of the authorities.
func (r *rotating) trusting(i int) *rest.Config {
	return &rest.Config{Host: r.URL, TLSClientConfig: rest.TLSClientConfig{CAData: r.bundles[i]}}
}

// TestHazardRotatedAuthorityFailsARequestUnderWay: a request began with the old
// access, and makes its connection when the server has the new certificate.
// Nothing of it has been sent, so it is sent with the new access.
func TestHazardRotatedAuthorityFailsARequestUnderWay(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(method+map[bool]string{true: " HTTP/2", false: " HTTP/1.1"}[http2], func(t *testing.T) {
				srv := serveRotating(t, http2)
				dialing, release := make(chan struct{}), make(chan struct{})
				var dials atomic.Int32
				s := connect(t, Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					if dials.Add(1) == 1 {
						close(dialing)
						<-release
					}
					return new(net.Dialer).DialContext(ctx, network, address)
				}}, srv.trusting(0))

				results := make(chan error, 2)
				send := func() {
					req, err := http.NewRequestWithContext(t.Context(), method, s.URL()+"/api", strings.NewReader("body"))
					if err != nil {
						results <- err
						return
					}
					resp, err := s.Client().Do(req)
					if err == nil {
						var body []byte
						body, err = io.ReadAll(resp.Body)
						_ = resp.Body.Close()
						if string(body) != "body" {
							err = io.ErrUnexpectedEOF
						}
					}
					results <- err
				}
				go send()
				<-dialing
				go send() // waits for the connection, or makes its own

				srv.serves.Store(1)
				require.NoError(t, s.Swap(srv.trusting(1), "second"))
				close(release)
				require.NoError(t, <-results)
				require.NoError(t, <-results)
			})
		}
	}
}

// TestHazardRetiredAccessAdmitsRequests: one that looked before the access was
// replaced would make a connection with the old one.
func TestHazardRetiredAccessAdmitsRequests(t *testing.T) {
	more := make(chan struct{})
	srv := serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			streamLines(w, r, more)
		}
	})
	s := connect(t, Options{}, srv.config("one"))
	watch(t, s) // keeps the generation
	old, err := s.live()
	require.NoError(t, err)
	require.NoError(t, s.Swap(srv.config("two"), "second"))
	require.NoError(t, old.ended(), "the watch goes on")

	_, err = old.enter(t.Context())
	require.ErrorIs(t, err, errGone)
	_, err = old.enterProof(false)
	require.ErrorIs(t, err, errGone)
	_, err = old.watches.enter()
	require.ErrorIs(t, err, errGone)
	_, _, err = fetch(t.Context(), s, "/api")
	require.NoError(t, err)
}
