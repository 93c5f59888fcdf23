// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"os"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// guardedDialer returns what dials addresses that others wrote down.
func guardedDialer(p resolver.DialPolicy) transport.DialFunc {
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		p.AllowLoopback = true // not a Pod: there are no sidecars, and local clusters are on loopback
	}
	return p.Dialer()
}

// dialer returns what dials for an access; own is the access's own, which only
// the operator's code can have brought.
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
