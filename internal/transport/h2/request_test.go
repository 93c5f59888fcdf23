// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

func TestOtherRequestsAreRefused(t *testing.T) {
	for name, change := range map[string]func(r *http.Request){
		"POST":              func(r *http.Request) { r.Method = http.MethodPost },
		"HEAD":              func(r *http.Request) { r.Method = http.MethodHead },
		"http":              func(r *http.Request) { r.URL.Scheme = "http" },
		"no URL":            func(r *http.Request) { r.URL = nil },
		"no host":           func(r *http.Request) { r.URL.Host = ""; r.Host = "" },
		"bad host":          func(r *http.Request) { r.Host = "a b" },
		"bad path":          func(r *http.Request) { r.URL.Opaque = "x" },
		"body":              func(r *http.Request) { r.Body = &closing{Reader: strings.NewReader("x")} },
		"length":            func(r *http.Request) { r.ContentLength = 1 },
		"transfer encoding": func(r *http.Request) { r.TransferEncoding = []string{"chunked"} },
		"trailer":           func(r *http.Request) { r.Trailer = http.Header{"A": nil} },
		"upgrade":           func(r *http.Request) { r.Header.Set("Upgrade", "websocket") },
		"connection":        func(r *http.Request) { r.Header.Set("Connection", "Upgrade") },
		"te":                func(r *http.Request) { r.Header.Set("TE", "gzip") },
		"header name":       func(r *http.Request) { r.Header["a b"] = []string{"c"} },
		"pseudo header":     func(r *http.Request) { r.Header[":path"] = []string{"/"} },
		"header value":      func(r *http.Request) { r.Header["A"] = []string{"b\nc"} },
		"user agent":        func(r *http.Request) { r.Header["User-Agent"] = []string{"b\nc"} },
	} {
		t.Run(name, func(t *testing.T) {
			transport := h2.New(h2.Options{Dial: func(context.Context, string) (net.Conn, error) {
				return nil, errors.New("dialed")
			}})
			defer transport.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://peer.test/", nil)
			require.NoError(t, err)
			change(req)
			_, err = transport.RoundTrip(req)
			require.ErrorIs(t, err, h2.ErrUnsupported)
			if body, ok := req.Body.(*closing); ok {
				require.True(t, body.closed)
			}
		})
	}
}

type closing struct {
	io.Reader

	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestRequestsThatAreSent(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *http.Request)
		addr   string
		want   map[string]string
	}{
		"plain": {func(*http.Request) {}, "peer.test:443",
			map[string]string{":path": "/p?q", ":authority": "peer.test"}},
		"no method": {func(r *http.Request) { r.Method = "" }, "peer.test:443", map[string]string{":method": "GET"}},
		"port": {func(r *http.Request) { r.URL.Host = "peer.test:6443"; r.Host = "" }, "peer.test:6443",
			map[string]string{":authority": "peer.test:6443"}},
		"other host": {func(r *http.Request) { r.Host = "virtual.test" }, "peer.test:443",
			map[string]string{":authority": "virtual.test"}},
		"IPv6": {func(r *http.Request) { r.URL.Host = "[::1]"; r.Host = "" }, "[::1]:443",
			map[string]string{":authority": "[::1]"}},
		"IDN": {func(r *http.Request) { r.URL.Host = "bücher.test"; r.Host = "" }, "xn--bcher-kva.test:443",
			map[string]string{":authority": "xn--bcher-kva.test"}},
		"raw path": {func(r *http.Request) {
			r.URL = &url.URL{Scheme: "https", Host: "peer.test", Path: "/a/b", RawPath: "/a%2Fb"}
		}, "peer.test:443", map[string]string{":path": "/a%2Fb"}},
		"no path": {func(r *http.Request) { r.URL = &url.URL{Scheme: "https", Host: "peer.test"} },
			"peer.test:443", map[string]string{":path": "/"}},
		"agent": {func(r *http.Request) { r.Header.Set("User-Agent", "me") }, "peer.test:443",
			map[string]string{"user-agent": "me"}},
		"no agent": {func(r *http.Request) { r.Header.Set("User-Agent", "") }, "peer.test:443",
			map[string]string{"user-agent": ""}},
		"close": {func(r *http.Request) { r.Header.Set("Connection", "close"); r.Header.Set("TE", "trailers") },
			"peer.test:443", map[string]string{"connection": "", "te": ""}},
		"header": {func(r *http.Request) { r.Header["X-a"] = []string{"b"} }, "peer.test:443",
			map[string]string{"x-a": "b"}},
		"empty body": {func(r *http.Request) { r.Body = http.NoBody }, "peer.test:443",
			map[string]string{":method": "GET"}},
		"host in head": {func(r *http.Request) { r.Header.Set("Host", "x"); r.Header.Set("Content-Length", "5") },
			"peer.test:443", map[string]string{"host": "", "content-length": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				ctx, cancel := context.WithCancel(b.Context())
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://peer.test/p?q", nil)
				require.NoError(t, err)
				c.change(req)
				b.calls.Go(func() { _, _ = b.transport.RoundTrip(req) })
				p := b.greeted()
				require.Equal(t, c.addr, p.addr)
				_, fields := p.request()
				for name, value := range c.want {
					require.Equal(t, value, fields[name], name)
				}
			})
		})
	}
}

func TestPeerThatSpeaksSomethingElse(t *testing.T) {
	s := serve(t, count)
	transport := h2.New(h2.Options{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		return dialTLS(ctx, addr, s.Certificate(), "http/1.1")
	}})
	defer transport.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	_, err = transport.RoundTrip(req)
	require.ErrorIs(t, err, h2.ErrNotHTTP2)
}
