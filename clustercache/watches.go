// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Watches returns a snapshot of everything that is watched in a cluster, sorted by kind, namespace and selectors. It does no I/O
// and waits for nothing but short locks. The error is [ErrUnknownCluster].
func (cc *ClusterCache) Watches(cluster client.ObjectKey) ([]WatchStatus, error) {
	c := cc.find(cluster)
	if c == nil {
		return nil, &ClusterError{Cluster: cluster, Op: "watches", Err: ErrUnknownCluster}
	}
	held := c.holds.list()
	out := make([]WatchStatus, 0, len(held))
	for _, h := range held {
		out = append(out, c.watchStatus(h))
	}
	return out, nil
}

// list returns all that is wanted, sorted.
func (s *holds) list() []*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*hold, 0, len(s.all))
	for _, h := range s.all {
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b *hold) int {
		return cmp.Or(strings.Compare(a.id.gvk.String(), b.id.gvk.String()), strings.Compare(a.id.namespace, b.id.namespace),
			strings.Compare(a.id.labels, b.id.labels), strings.Compare(a.id.fields, b.id.fields))
	})
	return out
}
