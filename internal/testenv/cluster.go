// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/certs"
	"github.com/fleetcache/fleetcache/internal/testenv/assets"
)

// Cluster is a control plane: an etcd and, at first, one API server, whose
// methods it has. Its methods are safe for concurrent use; those that start or
// end processes run one at a time. After Stop they return [ErrStopped].
type Cluster struct {
	*APIServer

	name     string
	dir      string
	options  options
	binaries assets.Binaries
	pki      *pki
	admin    certs.Pair
	thread   *thread
	etcd     *etcdServer

	// turn holds a single token, the right to start and end processes.
	turn chan struct{}
	life context.Context //nolint:containedctx // ends with the cluster itself
	end  context.CancelFunc
	stop func() error // runs the actual Stop once

	mu struct {
		sync.Mutex

		serving   certs.Pair // signs new certificates of API servers
		client    client.Client
		transport http.RoundTripper // of client
		replicas  []*APIServer
		snapshots int
	}
}

// newCluster prepares a cluster without starting any process.
func newCluster(dir, name string, o options, binaries assets.Binaries, p *pki) (*Cluster, error) {
	c := &Cluster{
		name:     name,
		dir:      filepath.Join(dir, name),
		options:  o,
		binaries: binaries,
		pki:      p,
		admin:    p.clientCert(time.Now().Add(validity), "admin", "system:masters"),
		turn:     make(chan struct{}, 1),
	}
	c.mu.serving = p.serving
	c.life, c.end = context.WithCancel(context.Background())
	c.stop = sync.OnceValue(c.close)
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	c.thread = startThread()
	if c.etcd, err = newEtcd(filepath.Join(c.dir, "etcd"), binaries.Etcd, c.thread); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if c.APIServer, err = newAPIServer(c, "apiserver", settings{program: binaries.APIServer}); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if err := c.renewClient(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// start starts the processes for the first time.
func (c *Cluster) start(ctx context.Context) error {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := c.startAll(ctx); err != nil {
		return err
	}
	if len(c.options.crds) == 0 {
		return nil
	}
	return c.InstallCRDs(ctx, c.options.crds...)
}

// Name returns the name of the cluster.
func (c *Cluster) Name() string { return c.name }

// Client returns a client for the administrator. It has typed access to the
// built-in kinds and CustomResourceDefinition, and unstructured access to all
// others.
func (c *Cluster) Client() client.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.client
}

// renewClient replaces the client by one that trusts the current CA.
func (c *Cluster) renewClient() error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		return err
	}
	config := c.Config()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	made, err := client.New(config, client.Options{Scheme: scheme, HTTPClient: httpClient})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.mu.transport != nil {
		utilnet.CloseIdleConnectionsFor(c.mu.transport)
	}
	c.mu.client, c.mu.transport = made, httpClient.Transport

	return nil
}

// authority returns the authority for the certificates of API servers.
func (c *Cluster) authority() certs.Pair {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.serving
}

// servers returns all API servers.
func (c *Cluster) servers() []*APIServer {
	c.mu.Lock()
	defer c.mu.Unlock()

	var all []*APIServer
	if c.APIServer != nil {
		all = append(all, c.APIServer)
	}
	return append(all, c.mu.replicas...)
}

// begin takes a turn. The returned context ends with ctx and with the cluster.
// done ends the turn.
func (c *Cluster) begin(ctx context.Context) (_ context.Context, done func(), _ error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	case <-c.life.Done():
		return nil, nil, ErrStopped
	}

	if c.life.Err() != nil { // both were ready
		<-c.turn
		return nil, nil, ErrStopped
	}
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(c.life, func() { cancel(ErrStopped) })
	return ctx, func() {
		release()
		cancel(nil)
		<-c.turn
	}, nil
}

// Stop ends all processes of the cluster at once and for good, aborts
// operations in progress, and returns when nothing is left. Further calls do
// nothing.
func (c *Cluster) Stop() error { return c.stop() }

func (c *Cluster) close() error {
	c.end()
	c.turn <- struct{}{} // never given back
	c.mu.Lock()
	transport := c.mu.transport
	c.mu.Unlock()

	var errs []error
	for _, a := range c.servers() {
		errs = append(errs, a.close())
	}
	if c.etcd != nil {
		errs = append(errs, c.etcd.close())
	}
	if transport != nil {
		utilnet.CloseIdleConnectionsFor(transport)
	}
	c.thread.stop()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop cluster %s: %w", c.name, err)
	}
	return nil
}
