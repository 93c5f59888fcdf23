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
