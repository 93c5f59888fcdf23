// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
)

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
