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

// dialing chooses the dialers of clusters.
type dialing struct {
	ctx     context.Context //nolint:containedctx // the cache's own life
	calls   *callback.Calls
	dial    transport.DialFunc // Options.Dial; nil: none
	guarded transport.DialFunc // one for all clusters: it keeps the hub's addresses
}

// dialer returns the dialer for an access. own is the access's own dialer or
// nil; only the operator's code can provide one.
func (d *dialing) dialer(access resolver.Access, own transport.DialFunc) transport.DialFunc {
	switch {
	case own != nil:
		return d.bounded("Dial of the access", own)
	case d.dial != nil:
		return d.bounded("Options.Dial", d.dial)
	case access.Trusted():
		return transport.Dial
	}

	return d.guarded
}

// bounded makes a user's dialer heed its context, and cancels that context when
// the cache ends: net/http continues a dial for a while after its request was
// cancelled.
func (d *dialing) bounded(name string, dial transport.DialFunc) transport.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		// The context is not cancelled when the dial returns: a dialer may bind
		// its connection to it.
		defer context.AfterFunc(d.ctx, func() { cancel(ErrClosed) })()
		connect := func() (net.Conn, error) { return dial(ctx, network, address) }
		return callback.Until(ctx, d.calls, name, connect, func(conn net.Conn, err error) {
			if err == nil && conn != nil {
				_ = conn.Close()
			}
		})
	}
}

// guardedDialer returns the dialer for addresses from untrusted sources.
func guardedDialer(p resolver.DialPolicy) transport.DialFunc {
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		p.AllowLoopback = true // outside a Pod there are no sidecars, and local clusters are on loopback
	}
	return p.Dialer()
}
