// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"net"
	"os"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/seam"
)

// guardedDialer returns what dials addresses that others wrote down.
func guardedDialer(p resolver.DialPolicy) seam.DialFunc {
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		p.AllowLoopback = true // not a Pod: there are no sidecars, and local clusters are on loopback
	}
	return p.Dialer()
}

// dialer returns what dials for an access; own is the access's own, which only the operator's code can have brought.
func (cc *ClusterCache) dialer(access Access, own seam.DialFunc) seam.DialFunc {
	switch {
	case own != nil:
		return own
	case cc.options.Dial != nil:
		return cc.options.Dial
	case access.Trusted():
		return seam.Dial
	}
	return cc.guarded
}

// countDials wraps a dialer so that a new connection casts doubt on who answers: behind the same address there may be
// another cluster now, with the same certificates.
func (c *cluster) countDials(dial seam.DialFunc) seam.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			c.connections.Add(1)
		}
		return conn, err
	}
}
