// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

const canary = "canary-7f3a"

func TestDecompressedBodiesAreBounded(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		const budget = 1 << 20
		srv := serve(t, http2, func(w http.ResponseWriter, r *http.Request) {
			size := budget
			if r.URL.Query().Has("over") {
				size++
			}
			if r.URL.Query().Has("length") {
				w.Header().Set("Content-Length", fmt.Sprint(size))
			}
			if r.URL.Query().Has("bomb") {
				w.Header().Set("Content-Encoding", "gzip")
				bomb := gzip.NewWriter(w)
				defer func() { _ = bomb.Close() }()
				_, _ = io.CopyN(bomb, zeros{}, 20*budget)
				return
			}
			_, _ = io.CopyN(w, zeros{}, int64(size))
		})
		s := connect(t, Options{MaxUnaryBody: budget}, srv.config("secret"))
		for _, path := range []string{"/fits", "/fits?length=1"} {
			_, body, err := fetch(t.Context(), s, path)
			require.NoError(t, err)
			require.Len(t, body, budget)
		}
		for _, path := range []string{"/?over=1", "/?over=1&length=1", "/?bomb=1"} {
			_, body, err := fetch(t.Context(), s, path)
			requireClass(t, Refused, err)
			require.ErrorIs(t, err, ErrBodyTooLarge)
			require.LessOrEqual(t, len(body), budget)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/?over=1", nil)
		require.NoError(t, err)
		resp, err := s.StreamClient().Do(req)
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.EqualValues(t, budget+1, n)
		require.NoError(t, resp.Body.Close())
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestErrorBodiesAreCutOff(t *testing.T) {
	srv := serve(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.CopyN(w, zeros{}, 100<<20)
	})
	s := connect(t, Options{MaxErrorBody: 1000}, srv.config("secret"))
	for _, path := range []string{"/version", "/api/v1/pods?watch=1"} {
		status, body, err := fetch(t.Context(), s, path)
		require.NoError(t, err, "the status is worth more than the error")
		require.Equal(t, http.StatusInternalServerError, status)
		require.Len(t, body, 1000)
	}
	proof, err := s.Probe(t.Context(), "/version")
	requireClass(t, Server, err)
	require.Len(t, proof.Body, 1000)
}

func TestRetryAfterIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for value, want := range map[string]string{
			"":                           "",
			"5":                          "5",
			"1000000000":                 "30",
			"99999999999999999999999999": "30",
			"-1":                         "0",
			"soon":                       "30",
			time.Now().Add(12 * time.Second).UTC().Format(http.TimeFormat): "12",
			time.Now().Add(99 * time.Hour).UTC().Format(http.TimeFormat):   "30",
			time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat):       "0",
		} {
			h := http.Header{}
			if value != "" {
				h.Set("Retry-After", value)
			}
			capRetryAfter(h)
			require.Equal(t, want, h.Get("Retry-After"), value)
		}
	})
	srv := serve(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1000000000")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	s := connect(t, Options{}, srv.config("secret"))
	resp, err := get(t.Context(), s, "/version")
	require.NoError(t, err)
	require.Equal(t, "30", resp.Header.Get("Retry-After"))
	require.NoError(t, resp.Body.Close())
	_, err = s.Probe(t.Context(), "/version")
	requireClass(t, Throttled, err)
}

// raw answers every connection with the given bytes, whatever the request.
func raw(answer string) DialFunc {
	return func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = http.ReadRequest(bufio.NewReader(theirs))
			_, _ = io.WriteString(theirs, answer)
			_ = theirs.Close()
		}()
		return ours, nil
	}
}

func TestErrorsHoldNothingOfTheRemoteSideNorOfTheRequest(t *testing.T) {
	var logs strings.Builder
	logger := funcr.New(func(prefix, args string) { logs.WriteString(prefix + args) }, funcr.Options{Verbosity: 9})
	for name, answer := range map[string]string{
		"status line": "HTTP/1.1 " + canary + "\r\n\r\n",
		"not HTTP":    canary + "\r\n\r\n",
		"header":      "HTTP/1.1 200 OK\r\n" + canary + "\r\n\r\n",
		"length":      "HTTP/1.1 200 OK\r\nContent-Length: " + canary + "\r\n\r\n",
		"encoding":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + canary + "\r\n\r\n",
		"chunk":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + canary + "\r\n",
		"short":       "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + canary,
		"gzip":        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + canary,
		"redirect":    "HTTP/1.1 302 Found\r\nLocation: https://" + canary + "/\r\n\r\n",
		"unauthorized": "HTTP/1.1 401 " + canary + "\r\nWww-Authenticate: " + canary +
			"\r\nContent-Length: 11\r\n\r\n" + canary,
		"server error":   "HTTP/1.1 500 " + canary + "\r\nContent-Length: 11\r\n\r\n" + canary,
		"HTML":           "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 11\r\n\r\n" + canary,
		"endless header": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat(canary, 100000) + "\r\n\r\n",
		"switch":         "HTTP/1.1 101 Switching Protocols\r\nUpgrade: " + canary + "\r\nConnection: Upgrade\r\n\r\n",
		"nothing":        "",
	} {
		t.Run(name, func(t *testing.T) {
			s := connect(t, Options{Dial: raw(answer), Logger: logger},
				&rest.Config{Host: "http://api.example/" + canary, BearerToken: canary})
			_, err := s.Probe(t.Context(), "/version?continue="+canary)
			require.Error(t, err)
			require.NotContains(t, fmt.Sprintf("%v %+v %q", err, err, err), canary)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.NotContains(t, fmt.Sprintf("%+v", e.Err), canary)

			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/version?continue="+canary,
				nil)
			require.NoError(t, err)
			resp, err := s.Client().Transport.RoundTrip(req)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			if err != nil {
				require.NotContains(t, err.Error(), canary)
				t.Logf("%s: %v", Classify(err), err)
			}
		})
	}
	require.NotContains(t, logs.String(), canary)
}

func TestUnusableConfigIsRefusedWithoutQuotingIt(t *testing.T) {
	pair := identity()
	for name, cfg := range map[string]*rest.Config{
		"nil":     nil,
		"no host": {},
		"scheme":  {Host: "ftp://" + canary},
		"no URL":  {Host: "https://" + canary + " x:y:z"},
		"user":    {Host: "https://user:" + canary + "@api.example"},
		"CA": {Host: "https://api.example",
			TLSClientConfig: rest.TLSClientConfig{CAData: []byte(canary)}},
		"certificate": {Host: "https://api.example",
			TLSClientConfig: rest.TLSClientConfig{CertData: []byte(canary), KeyData: pair.key}},
		"key": {Host: "https://api.example",
			TLSClientConfig: rest.TLSClientConfig{CertData: pair.cert, KeyData: []byte(canary)}},
		"CA and insecure": {Host: "https://api.example",
			TLSClientConfig: rest.TLSClientConfig{CAData: pair.cert, Insecure: true}},
		"token and user":   {Host: "https://api.example", BearerToken: canary, Username: "u", Password: canary},
		"custom transport": {Host: "https://api.example", Transport: http.DefaultTransport},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTransport(t, Options{})
			err := s.Swap(cfg, "r")
			requireClass(t, BadConfig, err)
			require.NotContains(t, err.Error(), canary)
			_, err = proveOnce(t, s, cfg, "/version")
			requireClass(t, BadConfig, err)
			require.Empty(t, s.Revision())
			require.Zero(t, generations(s))
		})
	}
}

func TestRequestForAnotherHostIsRefused(t *testing.T) {
	s := connect(t, Options{Dial: raw("")}, &rest.Config{Host: "http://api.example", BearerToken: canary})
	for _, address := range []string{"https://other.example/", "http://" + s.base.Host + "/", s.URL() + ":443/"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader("{}"))
		require.NoError(t, err)
		_, err = s.Client().Do(req)
		requireClass(t, Refused, err)
	}
}

func TestDialPolicyIsReportedAsItIs(t *testing.T) {
	refused := fmt.Errorf("169.254.169.254 is link-local: %w", ErrRefused)
	s := connect(t, Options{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, refused }},
		&rest.Config{Host: "https://api.example"})
	_, _, err := fetch(t.Context(), s, "/version")
	requireClass(t, Refused, err)
	require.ErrorContains(t, err, "169.254.169.254 is link-local")
}

func TestTLSFailuresAreTold(t *testing.T) {
	now := time.Now()
	good := newIdentity(now.Add(-time.Hour), now.Add(time.Hour), "api.example")
	for name, test := range map[string]struct {
		served pemPair
		ca     []byte
		want   Class
		text   string
	}{
		"unknown authority": {good, identity().cert, TLSUnknownAuthority, "unknown authority"},
		"bad name": {served: newIdentity(now.Add(-time.Hour), now.Add(time.Hour), canary), want: TLSBadName,
			text: `not valid for "api.example"`},
		"expired": {served: newIdentity(now.Add(-2*time.Hour), now.Add(-time.Hour), "api.example"),
			want: TLSExpired, text: "valid from"},
		"not yet valid": {served: newIdentity(now.Add(time.Hour), now.Add(2*time.Hour), "api.example"),
			want: TLSNotYetValid, text: "valid from"},
		"good": {served: good},
	} {
		t.Run(name, func(t *testing.T) {
			ca := test.ca
			if ca == nil {
				ca = test.served.cert
			}
			s := connect(t, Options{Dial: servedWith(t, &tls.Config{}, test.served)},
				&rest.Config{Host: "https://api.example", TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
			_, err := s.Probe(t.Context(), "/version")
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			requireClass(t, test.want, err)
			require.ErrorContains(t, err, test.text)
			require.NotContains(t, err.Error(), "canary")
		})
	}
}

func TestRejectedClientCertificateCountsAsUnauthorized(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		rejected := make(chan string, 2)
		s := connect(t, Options{
			Dial: servedWith(t, &tls.Config{
				MaxVersion: version,
				ClientAuth: tls.RequireAndVerifyClientCert,
			}, identity()),
			Unauthorized: func(revision string) { rejected <- revision },
		}, &rest.Config{Host: "https://api.example", TLSClientConfig: rest.TLSClientConfig{
			CAData: identity().cert, CertData: identity().cert, KeyData: identity().key}})
		_, err := s.Probe(t.Context(), "/version")
		requireClass(t, Unauthorized, err)
		require.Len(t, rejected, 1)
	}
}

// servedWith starts a TLS server with the given identity that answers every
// request with 200, and returns the DialFunc for it.
func servedWith(t *testing.T, config *tls.Config, with pemPair) DialFunc {
	t.Helper()
	pair, err := tls.X509KeyPair(with.cert, with.key)
	require.NoError(t, err)
	config.Certificates = []tls.Certificate{pair}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = conn.Close() }()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.WriteString(conn,
						"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}")
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, listener.Addr().String())
	}
}

func TestPlainHTTPServerIsTold(t *testing.T) {
	s := connect(t, Options{Dial: raw("HTTP/1.1 400 Bad Request\r\n\r\n" + canary)},
		&rest.Config{Host: "https://api.example"})
	_, err := s.Probe(t.Context(), "/version")
	requireClass(t, TLS, err)
	require.NotContains(t, err.Error(), canary)
}

// TestHazardServerNegotiatesHTTP2AndSpeaksAnother: such a server, or a proxy in
// front of one, is not dialed in a loop.
func TestHazardServerNegotiatesHTTP2AndSpeaksAnother(t *testing.T) {
	serve := servedWith(t, &tls.Config{NextProtos: []string{"h2"}}, newIdentity(
		time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "api.example"))
	var dials atomic.Int32
	s := connect(t, Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return serve(ctx, network, address)
	}}, &rest.Config{Host: "https://api.example", TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	for _, path := range []string{"/api/v1/pods", "/api/v1/pods?watch=1"} {
		dials.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		requireClass(t, Unreachable, second(get(ctx, s, path)))
		require.EqualValues(t, 1, dials.Load())
	}
}

func TestUnreachableAndUnknownHosts(t *testing.T) {
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := closed.Addr().String()
	require.NoError(t, closed.Close())
	s := connect(t, Options{}, &rest.Config{Host: "https://" + address})
	_, err = s.Probe(t.Context(), "/version")
	requireClass(t, Unreachable, err)
	require.ErrorContains(t, err, "dial tcp "+address+": connect: connection refused")

	s = connect(t, Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp",
			Err: &net.DNSError{Err: "no such host", Name: "api.example", IsNotFound: true}}
	}}, &rest.Config{Host: "https://api.example"})
	_, err = s.Probe(t.Context(), "/version")
	requireClass(t, Unreachable, err)
	require.ErrorContains(t, err, "lookup api.example: no such host")
}

func TestHTTPClientErrorsStayClassified(t *testing.T) {
	s := newTransport(t, Options{})
	_, _, err := fetch(t.Context(), s, "/version")
	var wrapped *url.Error
	require.ErrorAs(t, err, &wrapped)
	require.Equal(t, Cut, Classify(err))
	require.ErrorIs(t, err, ErrNoAccess)
}

// TestHTMLPagesAreNoKubernetes: an HTML page says nothing about an API server,
// whatever its status, unless the status is a failure of the server that sent
// it.
func TestHTMLPagesAreNoKubernetes(t *testing.T) {
	for status, want := range map[int]Class{200: NotKubernetes, 403: NotKubernetes, 404: NotKubernetes,
		401: Unauthorized, 429: Throttled, 503: Server} {
		s := connect(t, Options{Dial: raw(
			fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>", status))},
			&rest.Config{Host: "http://api.example"})
		_, err := s.Probe(t.Context(), "/version")
		requireClass(t, want, err)
		require.Equal(t, want == NotKubernetes, errors.Is(err, ErrNotKubernetes))
		require.Equal(t, status == 401, apierrors.IsUnauthorized(err))
		require.Equal(t, status == 503, apierrors.IsServiceUnavailable(err))
	}
}
