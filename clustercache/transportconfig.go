// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TransportConfig returns a config for clients of one's own whose requests go
// the way of the ClusterCache's: they follow credentials, moves and the coming
// back of a removed cluster, fail with [ErrNotConnected] or [ErrUnknownCluster]
// at once where there is no way, and count in the cluster's rate limit. It
// holds no credentials and does not name the real address; what opens
// connections by itself, as for exec and port-forward, needs
// [ClusterCache.RESTConfig] instead. Requests other than watches end after
// Options.RequestTimeout; warnings that the server sends are dropped. It does
// no I/O. The error is [ErrClosed], or [ErrUnknownCluster] if nobody asked for
// the cluster.
func (cc *ClusterCache) TransportConfig(cluster client.ObjectKey) (*rest.Config, error) {
	c, err := cc.find(cluster), ErrUnknownCluster
	if cc.ctx.Err() != nil {
		c, err = nil, ErrClosed
	}
	if c == nil {
		return nil, &ClusterError{Cluster: cluster, Op: "transport config", Err: err}
	}
	return &rest.Config{
		Host: c.transport.URL(), Transport: &follower{cc: cc, key: cluster}, QPS: -1, UserAgent: cc.options.UserAgent,
		WarningHandlerWithContext: rest.NoWarnings{},
	}, nil
}

// Scheme returns the scheme: Options.Scheme, or its default.
func (cc *ClusterCache) Scheme() *runtime.Scheme { return cc.options.Scheme }

// Started returns a channel that is closed once Start was called.
func (cc *ClusterCache) Started() <-chan struct{} { return cc.running }

// follower sends requests to whatever is the cluster now: one that was
// forgotten and made again has another transport.
type follower struct {
	cc  *ClusterCache
	key client.ObjectKey
}

// RoundTrip implements http.RoundTripper.
func (f *follower) RoundTrip(req *http.Request) (*http.Response, error) {
	c, err := f.cc.known(f.key, "request")
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	d := &deadline{next: &liveGuard{c: c, next: c.transport.Client().Transport}, after: f.cc.options.RequestTimeout}
	return d.RoundTrip(req)
}
