// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/phase"
)

// clients makes a cluster's live client when it is first needed.
type clients struct {
	mu   sync.Mutex // protects live; making it does no I/O
	live client.Client
}

func (s *clients) get(c *cluster) (client.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live != nil {
		return s.live, nil
	}
	inner := c.seam.Client()
	// The seam has the cluster's one rate limit: a limiter per kind, as client-go has, limits nothing.
	// Warnings are texts of the server's, which nobody bounds.
	live, err := client.New(&rest.Config{Host: c.seam.URL(), QPS: -1, WarningHandlerWithContext: rest.NoWarnings{}}, client.Options{
		HTTPClient: &http.Client{Transport: &deadline{next: inner.Transport, after: c.cc.options.RequestTimeout}, CheckRedirect: inner.CheckRedirect},
		Scheme:     c.cc.options.Scheme,
		Mapper:     c.mapper.RESTMapper(),
	})
	if err != nil {
		return nil, err
	}
	s.live = &liveClient{Client: live, after: c.cc.options.RequestTimeout}
	return s.live, nil
}

// Client returns a client of a cluster: reads are those of Reader, writes go to the API server. It does no I/O, and can be kept for
// as long as the cluster is known. Writes fail with [ErrNotConnected] at once while the cluster is not connected.
func (cc *ClusterCache) Client(cluster client.ObjectKey) (client.Client, error) {
	c, err := cc.known(cluster, "client")
	if err != nil {
		return nil, err
	}
	live, err := c.writer.get(c)
	if err != nil {
		return nil, &ClusterError{Cluster: cluster, Op: "client", Err: err}
	}
	return &cachedClient{Client: live, reader: c.reader}, nil
}

// LiveClient is Client without the cache: reads go to the API server, too, whatever is watched.
func (cc *ClusterCache) LiveClient(cluster client.ObjectKey) (client.Client, error) {
	c, err := cc.known(cluster, "live client")
	if err != nil {
		return nil, err
	}
	live, err := c.writer.get(c)
	if err != nil {
		return nil, &ClusterError{Cluster: cluster, Op: "live client", Err: err}
	}
	return live, nil
}

// known returns a cluster that is known, or why it cannot be used.
func (cc *ClusterCache) known(cluster client.ObjectKey, op string) (*cluster, error) {
	err := ErrUnknownCluster
	if cc.ctx.Err() != nil {
		err = ErrClosed
	} else if c := cc.find(cluster); c != nil && c.view.Load().phase != phase.Gone {
		return c, nil
	}
	return nil, &ClusterError{Cluster: cluster, Op: op, Err: err}
}

// cachedClient is a live client with cached reads.
type cachedClient struct {
	client.Client

	reader client.Reader
}

// Get implements client.Reader.
func (c *cachedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (c *cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.reader.List(ctx, list, opts...)
}

// RESTConfig returns a copy of how the cluster is reached now, for clients of one's own. It holds credentials, does not
// follow their rotation, and is not limited by the ClusterCache. It fails until the cluster was connected.
func (cc *ClusterCache) RESTConfig(cluster client.ObjectKey) (*rest.Config, error) {
	c, err := cc.known(cluster, "REST config")
	if err != nil {
		return nil, err
	}
	if v := c.view.Load(); v.connected && !v.access.IsZero() {
		return v.access.Config(), nil
	}
	return nil, &ClusterError{Cluster: cluster, Op: "REST config", Err: c.whyNot()}
}

// RESTMapper returns the mapper of a cluster. It shares what it knows with clusters that serve the same kinds. Its methods
// may ask the API server.
func (cc *ClusterCache) RESTMapper(cluster client.ObjectKey) (meta.RESTMapper, error) {
	c, err := cc.known(cluster, "REST mapper")
	if err != nil {
		return nil, err
	}
	return c.mapper.RESTMapper(), nil
}

// deadline bounds every request that is not a watch, until the end of its body.
type deadline struct {
	next  http.RoundTripper
	after time.Duration
}

var errDeadline = errors.New("request time-out")

// RoundTrip implements http.RoundTripper.
func (d *deadline) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Query().Get("watch") != "" {
		return d.next.RoundTrip(req)
	}
	ctx, cancel := context.WithTimeoutCause(req.Context(), d.after, errDeadline)
	resp, err := d.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	noteAnswer(ctx, resp)
	resp.Body = &cancelBody{ReadCloser: resp.Body, cancel: cancel}
	return resp, nil
}

type cancelBody struct {
	io.ReadCloser

	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b *cancelBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
