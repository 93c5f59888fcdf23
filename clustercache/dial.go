// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"os"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
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
