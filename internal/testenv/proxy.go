// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
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

// NewProxy starts a proxy in front of the server. It is closed with the cluster
// if not before.
func (a *APIServer) NewProxy() (*Proxy, error) {
	inner, err := faultproxy.New(a.Addr())
	if err != nil {
		return nil, err
	}
	p := &Proxy{Proxy: inner, server: a}
	c := a.cluster
	c.mu.Lock()
	stopped := c.life.Err() != nil
	if !stopped {
		c.mu.proxies = append(c.mu.proxies, p)
	}
	c.mu.Unlock()

	if stopped { // Stop has already taken the list
		return nil, errors.Join(ErrStopped, inner.Close())
	}
	return p, nil
}

// Proxy is like NewProxy, for a test: the proxy is closed when the test ends,
// and the test fails if the proxy cannot be started.
func (a *APIServer) Proxy(t testing.TB) *Proxy {
	t.Helper()
	p, err := a.NewProxy()
	if err != nil {
		t.Fatalf("start a proxy in front of %s: %v", a.Addr(), err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close the proxy in front of %s: %v", a.Addr(), err)
		}
	})
	return p
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
