// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"net"
	"os"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// guardedDialer returns the dialer for addresses from untrusted sources.
func guardedDialer(p resolver.DialPolicy) transport.DialFunc {
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		p.AllowLoopback = true // outside a Pod there are no sidecars, and local clusters are on loopback
	}
	return p.Dialer()
}

// dialer returns the dialer for an access. own is the access's own dialer or
// nil; only the operator's code can provide one.
func (cc *ClusterCache) dialer(access Access, own transport.DialFunc) transport.DialFunc {
	switch {
	case own != nil:
		return cc.bounded("Dial of the access", own)
	case cc.options.Dial != nil:
		return cc.bounded("Options.Dial", cc.options.Dial)
	case access.Trusted():
		return transport.Dial
	}

	return cc.guarded
}

// bounded makes a user's dialer heed its context, and cancels that context when
// the cache ends: net/http continues a dial for a while after its request was
// cancelled.
func (cc *ClusterCache) bounded(name string, dial transport.DialFunc) transport.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		// The context is not cancelled when the dial returns: a dialer may bind
		// its connection to it.
		defer context.AfterFunc(cc.ctx, func() { cancel(ErrClosed) })()
		return callback.Until(ctx, cc.calls, name, func() (net.Conn, error) { return dial(ctx, network, address) }, func(conn net.Conn, err error) {
			if err == nil && conn != nil {
				_ = conn.Close()
			}
		})
	}
}
