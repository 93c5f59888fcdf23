// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
)

// TransportConfig returns a config for your own clients whose requests take the
// same route as the ClusterCache's: they follow changes of credentials and
// address, and the return of a removed cluster; they fail at once with
// [ErrNotConnected] or [ErrUnknownCluster] where there is no connection; and
// they count in the cluster's rate limit. The config holds no credentials and
// does not contain the real address; for code that opens connections by itself,
// as for exec and port-forward, use [ClusterCache.RESTConfig] instead. Requests
// other than watches end after Options.RequestTimeout; warnings that the server
// sends are dropped. TransportConfig does no I/O. The error is [ErrClosed], or
// [ErrUnknownCluster] if the cluster is not known.
func (cc *ClusterCache) TransportConfig(cluster client.ObjectKey) (*rest.Config, error) {
	c, err := cc.find(cluster), ErrUnknownCluster
	if cc.ctx.Err() != nil {
		c, err = nil, ErrClosed
	}
	if c == nil {
		return nil, &ClusterError{Cluster: cluster, Op: "transport config", Err: err}
	}
	return &rest.Config{
		Host:                      c.conn.Transport().URL(),
		Transport:                 &follower{cc: cc, key: cluster},
		QPS:                       -1,
		UserAgent:                 cc.options.UserAgent,
		WarningHandlerWithContext: rest.NoWarnings{},
	}, nil
}

// Scheme returns the scheme: Options.Scheme, or its default.
func (cc *ClusterCache) Scheme() *runtime.Scheme { return cc.options.Scheme }

// Started returns a channel that is closed once Start was called.
func (cc *ClusterCache) Started() <-chan struct{} { return cc.running }

// follower sends requests to the current transport of a cluster: a cluster that
// was forgotten and created again has another one.
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

	guarded := c.conn.Guard(c.conn.Transport().Client().Transport)
	return liveclient.NewDeadline(guarded, f.cc.options.RequestTimeout).RoundTrip(req)
}
