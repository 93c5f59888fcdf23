// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NextAttempt returns the time of the next attempt to connect, or zero if none
// is due. No message may be in handling.
func (cc *ClusterCache) NextAttempt(key client.ObjectKey) time.Time {
	c := cc.find(key)
	if c == nil {
		return time.Time{}
	}
	return c.conn.NextAttempt()
}
