// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/internal/certs"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/memnet"
)

// domain contains all clusters.
const domain = "fleet.test"

// certificate is that of all fake API servers, which clients trust.
var certificate = sync.OnceValue(func() certs.Pair { return certs.Server("clustercachetest", "*."+domain) })

// Cluster is a fake cluster: an in-memory API server, and the network to it.
// Its methods are safe for concurrent use. Their changes take effect in the
// cluster before they return; Fleet.WaitSynced waits until the ClusterCache has
// noticed.
type Cluster struct {
	fleet  *Fleet
	key    client.ObjectKey
	number int
	server *fakeapi.Server
	net    *memnet.Listener
	admin  client.WithWatch
	stop   func()

	mu      sync.Mutex // protects the fields below
	token   int        // the valid one
	issued  int        // how often it was issued in another form
	revoked bool       // the token is not valid either
	reach   bool       // connections are let through
	lives   int        // number of clusters that have been at this address
	faults  []*fault
	removed bool
}

func newCluster(f *Fleet, key client.ObjectKey, number int) *Cluster {
	c := &Cluster{
		fleet:  f,
		key:    key,
		number: number,
		net:    memnet.Listen(),
		reach:  true,
	}
	c.server = fakeapi.New(fakeapi.Options{
		Identity:     c.identity(),
		Kinds:        f.kinds(),
		Authenticate: c.authenticate,
		Intercept:    c.intercept,
	})
	return c
}

func (c *Cluster) identity() string { return fmt.Sprintf("%s/%d/%d", c.key, c.number, c.lives) }

func (c *Cluster) host() string { return fmt.Sprintf("c%d.%s", c.number, domain) }

// start serves until the test ends or the cluster is removed.
func (c *Cluster) start() {
	t := c.fleet.t
	t.Helper()
	httpClient := &http.Client{Transport: c.server.Transport()}
	config := &rest.Config{Host: "https://" + c.host(), QPS: -1, WarningHandlerWithContext: rest.NoWarnings{}}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err == nil {
		c.admin, err = client.NewWithWatch(config,
			client.Options{Scheme: c.fleet.scheme, HTTPClient: httpClient, Mapper: mapper})
	}
	if err != nil {
		t.Fatalf("clustercachetest: %v", err)
	}
	c.stop = memnet.Serve(c.net, &http.Server{ //nolint:gosec // in memory
		Handler:   c.server,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate().TLS()}, MinVersion: tls.VersionTLS12},
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: 100},
	})
	t.Cleanup(c.stop)
}

// Key returns the cluster's key.
func (c *Cluster) Key() client.ObjectKey { return c.key }

// Client returns the administrator's client, for the test's own reads and
// writes. It goes to the API server directly: it reads the current state, and
// works whatever is wrong with the network and with credentials. Faults, stale
// views and interruptions do not apply to it.
func (c *Cluster) Client() client.WithWatch { return c.admin }

// Store stores objects exactly as given, including their status, and creates
// their namespaces if necessary. An object that exists is replaced. The fields
// that an API server sets are set here, too: uid, resourceVersion,
// creationTimestamp, generation. The test fails if an object cannot be stored;
// the arguments are not modified.
func (c *Cluster) Store(objs ...client.Object) {
	c.fleet.t.Helper()
	for _, obj := range objs {
		u := &unstructured.Unstructured{}
		gvk, err := apiutil.GVKForObject(obj, c.fleet.scheme)
		if err == nil {
			u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		}
		if err == nil {
			u.Object = runtime.DeepCopyJSON(u.Object)
			u.SetGroupVersionKind(gvk)
			err = c.server.Seed(u)
		}
		if err != nil {
			c.fleet.t.Fatalf("clustercachetest: store %T %q in %s: %v",
				obj, client.ObjectKeyFromObject(obj), c.key, err)
		}
	}
}

// Serve makes the cluster serve a kind from now on.
func (c *Cluster) Serve(k Kind) { c.server.Register(k.served()) }

// ResourceVersion returns the latest version of the cluster's history.
func (c *Cluster) ResourceVersion() string { return strconv.FormatInt(c.server.ResourceVersion(), 10) }

// Config returns the current configuration for reaching the cluster: over the
// fake network, by a token that Rotate and Revoke make invalid.
func (c *Cluster) Config() *rest.Config {
	return &rest.Config{
		Host:            "https://" + c.host(),
		BearerToken:     c.bearer(),
		Dial:            c.dial,
		TLSClientConfig: rest.TLSClientConfig{CAData: certificate().Cert},
	}
}

// Kubeconfig returns the result of Config as a kubeconfig. It contains
// everything but the network: its users need [Fleet.Dial].
func (c *Cluster) Kubeconfig() []byte {
	c.fleet.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["fake"] = &clientcmdapi.Cluster{
		Server:                   "https://" + c.host(),
		CertificateAuthorityData: certificate().Cert,
	}
	config.AuthInfos["fake"] = &clientcmdapi.AuthInfo{Token: c.bearer()}
	config.Contexts["fake"] = &clientcmdapi.Context{Cluster: "fake", AuthInfo: "fake"}
	config.CurrentContext = "fake"
	out, err := clientcmd.Write(*config)
	if err != nil {
		c.fleet.t.Fatalf("clustercachetest: %v", err)
	}

	return out
}

func (c *Cluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return c.net.Dial(ctx, network, address)
}

// Dial connects to the fake clusters, for clustercache.Options.Dial where
// access comes from kubeconfigs.
func (f *Fleet) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	for _, c := range f.all() {
		if c.host() == host {
			return c.net.Dial(ctx, network, address)
		}
	}
	return nil, &net.OpError{
		Op:  "dial",
		Net: network,
		Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true},
	}
}

func (c *Cluster) bearer() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bearerLocked()
}

func (c *Cluster) bearerLocked() string { return fmt.Sprintf("%s-%d", c.subjectLocked(), c.issued) }

// subjectLocked is what the forms of the valid token begin with.
func (c *Cluster) subjectLocked() string { return fmt.Sprintf("token-%d-of-%s", c.token, c.host()) }

func (c *Cluster) authenticate(token string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return "clustercachetest", !c.revoked && strings.HasPrefix(token, c.subjectLocked()+"-")
}
