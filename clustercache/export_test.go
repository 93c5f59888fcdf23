// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

// Feeds returns how many feeds are told of what is watched.
func (cc *ClusterCache) Feeds() int { return len(cc.allFeeds()) }
