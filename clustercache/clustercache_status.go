// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// stuckAfter is how late the loop may be before it counts as stuck. Nothing in
// it blocks, so that only a machine with no processor time left comes near
// this.
const stuckAfter = time.Minute

var errNotListed = errors.New("the resolver has not listed the clusters yet")

// Listed returns the clusters that the resolver listed last, but for those that
// are gone since, sorted; with Options.Sharding those of all replicas. It is
// nil without Options.Discover, and before the first list.
func (cc *ClusterCache) Listed() []client.ObjectKey {
	var keys []client.ObjectKey
	for key := range cc.clusters.listing.clusters() {
		c := cc.clusters.find(key)
		gone := c != nil && c.conn.View().Phase == phase.Gone
		if !gone && !cc.clusters.listing.forgot(key, time.Time{}) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, clustername.Compare)
	return keys
}

// Statuses returns a snapshot of every cluster, including gone ones that are
// still held, sorted by key.
func (cc *ClusterCache) Statuses() []status.Cluster {
	clusters := cc.clusters.all()
	slices.SortFunc(clusters, func(a, b *cluster) int { return clustername.Compare(a.key, b.key) })
	out := make([]status.Cluster, len(clusters))
	for i, c := range clusters {
		out[i] = c.status()
	}
	return out
}

// Usage returns a snapshot of all watches and of their users.
func (cc *ClusterCache) Usage() Usage {
	books := cc.declared.collector.Snapshot()
	uses := map[status.WatchKey]*Use{}
	for _, c := range cc.clusters.all() {
		for _, w := range c.wants.All() {
			u := c.use(w)
			uses[u.Key] = &u
		}
	}

	out := Usage{Owners: make([]OwnerUse, 0, len(books.Owners)), Uses: make([]Use, 0, len(uses))}
	for _, o := range books.Owners {
		keys := cc.declared.keys(o.Uses...)
		sortKeys(keys)
		out.Owners = append(out.Owners, OwnerUse{
			Owner:     o.Owner,
			Uses:      keys,
			NextLook:  o.NextLook,
			GoneSince: o.GoneSince,
			LastError: o.Err,
			Message:   text(o.Err),
		})
	}

	for _, r := range books.Resources {
		for _, key := range cc.declared.keys(r.Resource) {
			if u := uses[key]; u != nil {
				u.Owners = append(u.Owners, r.Owners...)
				if r.UnusedSince.After(u.UnusedSince) {
					u.UnusedSince = r.UnusedSince
				}
			}
		}
	}

	for _, u := range uses {
		sortOwners(u.Owners)
		u.Owners = slices.Compact(u.Owners)
		if len(u.Owners) > 0 {
			u.UnusedSince = time.Time{}
		}
		out.Uses = append(out.Uses, *u)
	}
	slices.SortFunc(out.Owners, func(a, b OwnerUse) int { return compareOwners(a.Owner, b.Owner) })
	slices.SortFunc(out.Uses, func(a, b Use) int { return compareWatchKeys(a.Key, b.Key) })

	return out
}

// HealthzCheck returns a check for the manager's AddHealthzCheck. It fails if
// the loop that probes and reconnects has been stuck for a minute, and with
// [ErrClosed] after Start has ended. Clusters and the hub have no influence.
func (cc *ClusterCache) HealthzCheck() healthz.Checker {
	return func(*http.Request) error {
		if cc.ctx.Err() != nil {
			return context.Cause(cc.ctx)
		}
		if late := cc.timers.Late(time.Now()); cc.live.Load() && late > stuckAfter {
			return fmt.Errorf("cluster cache is stuck: its loop is %s behind", late.Round(time.Second))
		}
		return nil
	}
}

// ReadyzCheck returns a check for the manager's AddReadyzCheck. It fails until
// Start was called, unless Options.LeaderOnly is set, and until the resolver
// has listed the clusters once (Options.Discover); and with [ErrClosed] after
// Start has ended. Remote clusters have no influence: the operator of the
// others must stay in service.
func (cc *ClusterCache) ReadyzCheck() healthz.Checker {
	return func(*http.Request) error {
		switch {
		case cc.ctx.Err() != nil:
			return context.Cause(cc.ctx)
		case !cc.live.Load() && cc.options.LeaderOnly:
			return nil // ready to lead: a rollout must not wait for more
		case !cc.live.Load():
			return ErrNotStarted
		case cc.options.Discover && !cc.clusters.listing.listed.Load():
			return errNotListed
		}

		return nil
	}
}
