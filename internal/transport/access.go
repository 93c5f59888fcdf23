// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/credentialplugin"
)

const (
	maxResponseHeader = 256 << 10
	maxIdlePerHost    = 8
	idleTimeout       = 90 * time.Second
	// writesIdleTimeout is idleTimeout where a mux has the requests that are
	// sent all the time, and a connection of net/http only serves bursts.
	writesIdleTimeout   = 30 * time.Second
	tlsHandshakeTimeout = 10 * time.Second
	// A dead peer is detected after pingAfter + pingTimeout of silence. The sum
	// must not exceed 45 s.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
	// streamWindow is how much data per stream a slow reader can leave in our
	// memory. net/http's own 4 MiB, times hundreds of watches, would be too
	// much.
	streamWindow = 512 << 10
)

// access is a rest.Config that has been checked and made ready for use. It is
// immutable, apart from what files and plugins return.
type access struct {
	revision  string
	base      *url.URL // scheme, host and path prefix without trailing slash
	tls       *tls.Config
	dialer    DialFunc
	config    *transport.Config
	tokenFile transport.ResettableTokenSource // nil unless the config names a token file
	plugin    *credentialplugin.Plugin        // nil unless the config names one
	presented atomic.Pointer[tls.Certificate] // the plugin's certificate of the last handshake
	foreign   http.RoundTripper               // the config's own round trippers; nil if it has none
}

// newAccess checks cfg and reads the files it names. plugin is the credential
// plugin that it names, or nil; the config's own round trippers are put around
// innermost. newAccess ignores cfg.Timeout, which would cut watches, and cfg's
// rate limits, because the token bucket belongs to the cluster.
func newAccess(
	cfg *rest.Config, revision string, dial DialFunc, plugin *credentialplugin.Plugin, innermost http.RoundTripper,
) (*access, error) {
	if cfg == nil || cfg.Host == "" {
		return nil, errors.New("no server address")
	}
	if cfg.Transport != nil {
		return nil, errors.New("a custom Transport cannot be used: its connections could not be closed")
	}
	base, err := serverURL(cfg)
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.ExecProvider = nil // client-go's own runner waits for it without a limit
	if cfg.Dial == nil {
		cfg.Dial = dial
	}
	if len(cfg.NextProtos) == 0 {
		cfg.NextProtos = []string{"h2", "http/1.1"}
	}
	config, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	if config.HasBasicAuth() && config.HasTokenAuth() {
		return nil, errors.New("username and bearer token cannot be used together")
	}
	tlsConfig, err := transport.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	a := &access{
		revision: revision,
		base:     base,
		tls:      tlsConfig,
		dialer:   config.DialHolder.Dial,
		config:   config,
		plugin:   plugin,
	}
	if plugin != nil && tlsConfig != nil {
		tlsConfig.GetClientCertificate = a.present
	}
	if config.BearerTokenFile != "" {
		a.tokenFile = transport.NewCachedFileTokenSource(config.BearerTokenFile)
	}
	if a.wrapped() {
		a.foreign = a.wrap(innermost) // here, where no lock is held: it calls the operator's code
	}

	return a, nil
}

// errOldCertificate indicates that the connections were made with a client
// certificate that was replaced since.
var errOldCertificate = errors.New("the client certificate was replaced")

// serverURL returns the server's address. Its errors do not quote the address,
// which may contain a password.
func serverURL(cfg *rest.Config) (*url.URL, error) {
	secure := len(cfg.CAData) > 0 || cfg.CAFile != "" || len(cfg.CertData) > 0 || cfg.CertFile != "" || cfg.Insecure
	base, _, err := rest.DefaultServerURL(cfg.Host, "", schema.GroupVersion{}, secure)
	switch {
	case err != nil:
		return nil, errors.New("server address is not a URL or host:port")
	case base.Scheme != "https" && base.Scheme != "http":
		return nil, errors.New("server address is neither https nor http")
	case base.User != nil:
		return nil, errors.New("server address holds a user name")
	}

	return &url.URL{Scheme: base.Scheme, Host: base.Host, Path: strings.TrimRight(base.Path, "/")}, nil
}

// newTransport returns a new http.Transport that shares nothing with any other.
func (a *access) newTransport(dial DialFunc) *http.Transport {
	t := &http.Transport{
		DialContext: dial,
		// nil unless configured: the environment's proxy is not meant for
		// remote clusters.
		Proxy:                  guarded(a.config.Proxy),
		TLSClientConfig:        a.tls.Clone(),
		TLSHandshakeTimeout:    tlsHandshakeTimeout,
		DisableCompression:     a.config.DisableCompression,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
		Protocols:              new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:           pingAfter,
			PingTimeout:               pingTimeout,
			MaxReceiveBufferPerStream: streamWindow,
		},
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(slices.Contains(a.config.TLS.NextProtos, "h2"))
	return t
}

// guarded turns a panic in a config's proxy function into an error of the
// request. net/http calls the function on the goroutine of any request.
func guarded(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	if proxy == nil {
		return nil
	}
	return func(req *http.Request) (through *url.URL, err error) {
		err = callback.Apart("Proxy of the access", func() (err error) {
			through, err = proxy(req)
			return err
		})
		return through, err
	}
}

// muxable reports whether the config requires nothing that only net/http has.
func (a *access) muxable() bool {
	return a.base.Scheme == "https" && !a.wrapped() && a.config.Proxy == nil &&
		slices.Contains(a.config.TLS.NextProtos, "h2")
}

// wrapped reports whether the config brings its own round trippers.
func (a *access) wrapped() bool {
	return a.config.WrapTransport != nil || a.config.Impersonate.UserName != ""
}

// wrap puts the config's own round trippers around rt.
func (a *access) wrap(rt http.RoundTripper) http.RoundTripper {
	if a.config.WrapTransport != nil {
		rt = a.config.WrapTransport(rt)
	}
	if a.config.Impersonate.UserName != "" {
		rt = transport.NewImpersonatingRoundTripper(a.config.Impersonate, rt)
	}
	return rt
}

// present returns the plugin's client certificate for a handshake.
func (a *access) present(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	creds, err := a.plugin.Credentials(info.Context())
	if err != nil {
		return nil, &trusted{err: err}
	}
	if creds.Certificate == nil {
		return &tls.Certificate{}, nil
	}
	a.presented.Store(creds.Certificate)
	return creds.Certificate, nil
}

// authorize sets the headers that identify the client, unless the request
// already has them. It may wait for a credential plugin, no longer than ctx
// lasts.
func (a *access) authorize(ctx context.Context, h http.Header, userAgent string) error {
	if h.Get("User-Agent") == "" {
		if a.config.UserAgent != "" {
			userAgent = a.config.UserAgent
		}
		h.Set("User-Agent", userAgent)
	}

	if h.Get("Authorization") != "" {
		return nil
	}
	switch {
	case a.config.HasBasicAuth():
		basic := http.Request{Header: h}
		basic.SetBasicAuth(a.config.Username, a.config.Password)
	case a.tokenFile != nil:
		token, err := a.tokenFile.Token()
		if err != nil {
			return &trusted{err: fmt.Errorf("bearer token: %w", err)}
		}
		h.Set("Authorization", "Bearer "+token.AccessToken)
	case a.plugin != nil:
		return a.ask(ctx, h)
	case a.config.BearerToken != "":
		h.Set("Authorization", "Bearer "+a.config.BearerToken)
	}

	return nil
}

// ask sets the token of the plugin, if it returns one. If it returns another
// client certificate than the connections were made with, that is an error.
func (a *access) ask(ctx context.Context, h http.Header) error {
	creds, err := a.plugin.Credentials(ctx)
	if err != nil {
		return &trusted{err: err}
	}
	if creds.Token != "" {
		h.Set("Authorization", "Bearer "+creds.Token)
	}
	if old := a.presented.Load(); old != nil && old != creds.Certificate {
		return errOldCertificate
	}
	return nil
}

// renewToken causes a token that came from a file to be read again, and a
// plugin to be run again.
func (a *access) renewToken(asked time.Time) {
	if a.tokenFile != nil {
		a.tokenFile.ResetTokenOlderThan(asked)
	}
	if a.plugin != nil {
		a.plugin.Forget(asked)
	}
}

// rewrite returns the real server's URL for the placeholder URL u.
func (a *access) rewrite(u *url.URL) *url.URL {
	out := *u
	out.Scheme, out.Host, out.User = a.base.Scheme, a.base.Host, nil
	if a.base.Path != "" {
		out.Path = a.base.Path + u.Path
		if u.RawPath != "" {
			out.RawPath = a.base.EscapedPath() + u.RawPath
		}
	}

	return &out
}
