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

	"github.com/fleetcache/fleetcache/internal/transport/h2"
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
	requests := map[string]struct{ method, path, body string }{
		"read":  {method: http.MethodGet, path: "/api", body: "body"},
		"write": {method: http.MethodPost, path: "/api", body: "body"},
		"watch": {method: http.MethodGet, path: "/api?watch=true"},
	}
	for name, r := range requests {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, http2 bool) {
				srv := serveRotating(t, http2)
				dialing, release := make(chan struct{}), make(chan struct{})
				var dials, forStreams atomic.Int32
				s := connect(t, Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					if ForShared(ctx) {
						forStreams.Add(1)
					}
					if dials.Add(1) == 1 {
						close(dialing)
						<-release
					}
					return new(net.Dialer).DialContext(ctx, network, address)
				}}, srv.trusting(0))

				results := make(chan error, 2)
				send := func() { results <- sendBody(t.Context(), s, r.method, r.path, r.body) }
				go send()
				<-dialing
				go send() // waits for the connection, or makes its own

				srv.serves.Store(1)
				require.NoError(t, s.Swap(srv.trusting(1), "second"))
				close(release)
				require.NoError(t, <-results)
				require.NoError(t, <-results)
				if http2 && name == "watch" {
					require.Equal(t, dials.Load(), forStreams.Load(), "watches keep to their own connections")
				}
			})
		})
	}
}

// sendBody sends a request to a server that answers with the request's body.
func sendBody(ctx context.Context, s *Transport, method, path, body string) error {
	var sent io.Reader
	if body != "" {
		sent = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL()+path, sent)
	if err != nil {
		return err
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	received, err := io.ReadAll(resp.Body)
	if err == nil && string(received) != body {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// TestHazardWatchWithABodyHangs: the connections for watches carry none. It
// fails before anything is dialed.
func TestHazardWatchWithABodyHangs(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		srv := serve(t, http2, func(http.ResponseWriter, *http.Request) {})
		s := connect(t, Options{}, srv.config("one"))
		err := sendBody(t.Context(), s, http.MethodGet, "/api?watch=true", "body")
		require.ErrorIs(t, err, h2.ErrUnsupported)
		require.ErrorAs(t, err, new(*Error))
		require.Zero(t, srv.conns.Load())
	})
}

// TestHazardWatchWithABodyDependsOnTheProtocol: the answer must be the same
// before and after the transport knows what the server supports, and over
// round trippers of the access's own.
func TestHazardWatchWithABodyDependsOnTheProtocol(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		srv := serve(t, http2, func(http.ResponseWriter, *http.Request) {})
		wrapped := srv.config("one")
		wrapped.Wrap(func(rt http.RoundTripper) http.RoundTripper { return rt })
		for _, cfg := range []*rest.Config{srv.config("one"), wrapped} {
			s := connect(t, Options{}, cfg)
			require.NoError(t, sendBody(t.Context(), s, http.MethodGet, "/api?watch=true", ""))
			err := sendBody(t.Context(), s, http.MethodGet, "/api?watch=true", "body")
			requireClass(t, Refused, err)
			require.ErrorIs(t, err, h2.ErrUnsupported)
			require.ErrorContains(t, err, "it has a body")
		}
	})
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
	_, err = old.mux.enter()
	require.ErrorIs(t, err, errGone)
	_, _, err = fetch(t.Context(), s, "/api")
	require.NoError(t, err)
}

// TestHazardProbeOfStreamsFailsWithoutHTTP2: the access was replaced since the
// server was last asked, and nothing has yet shown that it has no HTTP/2.
func TestHazardProbeOfStreamsFailsWithoutHTTP2(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		srv := serve(t, http2, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
		s := connect(t, Options{}, srv.config("one"))
		for _, revision := range []string{"second", "third"} {
			proof, err := s.ProbeAside(t.Context(), "/version")
			require.NoError(t, err)
			require.Equal(t, "{}", string(proof.Body))
			require.NoError(t, s.Swap(srv.config("two"), revision))
		}
	})
}
