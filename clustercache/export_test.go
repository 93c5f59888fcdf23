// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Feeds returns how many feeds are told of what is watched.
func (cc *ClusterCache) Feeds() int { return len(cc.allFeeds()) }

// NextAttempt returns when the next attempt to connect is due, zero if none is.
// Nothing may be under way: who handles next takes the lock after this.
func (cc *ClusterCache) NextAttempt(key client.ObjectKey) time.Time {
	c := cc.find(key)
	if c == nil {
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.state.RetryAt
}
