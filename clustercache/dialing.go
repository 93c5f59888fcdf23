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

// dialers returns what chooses the dialer for an access. own is the access's own
// dialer or nil; only the operator's code can provide one.
func (s *shared) dialers() func(access resolver.Access, own transport.DialFunc) transport.DialFunc {
	guarded := guardedDialer(s.options.DialPolicy) // one for all clusters: it keeps the hub's addresses
	return func(access resolver.Access, own transport.DialFunc) transport.DialFunc {
		switch {
		case own != nil:
			return s.bounded("Dial of the access", own)
		case s.options.Dial != nil:
			return s.bounded("Options.Dial", s.options.Dial)
		case access.Trusted():
			return transport.Dial
		}

		return guarded
	}
}

// bounded makes a user's dialer heed its context, and cancels that context when
// the cache ends: net/http continues a dial for a while after its request was
// cancelled.
func (s *shared) bounded(name string, dial transport.DialFunc) transport.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		// The context is not cancelled when the dial returns: a dialer may bind
		// its connection to it.
		defer context.AfterFunc(s.ctx, func() { cancel(ErrClosed) })()
		connect := func() (net.Conn, error) { return dial(ctx, network, address) }
		return callback.Until(ctx, s.calls, name, connect, func(conn net.Conn, err error) {
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
