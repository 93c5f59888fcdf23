// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package embedded gives the example programs clusters that start at once: API
// servers in this process, which store what they are given in memory and are
// reached over a network in memory.
//
// They lack what needs processes: etcd, ports, files and clients outside of
// this process. They validate little, set no defaults, and admit every request
// that has the token.
package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/memnet"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

const (
	domain = ".embedded.test" // contains all clusters
	token  = "embedded"       // of the only user, who may do everything
)

// Fleet is a set of clusters and the network to them.
type Fleet struct {
	// Clusters are the clusters, in order. The slice must not be modified.
	Clusters []*Cluster
}

// Start starts a cluster for each of the names, which must be valid in DNS. The
// caller must call Stop.
func Start(names ...string) (*Fleet, error) {
	hosts := make([]string, 0, len(names))
	for _, name := range names {
		hosts = append(hosts, name+domain)
	}
	ca, key, err := cert.GenerateSelfSignedCertKey("servers"+domain, nil, hosts)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(ca, key)
	if err != nil {
		return nil, err
	}
	f := &Fleet{}
	for _, name := range names {
		c, err := start(name, ca, pair)
		if err != nil {
			f.Stop()
			return nil, fmt.Errorf("cluster %s: %w", name, err)
		}
		f.Clusters = append(f.Clusters, c)
	}
	return f, nil
}

// Stop ends all clusters, and waits until they serve no request any more.
func (f *Fleet) Stop() {
	for _, c := range f.Clusters {
		c.stop()
	}
}

// Dial connects to a cluster of the fleet, by its host name.
func (f *Fleet) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(f.Clusters, func(c *Cluster) bool { return c.name+domain == host })
	if i < 0 {
		return nil, &net.OpError{
			Op:  "dial",
			Net: network,
			Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true},
		}
	}
	return f.Clusters[i].net.Dial(ctx, network, address)
}

// Cluster is an API server in memory. Its methods have the meaning of those of
// a testenv.Cluster, and those of a testenv.Proxy that is the only way to it.
// They are safe for concurrent use.
type Cluster struct {
	name   string
	server *fakeapi.Server
	net    *memnet.Listener
	config *rest.Config
	client client.Client
	stop   func()
}

// start starts a cluster whose server has a certificate that is its own
// authority.
func start(name string, ca []byte, pair tls.Certificate) (*Cluster, error) {
	c := &Cluster{
		name: name,
		server: fakeapi.New(fakeapi.Options{
			Identity:     name,
			Authenticate: func(given string) (string, bool) { return "admin", given == token },
		}),
		net: memnet.Listen(),
	}
	c.config = &rest.Config{
		Host:            "https://" + name + domain,
		BearerToken:     token,
		Dial:            c.net.Dial,
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme))
	if err != nil {
		return nil, err
	}
	// The administrator's requests do not pass through the network.
	c.client, err = client.New(c.config, client.Options{
		Scheme:     scheme,
		HTTPClient: &http.Client{Transport: c.server.Transport()},
	})
	if err != nil {
		return nil, err
	}
	c.stop = memnet.Serve(c.net, &http.Server{ //nolint:gosec // in memory
		Handler:   c.server,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
	return c, nil
}

// Name returns the name of the cluster.
func (c *Cluster) Name() string { return c.name }

// Config returns a new config for reaching the cluster over the network.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns Config as a kubeconfig, without the network: its users
// need Dial.
func (c *Cluster) Kubeconfig() []byte { return testenv.Kubeconfig(c.config) }

// Client returns the administrator's client. It works whatever happens to the
// network.
func (c *Cluster) Client() client.Client { return c.client }

// InstallCRDs creates the definitions. Their kinds are served when it returns.
func (c *Cluster) InstallCRDs(ctx context.Context, crds ...*apiextensionsv1.CustomResourceDefinition) error {
	for _, crd := range crds {
		if err := c.client.Create(ctx, crd.DeepCopy()); err != nil {
			return fmt.Errorf("install CRDs in cluster %s: %w", c.name, err)
		}
	}
	return nil
}

// Kill makes the cluster look to its clients as if the server's process had
// died: connections are reset, and new ones refused. It returns no error.
func (c *Cluster) Kill() error {
	c.net.Down()
	return nil
}

// StartAPIServer makes the cluster look as if the server's process had been
// started again after Kill: connections are accepted, the data is as before,
// and watches cannot resume from before the start. It returns no error.
func (c *Cluster) StartAPIServer(context.Context) error {
	c.server.Compact()
	c.net.Up()
	return nil
}

// Refuse resets all connections and refuses new ones, until Heal.
func (c *Cluster) Refuse() { c.net.Down() }

// Heal ends what Refuse began. It returns no error.
func (c *Cluster) Heal() error {
	c.net.Up()
	return nil
}

// Requests returns the requests that the server has received over the network
// and that match all of the matches, in order. It returns no error.
func (c *Cluster) Requests(matches ...testenv.Match) ([]testenv.Request, error) {
	var found []testenv.Request
	for _, r := range c.server.Requests(nil) {
		seen := testenv.Request{
			Verb:        r.Verb,
			Group:       r.Group,
			Version:     r.Version,
			Resource:    r.Resource,
			Subresource: r.Subresource,
			Namespace:   r.Namespace,
			Name:        r.Name,
			User:        r.User,
			UserAgent:   r.UserAgent,
			URI:         r.Path + "?" + r.Query,
		}
		if !slices.ContainsFunc(matches, func(m testenv.Match) bool { return !m(seen) }) {
			found = append(found, seen)
		}
	}
	return found, nil
}
