// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
)

// echo responds with the headers that identify the client.
func echo(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, r.Header.Get("Authorization")+"|"+r.Header.Get("User-Agent")+
		"|"+r.Header.Get("Impersonate-User")+"|"+r.Header.Get("X-Wrapped"))
}

func TestConfigSaysWhoAsks(t *testing.T) {
	srv := serve(t, true, echo)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("from-file\n"), 0o600))
	for name, test := range map[string]struct {
		change func(*rest.Config)
		want   string
	}{
		"token":     {func(*rest.Config) {}, "Bearer secret|fleetcache||"},
		"anonymous": {func(c *rest.Config) { c.BearerToken = "" }, "|fleetcache||"},
		"basic": {func(c *rest.Config) { c.BearerToken, c.Username, c.Password = "", "u", "p" },
			"Basic dTpw|fleetcache||"},
		"token file": {func(c *rest.Config) { c.BearerTokenFile = file }, "Bearer from-file|fleetcache||"},
		"user agent": {func(c *rest.Config) { c.UserAgent = "mine" }, "Bearer secret|mine||"},
		"exec": {func(c *rest.Config) {
			c.BearerToken = ""
			c.ExecProvider = &api.ExecConfig{
				APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: api.NeverExecInteractiveMode,
				Command: "echo", Args: []string{
					`{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",` +
						`"status":{"token":"from-exec"}}`},
			}
		}, "Bearer from-exec|fleetcache||"},
		"impersonate": {func(c *rest.Config) { c.Impersonate.UserName = "jane" },
			"Bearer secret|fleetcache|jane|"},
		"wrapped": {func(c *rest.Config) {
			c.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return roundTripperFunc(func(req *http.Request) (*http.Response, error) {
					req = req.Clone(req.Context())
					req.Header.Set("X-Wrapped", "yes")
					return rt.RoundTrip(req)
				})
			})
		}, "Bearer secret|fleetcache||yes"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := srv.config("secret")
			cfg.Timeout = time.Nanosecond // would cut watches
			test.change(cfg)
			s := connect(t, Options{}, cfg)
			_, body, err := fetch(t.Context(), s, "/")
			require.NoError(t, err)
			require.Equal(t, test.want, body)
		})
	}
}

func TestRequestsOwnHeadersWin(t *testing.T) {
	srv := serve(t, true, echo)
	s := connect(t, Options{}, srv.config("secret"))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL(), nil)
	require.NoError(t, err)
	req.Header.Set("User-Agent", "theirs")
	resp, err := s.Client().Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "Bearer secret|theirs||", string(body))
	require.Empty(t, req.Header.Get("Authorization"), "the caller's request is not touched")
	require.Same(t, req, resp.Request, "the token is not handed back")
}

func TestBlockingWrapperIsCutToo(t *testing.T) {
	bubbles(t, func(t *testing.T, http2 bool) {
		n := newMemnet(t, http2, hangOrStream)
		cfg := n.config()
		cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
			return roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/token" { // as if it had fetched a token elsewhere
					<-req.Context().Done()
					return nil, req.Context().Err()
				}
				return rt.RoundTrip(req)
			})
		})
		s := connect(t, Options{Dial: n.dial}, cfg)
		stream := watch(t, s)
		failed := make(chan error, 1)
		go func() {
			_, _, err := fetch(t.Context(), s, "/token")
			failed <- err
		}()
		synctest.Wait()
		s.Shut(errGiveUp)
		requireClass(t, Cut, <-failed)
		_, err := stream.Read(make([]byte, 1))
		requireClass(t, Cut, err)
	})
}

func TestProxyIsUsedOnlyIfTheConfigHasOne(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.example:3128")
	var dialled atomic.Value
	dial := func(_ context.Context, _, address string) (net.Conn, error) {
		dialled.Store(address)
		return nil, net.ErrClosed
	}
	cfg := &rest.Config{Host: "https://api.example:6443"}
	s := connect(t, Options{Dial: dial}, cfg)
	_, err := s.Probe(t.Context(), "/version")
	require.Error(t, err)
	require.Equal(t, "api.example:6443", dialled.Load())
	cfg.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "configured.example:3128"})
	_, err = proveOnce(t, s, cfg, "/version")
	require.Error(t, err)
	require.Equal(t, "configured.example:3128", dialled.Load())
}

func TestTwoSeamsShareNothing(t *testing.T) {
	srv := serve(t, true, echo)
	a := connect(t, Options{}, srv.config("secret"))
	b := connect(t, Options{}, srv.config("secret"))
	for range 3 {
		for _, s := range []*Transport{a, b} {
			_, _, err := fetch(t.Context(), s, "/")
			require.NoError(t, err)
		}
	}
	require.EqualValues(t, 2, srv.conns.Load())
	a.Close()
	_, _, err := fetch(t.Context(), b, "/")
	require.NoError(t, err)
	require.EqualValues(t, 2, srv.conns.Load())
}

func TestServerThatTakesFewStreamsIsStillUsable(t *testing.T) {
	const streams, perConnection = 60, 7
	srv := serveLimited(t, perConnection, func(w http.ResponseWriter, r *http.Request) { streamLines(w, r, nil) })
	s := connect(t, Options{}, srv.config("secret"))
	for range streams {
		watch(t, s)
	}
	require.Equal(t, streams, s.Streams())
	require.LessOrEqual(t, int(srv.conns.Load()), (streams+perConnection-1)/perConnection+1)
}

func TestWatchKeepsOnlyTheHeadersThatTellHowToReadIt(t *testing.T) {
	srv := serve(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Audit-Id", "1")
		w.Header().Set("Set-Cookie", "a=b")
	})
	s := connect(t, Options{}, srv.config("secret"))
	resp, err := get(t.Context(), s, "/api/v1/pods?watch=true")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.Header{"Content-Type": {"application/json"}}, resp.Header)
}

func TestCallersTraceStillWorks(t *testing.T) {
	srv := serve(t, true, echo)
	s := connect(t, Options{}, srv.config("secret"))
	var got atomic.Int32
	ctx := httptrace.WithClientTrace(t.Context(),
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got.Add(1) }})
	for range 2 {
		_, _, err := fetch(ctx, s, "/")
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, got.Load())
}

func TestPlaceholderIsStableAndNamesNoHost(t *testing.T) {
	for cluster, want := range map[string]string{
		"":                      "https://hub.cluster.invalid",
		"fleet/Prod-1":          "https://fleet-prod-1.cluster.invalid",
		"../evil.example:443/?": "https://evil-example-443.cluster.invalid",
		"é":                     "https://hub.cluster.invalid",
		"a-very-long-name-that-is-much-longer-than-a-label-of-a-domain-name": "https://" +
			"a-very-long-name-that-is-much-longer-than-a-label-of-a-domain-n.cluster.invalid",
	} {
		require.Equal(t, want, New(Options{Cluster: cluster}).URL())
	}
}

// TestHazardWrapTransportRunsUnderALock: it is the operator's code, which may
// block, panic, or look at the state of the cluster.
func TestHazardWrapTransportRunsUnderALock(t *testing.T) {
	srv := serve(t, true, echo)
	s := newTransport(t, Options{})
	cfg := srv.config("secret")
	calls := 0
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		calls++
		free := s.mu.TryLock()
		if free {
			s.mu.Unlock()
		}
		require.True(t, free)
		return rt
	})
	require.NoError(t, s.Swap(cfg, "first"))
	s.Shut(nil)
	s.Open()
	_, _, err := fetch(t.Context(), s, "/")
	require.NoError(t, err)
	require.Equal(t, 1, calls)
}
