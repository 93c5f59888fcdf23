// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
)

// clients makes a cluster's live client when it is first needed. The client of
// controller-runtime remembers for ever how a kind is served, so that another
// one is made when discovery has changed; users hold one that follows.
type clients struct {
	mu     sync.Mutex // protects what follows; making clients does no I/O
	live   client.Client
	inner  client.Client
	asOf   int64 // of the mapper's changes
	asked  time.Time
	asking bool
}

func (s *clients) get(c *cluster) (client.Client, error) {
	if _, err := s.current(c); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		o := &c.cc.options
		s.live = &liveClient{Client: &followingClient{c: c}, after: o.RequestTimeout, limit: o.MaxLiveBytes, item: o.Informers.MaxObjectBytes}
	}
	return s.live, nil
}

// current returns a client that knows what discovery says now.
func (s *clients) current(c *cluster) (client.Client, error) {
	changes := c.mapper.Changes()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inner != nil && s.asOf == changes {
		return s.inner, nil
	}
	through := c.transport.Client()
	door := &liveDoor{unary: through.Transport, stream: c.transport.StreamClient().Transport}
	// The transport has the cluster's one rate limit: a limiter per kind, as
	// client-go has, limits nothing. Warnings are texts of the server's, which
	// nobody bounds.
	config := &rest.Config{
		Host:                      c.transport.URL(),
		QPS:                       -1,
		ContentConfig:             rest.ContentConfig{ContentType: mediaJSON},
		WarningHandlerWithContext: rest.NoWarnings{},
	}
	transport := &deadline{next: &answers{next: &liveGuard{c: c, next: door}}, after: c.cc.options.RequestTimeout}
	inner, err := client.New(config, client.Options{
		HTTPClient: &http.Client{Transport: transport, CheckRedirect: through.CheckRedirect},
		Scheme:     c.cc.options.Scheme,
		Mapper:     c.mapper.RESTMapper(),
	})
	if err != nil {
		return nil, err
	}
	s.inner, s.asOf = inner, changes
	return inner, nil
}

// askAgain has discovery asked after an answer that may come from another
// resource than the one that serves the kind, and reports whether anything has
// changed since known. It is asked no more often than every
// Options.RetryInterval.
func (s *clients) askAgain(ctx context.Context, c *cluster, known int64) bool {
	if c.mapper.Changes() != known {
		return true // another call has had it asked
	}
	s.mu.Lock()
	if s.asking || !s.asked.IsZero() && time.Since(s.asked) < c.cc.options.RetryInterval {
		s.mu.Unlock()
		return false
	}
	s.asking = true
	s.mu.Unlock()
	_ = c.mapper.Refresh(ctx) // without an answer nothing has changed
	s.mu.Lock()
	s.asking, s.asked = false, time.Now()
	s.mu.Unlock()
	if c.mapper.Changes() == known {
		return false
	}
	c.holds.remap.now()
	return true
}

// Client returns a client of a cluster: reads are those of Reader, writes go to
// the API server. It does no I/O, and can be kept for as long as the cluster is
// known. Writes fail with [ErrNotConnected] at once while the cluster is not
// connected; their errors are a [*ClusterError], through which
// apierrors.IsConflict and the like look.
//
// Beware of Get, Extract and Apply: an apply configuration that is extracted
// from an object without managedFields is empty, and applying it removes
// everything that its manager owns. Give [ForApply] to such a Get; it matters
// where Informers.DropManagedFields or a transform leaves them out of the
// cache.
func (cc *ClusterCache) Client(cluster client.ObjectKey) (client.Client, error) {
	c, err := cc.known(cluster, "client")
	if err != nil {
		return nil, err
	}
	live, err := c.writer.get(c)
	if err != nil {
		return nil, &ClusterError{Cluster: cluster, Op: "client", Err: err}
	}
	return &cachedClient{Client: &namedClient{Client: live, key: cluster}, reader: c.reader}, nil
}

// LiveClient is Client without the cache: reads go to the API server, too,
// whatever is watched.
func (cc *ClusterCache) LiveClient(cluster client.ObjectKey) (client.Client, error) {
	c, err := cc.known(cluster, "live client")
	if err != nil {
		return nil, err
	}
	live, err := c.writer.get(c)
	if err != nil {
		return nil, &ClusterError{Cluster: cluster, Op: "live client", Err: err}
	}
	return &namedClient{Client: live, key: cluster}, nil
}

// known returns a cluster that is known, or why it cannot be used.
func (cc *ClusterCache) known(cluster client.ObjectKey, op string) (*cluster, error) {
	err := ErrUnknownCluster
	if cc.ctx.Err() != nil {
		err = ErrClosed
	} else if !cc.live.Load() && cc.find(cluster) == nil {
		cc.used()
		err = fmt.Errorf("%w: %w", err, ErrNotStarted) // Discover may make it known
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

// RESTConfig returns a copy of how the cluster is reached now, for clients of
// one's own. It holds credentials, does not follow their rotation, and is not
// limited by the ClusterCache. It fails until the cluster was connected.
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

// RESTMapper returns the mapper of a cluster. It shares what it knows with
// clusters that serve the same kinds. Its methods may ask the API server.
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
