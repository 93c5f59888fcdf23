// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package settable

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/changes"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// Answer is what Resolve returns for a cluster: the access, or the reason why
// there is none.
type Answer struct {
	Access resolver.Access
	// Err is the reason. If it is nil and Access is the zero Access, the reason
	// is [resolver.ErrNotReady].
	Err error
}

// Resolver resolves the clusters that were set. Make one with [New]. All
// methods are safe for concurrent use, and only Clusters and Notify block.
type Resolver struct {
	changes changes.Broadcaster
	synced  chan struct{} // closed once everything was set

	mu struct {
		sync.Mutex // taken before the locks of changes

		entries map[resolver.Cluster]entry
		deleted map[resolver.Cluster]struct{} // nil once synced is closed
	}
}

// entry is the answer for one cluster.
type entry struct {
	Answer

	meaning string // equal meanings are no change
}

var (
	_ resolver.Resolver = (*Resolver)(nil)
	_ resolver.Notifier = (*Resolver)(nil)
	_ resolver.Lister   = (*Resolver)(nil)
)

// New returns a resolver that knows no cluster yet.
func New() *Resolver {
	r := &Resolver{synced: make(chan struct{})}
	r.mu.entries = map[resolver.Cluster]entry{}
	r.mu.deleted = map[resolver.Cluster]struct{}{}
	return r
}

// Set makes the cluster known, with the results of a function such as
// [resolver.Kubeconfig]: its access, or an error. With an error the cluster
// stays known: it shows the error in its status, and if it is connected, it
// keeps the access that it has. An error that is a [resolver.ErrNoAccess] ends
// the connection after the cache's grace. An answer that equals the present one
// is no change.
func (r *Resolver) Set(cluster resolver.Cluster, access resolver.Access, err error) {
	e := newEntry(cluster, Answer{Access: access, Err: err})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.setLocked(cluster, e) {
		r.changes.Publish(cluster)
	}
}

// Delete makes the cluster unknown. A ClusterCache ends its connection after a
// grace, in which the cluster may be set again.
func (r *Resolver) Delete(cluster resolver.Cluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deleteLocked(cluster) {
		r.changes.Publish(cluster)
	}
}

// Replace makes exactly the given clusters known, as Set and Delete would, and
// then does what Synced does. Only clusters whose answer differs are reported.
func (r *Resolver) Replace(clusters map[resolver.Cluster]Answer) {
	entries := make(map[resolver.Cluster]entry, len(clusters))
	for cluster, answer := range clusters {
		entries[cluster] = newEntry(cluster, answer)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	var changed []resolver.Cluster
	for cluster := range r.mu.entries {
		if _, stays := entries[cluster]; !stays && r.deleteLocked(cluster) {
			changed = append(changed, cluster)
		}
	}
	for cluster, e := range entries {
		if r.setLocked(cluster, e) {
			changed = append(changed, cluster)
		}
	}

	r.changes.Publish(changed...)
	r.syncedLocked()
}

// Synced states that every cluster that exists was set: from now on, a cluster
// that was not set does not exist. It is idempotent.
func (r *Resolver) Synced() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.syncedLocked()
}

func (r *Resolver) syncedLocked() {
	if r.mu.deleted != nil {
		r.mu.deleted = nil
		close(r.synced)
	}
}

func (r *Resolver) setLocked(cluster resolver.Cluster, e entry) (changed bool) {
	before, had := r.mu.entries[cluster]
	r.mu.entries[cluster] = e
	return !had || before.meaning != e.meaning
}

func (r *Resolver) deleteLocked(cluster resolver.Cluster) (changed bool) {
	_, had := r.mu.entries[cluster]
	delete(r.mu.entries, cluster)
	if r.mu.deleted != nil {
		_, known := r.mu.deleted[cluster]
		r.mu.deleted[cluster] = struct{}{}
		had = had || !known
	}
	return had
}

// newEntry completes an answer. It calls methods of the error, which are the
// operator's, and must not be called under the lock.
func newEntry(cluster resolver.Cluster, answer Answer) entry {
	if answer.Err == nil && answer.Access.IsZero() {
		answer.Err = resolver.ErrNotReady
	}
	if answer.Err == nil {
		labels := labels.Set(answer.Access.Labels()).String()
		return entry{Answer: answer, meaning: answer.Access.Revision() + " " + labels}
	}
	err := answer.Err
	if have, ok := errors.AsType[*resolver.AccessError](err); !ok || have.Cluster != cluster {
		err = &resolver.AccessError{Cluster: cluster, Err: err}
	}
	return entry{
		Answer:  Answer{Err: err},
		meaning: fmt.Sprintf("%t %v", errors.Is(err, resolver.ErrNoAccess), err),
	}
}

// Resolve implements [resolver.Resolver]. The error is the one that was set; for
// a cluster that was not set, or was deleted, it is a
// [resolver.ErrClusterNotFound]. Before Synced, a cluster that was neither set
// nor deleted is a [resolver.ErrNotReady]: it may yet be set.
func (r *Resolver) Resolve(_ context.Context, cluster resolver.Cluster) (resolver.Access, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	e, known := r.mu.entries[cluster]
	_, deleted := r.mu.deleted[cluster]
	switch {
	case known:
		return e.Access, e.Err
	case r.mu.deleted == nil || deleted:
		return resolver.Access{}, &resolver.AccessError{Cluster: cluster, Err: resolver.ErrClusterNotFound}
	}

	return resolver.Access{}, &resolver.AccessError{Cluster: cluster, Err: errNotSynced}
}

// Notify implements [resolver.Notifier]. It reports clusters as soon as they
// are set, also before Synced.
func (r *Resolver) Notify(ctx context.Context, changed func(resolver.Cluster)) error {
	reader := r.changes.Subscribe()
	defer r.changes.Unsubscribe(reader)
	reader.Add(r.known()...)
	reader.Deliver(ctx, changed)

	return nil
}

// Clusters implements [resolver.Lister]. Before Synced it blocks: a part of the
// clusters is no answer. The error is the cause of the end of ctx.
func (r *Resolver) Clusters(ctx context.Context) ([]resolver.Cluster, error) {
	select {
	case <-r.synced:
		return r.known(), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (r *Resolver) known() []resolver.Cluster {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.mu.entries), clustername.Compare)
}

// errNotSynced is the error of a cluster that was not set before everything
// was.
var errNotSynced error = notSyncedError{}

type notSyncedError struct{}

func (notSyncedError) Error() string { return "the cluster was not set yet" }

func (notSyncedError) Unwrap() error { return resolver.ErrNotReady }
