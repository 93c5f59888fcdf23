// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/internal/testenv/faultproxy"
)

// Proxy is a fault proxy in front of an API server. TLS passes through it and
// verifies as without it.
type Proxy struct {
	*faultproxy.Proxy

	server *APIServer
}

// Proxy starts a proxy in front of the server. It is closed when the test ends,
// and the test fails if it cannot be started.
func (a *APIServer) Proxy(t testing.TB) *Proxy {
	t.Helper()
	inner, err := faultproxy.New(a.Addr())
	if err != nil {
		t.Fatalf("start a proxy in front of %s: %v", a.Addr(), err)
	}
	t.Cleanup(func() {
		if err := inner.Close(); err != nil {
			t.Errorf("close the proxy in front of %s: %v", a.Addr(), err)
		}
	})
	return &Proxy{Proxy: inner, server: a}
}

// Redirect returns a copy of a config for the cluster, for any user, that
// connects through the proxy.
func (p *Proxy) Redirect(config *rest.Config) *rest.Config {
	config = p.server.Redirect(config)
	config.Host = "https://" + p.Addr()
	return config
}

// Config returns a new config for the administrator that connects through the
// proxy.
func (p *Proxy) Config() *rest.Config { return p.Redirect(p.server.Config()) }

// Kubeconfig returns a kubeconfig for the administrator that connects through
// the proxy.
func (p *Proxy) Kubeconfig() []byte { return Kubeconfig(p.Config()) }
