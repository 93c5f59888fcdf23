// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/timetable"
	"github.com/fleetcache/fleetcache/internal/workpool"
)

// clusters are the known clusters, and what they share.
type clusters struct {
	*shared

	connections connection.Config
	lookUp      workpool.Workers // look-ups of kinds
	listing     *listing
	hooks       clusterHooks
	twins       twins

	mu    sync.RWMutex // taken before a cluster's own locks
	byKey map[client.ObjectKey]*cluster
}

// find returns a cluster by its key, or nil.
func (s *clusters) find(key client.ObjectKey) *cluster {
	s.mu.RLock()
	c := s.byKey[key]
	s.mu.RUnlock()
	return c
}

// all returns every cluster.
func (s *clusters) all() []*cluster {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.byKey))
}

// engage returns the cluster, and makes and starts it if necessary. pin keeps
// it from being forgotten.
func (s *clusters) engage(key client.ObjectKey, pin bool) (*cluster, error) {
	s.used()
	for s.ctx.Err() == nil {
		if c, ok := s.tryEngage(key, pin); ok {
			return c, nil
		}
	}
	return nil, &ClusterError{Cluster: key, Op: "engage", Err: ErrClosed}
}

// tryEngage is engage. It returns false if the cluster is being forgotten at
// the same moment.
func (s *clusters) tryEngage(key client.ObjectKey, pin bool) (*cluster, bool) {
	s.mu.Lock()
	c := s.byKey[key]
	fresh := c == nil
	if fresh {
		c = newCluster(s, key)
		s.byKey[key] = c
		s.hooks.added(c)
	}
	if pin {
		c.pinned.Store(true)
		c.leaving.Store(false)
	}
	s.mu.Unlock()

	if fresh {
		c.announce()
		s.hooks.changed(c, isKnown)
	}
	if fresh || c.conn.View().Phase == phase.Gone {
		return c, c.conn.Ask()
	}
	return c, true
}

// acquire takes a reference to a selection of a cluster; auto makes it that of
// reads in mode AutoWatch. It creates a cluster that is being forgotten at this
// moment again.
func (s *clusters) acquire(key client.ObjectKey, id wants.Selection, auto bool) (*cluster, *wants.Want, error) {
	for {
		c, err := s.engage(key, false)
		if err != nil {
			return nil, nil, clusterError("watch", key, id.GVK, ErrClosed)
		}

		var w *wants.Want
		if auto {
			w = c.wants.Keep(id)
		} else {
			w = c.wants.Acquire(id)
		}

		if w != nil {
			// The cluster may have been forgotten between the two calls: now
			// that it is wanted it must return.
			if c.conn.View().Phase == phase.Gone {
				c.conn.Ask()
			}
			return c, w, nil
		}
	}
}

// known returns a known cluster, or the reason why it cannot be used.
func (s *clusters) known(cluster client.ObjectKey, op string) (*cluster, error) {
	err := ErrUnknownCluster
	if s.ctx.Err() != nil {
		err = ErrClosed
	} else if !s.live.Load() && s.find(cluster) == nil {
		s.used()
		err = fmt.Errorf("%w: %w", err, ErrNotStarted) // Discover may make it known
	} else if c := s.find(cluster); c != nil && c.conn.View().Phase != phase.Gone {
		return c, nil
	}

	return nil, &ClusterError{Cluster: cluster, Op: op, Err: err}
}

// forget removes a cluster that is gone and not wanted. Another cluster of the
// same key can be made at once: the two share nothing.
func (s *clusters) forget(c *cluster) {
	s.mu.Lock()
	back := c.conn.View().Phase != phase.Gone // wanted again since forget was decided
	if s.byKey[c.key] != c || back || c.pinned.Load() {
		s.mu.Unlock()

		if back {
			c.letGo() // its last want may have been released before it was back
		}
		return
	}
	kept, ok := c.wants.CloseIfEmpty()
	if !ok {
		s.mu.Unlock()
		return
	}
	delete(s.byKey, c.key)
	listed := c.discovered.Load()
	if listed && s.tenure.Serves(c.key) {
		s.listing.forget(c.key)
	}
	s.twins.drop(c.key)
	s.events.forget(c.key) // before another cluster of the key can emit events
	s.mu.Unlock()

	for _, lease := range kept {
		lease.Retire() // handlers may not have seen the deletes yet
	}
	s.pool.Forget(c.key)
	s.hooks.changed(c, isForgotten)
	if listed && s.tenure != nil {
		timetable.Wake(s.listing.reassigned) // it may have been gained while it was given up
	}
	if c.close() {
		s.hooks.resolved(c.key) // the resolver reported a change between the look above and now
	}
}

// endpoint returns where the informers of a cluster send their requests. It
// blocks while the cluster is not connected.
func (s *clusters) endpoint(ctx context.Context, key client.ObjectKey) (informerpool.Endpoint, error) {
	for {
		c := s.find(key)
		switch {
		case s.ctx.Err() != nil: // a cluster closed by Stop would be found forever
			return informerpool.Endpoint{}, ErrClosed
		case c == nil:
			return informerpool.Endpoint{}, ErrUnknownCluster
		}

		v := c.conn.View()
		if v.Connected {
			return informerpool.Endpoint{Client: v.Client, URL: c.conn.Transport().URL(), Epoch: v.Epoch}, nil
		}
		select {
		case <-v.Up:
		case <-c.conn.Done(): // there may be a new cluster with this key
		case <-ctx.Done():
			return informerpool.Endpoint{}, context.Cause(ctx)
		}
	}
}

// informerFailed is called with the failed attempts of informers.
func (s *clusters) informerFailed(key informerpool.Key, err error) {
	// The requested resource may not be the one that serves the kind.
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err) ||
		errors.Is(err, informerpool.ErrOtherVersion) {
		if c := s.find(key.Cluster); c != nil {
			c.wants.Kinds.RemapSoon()
		}
	}
	if notify := s.options.Informers.OnFailed; notify != nil {
		notify(key, err)
	}
}

// tookList is called by an informer with the duration of a list.
func (s *clusters) tookList(key informerpool.Key, took time.Duration) {
	s.metrics.listTook.Observe(took.Seconds())
	if c := s.find(key.Cluster); c != nil {
		c.wants.Kinds.Relisted(key)
	}
	if notify := s.options.Informers.OnListed; notify != nil {
		notify(key, took)
	}
}

// rolledBack is called by an informer whose server's history went backwards.
func (s *clusters) rolledBack(key informerpool.Key) {
	if c := s.find(key.Cluster); c != nil {
		c.conn.RolledBack(key.Resource.Group)
	}
}

// informerChanged is called with the changes of informers.
func (s *clusters) informerChanged(key informerpool.Key, reads bool) {
	if c := s.find(key.Cluster); c != nil {
		c.wants.InformerChanged(key, reads)
	}
	if notify := s.options.Informers.OnChanged; notify != nil {
		notify(key, reads)
	}
}

// reassigned is called with the slots of Options.Sharding that have changed,
// and whether each was gained.
func (s *clusters) reassigned(slots map[int]bool) {
	for _, c := range s.all() {
		if gained, ok := s.tenure.Of(c.key, slots); ok {
			c.announce()
			if gained {
				s.hooks.changed(c, isGained)
			} else {
				s.hooks.changed(c, reassigned)
			}
		}
	}
	timetable.Wake(s.listing.reassigned)
}

// unfilled returns those of the slots in which a cluster has yet to connect, or
// to list what is watched.
func (s *clusters) unfilled(slots map[int]bool) map[int]bool {
	if s.options.Discover && !s.listing.listed.Load() {
		return slots
	}
	out := map[int]bool{}
	for key := range s.listing.clusters() {
		if _, ok := s.tenure.Of(key, slots); ok && s.find(key) == nil {
			out[s.tenure.State(key).Slot] = true
		}
	}
	for _, c := range s.all() {
		if _, ok := s.tenure.Of(c.key, slots); ok && !c.caches.filled() {
			out[s.tenure.State(c.key).Slot] = true
		}
	}

	return out
}

// twins finds the keys that lead to one API server. The zero value knows none.
// All methods may be called from many goroutines, and none blocks.
type twins struct {
	mu struct {
		sync.Mutex // nothing else is locked under it

		uid  map[client.ObjectKey]string
		keys map[string]map[client.ObjectKey]struct{} // by UID of the cluster
	}
}

// put records the UID of the cluster of a key; the empty one is none. If the
// key did not have it before, put returns the other keys that have it.
func (t *twins) put(key client.ObjectKey, uid string) []client.ObjectKey {
	t.mu.Lock()
	defer t.mu.Unlock()

	before, known := t.mu.uid[key]
	if known && before == uid {
		return nil
	}
	t.dropLocked(key)
	if uid == "" {
		return nil
	}
	if t.mu.uid == nil {
		t.mu.uid = map[client.ObjectKey]string{}
		t.mu.keys = map[string]map[client.ObjectKey]struct{}{}
	}
	t.mu.uid[key] = uid
	if t.mu.keys[uid] == nil {
		t.mu.keys[uid] = map[client.ObjectKey]struct{}{}
	}
	t.mu.keys[uid][key] = struct{}{}

	return t.othersLocked(key)
}

// drop forgets a key.
func (t *twins) drop(key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropLocked(key)
}

func (t *twins) dropLocked(key client.ObjectKey) {
	uid := t.mu.uid[key]
	delete(t.mu.uid, key)
	delete(t.mu.keys[uid], key)
	if len(t.mu.keys[uid]) == 0 {
		delete(t.mu.keys, uid)
	}
}

// others returns the other keys of a key's cluster, in order.
func (t *twins) others(key client.ObjectKey) []client.ObjectKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.othersLocked(key)
}

func (t *twins) othersLocked(key client.ObjectKey) []client.ObjectKey {
	all := t.mu.keys[t.mu.uid[key]]
	if len(all) < 2 {
		return nil
	}
	others := slices.SortedFunc(maps.Keys(all), clustername.Compare)
	return slices.DeleteFunc(others, func(k client.ObjectKey) bool { return k == key })
}

// namesOf returns the names of clusters.
func namesOf(keys []client.ObjectKey) (names []string) {
	for _, key := range keys {
		names = append(names, clusterName(key))
	}
	return names
}
