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

// clients makes a cluster's live client on first use. The client of
// controller-runtime remembers forever how a kind is served, so a new inner one
// is made when discovery has changed. Users hold a followingClient, which uses
// the current one.
type clients struct {
	mu     sync.Mutex // protects the fields below; making clients does no I/O
	live   client.Client
	inner  client.Client
	asOf   int64 // the mapper's Changes that inner was made at
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
		s.live = &liveClient{
			Client: &followingClient{c: c},
			after:  o.RequestTimeout,
			limit:  o.MaxLiveBytes,
			item:   o.Informers.MaxObjectBytes,
		}
	}

	return s.live, nil
}

// current returns a client that is up to date with discovery.
func (s *clients) current(c *cluster) (client.Client, error) {
	changes := c.mapper.Changes()
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.inner != nil && s.asOf == changes {
		return s.inner, nil
	}
	through := c.transport.Client()
	door := &liveDoor{unary: through.Transport, stream: c.transport.StreamClient().Transport}
	// The transport has the cluster's one rate limit; client-go's limiter,
	// which is one for each kind, would not limit the cluster. Warnings are
	// unbounded text from the server.
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

// askAgain refreshes discovery after an answer that suggests that the kind is
// served elsewhere now, and reports whether anything has changed since known.
// It refreshes at most once every Options.RetryInterval.
func (s *clients) askAgain(ctx context.Context, c *cluster, known int64) bool {
	if c.mapper.Changes() != known {
		return true // another call has refreshed it
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

// Client returns a client for a cluster. It reads as Reader does, and writes to
// the API server. Client does no I/O; its result can be kept for as long as the
// cluster is known. While the cluster is not connected, writes fail at once
// with [ErrNotConnected]. Errors of writes are a [*ClusterError], which
// apierrors.IsConflict and the like unwrap.
//
// Beware of Get, Extract and Apply: an apply configuration extracted from an
// object without managedFields is empty, and applying it removes everything
// that its manager owns. Pass [ForApply] to such a Get; it matters where
// Informers.DropManagedFields or a transform leaves managedFields out of the
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

// LiveClient is Client without the cache: reads go to the API server as well,
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

// known returns a known cluster, or the reason why it cannot be used.
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

// RESTConfig returns a copy of the cluster's current REST config, for making
// your own clients. It holds credentials and does not follow their rotation;
// its requests are not rate-limited by the ClusterCache. It fails while the
// cluster is not connected.
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

// RESTMapper returns the mapper of a cluster. Clusters that serve the same
// kinds share its data. Its methods may query the API server.
func (cc *ClusterCache) RESTMapper(cluster client.ObjectKey) (meta.RESTMapper, error) {
	c, err := cc.known(cluster, "REST mapper")
	if err != nil {
		return nil, err
	}
	return c.mapper.RESTMapper(), nil
}

// deadline bounds the time of every request that is not a watch, up to the end
// of the response body.
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
