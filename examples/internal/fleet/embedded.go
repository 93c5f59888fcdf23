// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/testenv"
	"github.com/fleetcache/fleetcache/internal/testenv/faultproxy"
)

// loopback is the host of all clusters in memory.
const loopback = "127.0.0.1"

// embedded is an API server in this process, which stores what it is given in
// memory. It is reached by TCP, also from other processes, and through a proxy
// alone, which refuses connections while the server counts as dead.
//
// It lacks what needs processes and files: etcd, and flags. It validates little,
// sets no defaults, and admits every request that its user has the right to.
type embedded struct {
	name   string
	server *fakeapi.Server
	rights *rights
	front  *faultproxy.Proxy
	config *rest.Config // of the administrator
	client client.Client

	http    *http.Server
	serving chan struct{} // closed when no connection is accepted any more
}

// newEmbedded starts a cluster for each of the names. They must be stopped by
// stopEmbedded.
func newEmbedded(names []string) ([]*embedded, error) {
	ca, key, err := cert.GenerateSelfSignedCertKey(loopback, []net.IP{net.ParseIP(loopback)}, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(ca, key)
	if err != nil {
		return nil, err
	}
	var clusters []*embedded
	for _, name := range names {
		c := &embedded{name: name, rights: newRights(), serving: make(chan struct{})}
		if err := c.start(ca, pair); err != nil {
			return nil, errors.Join(fmt.Errorf("cluster %s: %w", name, err), stopEmbedded(clusters))
		}
		clusters = append(clusters, c)
	}
	return clusters, nil
}

// stopEmbedded ends clusters, and waits until they serve no request any more.
func stopEmbedded(clusters []*embedded) error {
	var errs []error
	for _, c := range clusters {
		errs = append(errs, c.stop())
	}
	return errors.Join(errs...)
}

// start serves with a certificate that is its own authority. Nothing is left
// running after an error.
func (c *embedded) start(ca []byte, pair tls.Certificate) (err error) {
	c.server = fakeapi.New(fakeapi.Options{
		Identity:     c.name,
		Authenticate: c.rights.authenticate,
		Intercept:    c.rights.intercept,
	})
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return err
	}
	if c.front, err = faultproxy.New(listener.Addr().String()); err != nil {
		return errors.Join(err, listener.Close())
	}
	c.config = &rest.Config{
		Host:            scheme + c.front.Addr(),
		BearerToken:     administrator,
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}
	if c.client, err = newClient(c.config); err != nil {
		return errors.Join(err, c.front.Close(), listener.Close())
	}
	c.http = &http.Server{
		Handler:           c.server,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // of connections that are cut on purpose
	}
	go func() {
		defer close(c.serving)
		_ = c.http.ServeTLS(listener, "", "") // until stop
	}()
	return nil
}

// newClient returns the administrator's client.
func newClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme))
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// stopTimeout bounds how long requests may take to notice that their connection
// is closed.
const stopTimeout = 10 * time.Second

func (c *embedded) stop() error {
	err := c.front.Close() // every connection ends, and so every watch
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err = errors.Join(err, c.http.Shutdown(ctx))
	<-c.serving
	return err
}

// Name implements Cluster.
func (c *embedded) Name() string { return c.name }

// Config implements Cluster.
func (c *embedded) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig implements Cluster.
func (c *embedded) Kubeconfig() []byte { return testenv.Kubeconfig(c.config) }

// Client implements Cluster.
func (c *embedded) Client() client.Client { return c.client }

// InstallCRDs implements Cluster.
func (c *embedded) InstallCRDs(ctx context.Context, crds ...*apiextensionsv1.CustomResourceDefinition) error {
	for _, crd := range crds {
		if err := c.client.Create(ctx, crd.DeepCopy()); err != nil {
			return fmt.Errorf("install CRDs in cluster %s: %w", c.name, err)
		}
	}
	return nil
}

// AddUser implements Cluster.
func (c *embedded) AddUser(ctx context.Context, name string, rules ...rbacv1.PolicyRule) (User, error) {
	u := &embeddedUser{cluster: c, name: name}
	return u, u.Grant(ctx, rules...)
}

// Kill implements Cluster: connections are reset, and new ones refused.
func (c *embedded) Kill() error {
	c.front.Refuse()
	return nil
}

// StopAPIServer implements Cluster. It is Kill: requests under way are not
// waited for.
func (c *embedded) StopAPIServer(context.Context) error { return c.Kill() }

// StartAPIServer implements Cluster: connections are accepted, the data is as
// before, and watches cannot resume from before the start.
func (c *embedded) StartAPIServer(context.Context) error {
	c.server.Compact()
	return c.front.Heal()
}

// Requests implements Cluster. It returns no error.
func (c *embedded) Requests(matches ...testenv.Match) ([]testenv.Request, error) {
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
			Time:        r.Time,
		}
		if !slices.ContainsFunc(matches, func(m testenv.Match) bool { return !m(seen) }) {
			found = append(found, seen)
		}
	}
	return found, nil
}

// OpenWatches implements Cluster. It returns no error.
func (c *embedded) OpenWatches(_ context.Context, resource string) (n int, err error) {
	for _, w := range c.server.Open() {
		if w.Resource == resource {
			n++
		}
	}
	return n, nil
}

// embeddedUser is a user of a cluster in memory.
type embeddedUser struct {
	cluster *embedded
	name    string
}

// Config implements User.
func (u *embeddedUser) Config() *rest.Config {
	config := u.cluster.Config()
	config.BearerToken = u.name
	return config
}

// Kubeconfig implements User.
func (u *embeddedUser) Kubeconfig() []byte { return testenv.Kubeconfig(u.Config()) }

// Grant implements User.
func (u *embeddedUser) Grant(_ context.Context, rules ...rbacv1.PolicyRule) error {
	u.cluster.rights.grant(u.name, rules)
	return nil
}
