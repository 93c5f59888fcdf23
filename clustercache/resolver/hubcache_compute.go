// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"errors"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errPending indicates that the watches have not reported an object yet.
var errPending = errors.New("not read yet")

// compute renews the answers of the dirty clusters, once everything was listed,
// and reports those that differ.
func (c *hubCache) compute(dirty map[Cluster]struct{}) {
	if slices.ContainsFunc(c.whole, func(w *listWatch) bool { return !w.heard }) {
		return
	}
	first := !c.isSynced()
	if first {
		for cluster := range c.candidates {
			dirty[cluster] = struct{}{}
		}
	}
	made := make(map[Cluster]answer, len(dirty))
	gone := make(map[Cluster]struct{})
	described := false
	for cluster := range dirty {
		if len(c.candidates[cluster]) == 0 {
			delete(c.candidates, cluster)
			c.use(cluster, nil)
			gone[cluster] = struct{}{}
			continue
		}

		if made[cluster], described = c.build(cluster); !described {
			delete(made, cluster)
			gone[cluster] = struct{}{}
		}
	}

	changed := c.store(made, gone)
	if first {
		// A request may have been answered for a cluster that no longer exists.
		changed = append(changed, c.h.answered()...)
	}
	c.h.changes.Publish(changed...)
}

// build computes one answer from the copy, and records what it depends on. It
// returns false if no object describes the cluster after all.
func (c *hubCache) build(cluster Cluster) (answer, bool) {
	var candidates []found
	for id := range c.candidates[cluster] {
		candidates = append(candidates, c.objects[id].found)
	}
	primary := slices.MinFunc(candidates, compareCandidates(cluster))
	var uses []objectID
	second, _ := c.h.second(primary, func(key client.ObjectKey) (any, error) {
		id := objectID{ObjectRef: c.h.convention.primary.ref(key)}
		uses = append(uses, id)
		if peer := c.objects[id]; peer != nil {
			return peer.value, nil
		}
		return nil, nil
	})
	if second {
		c.use(cluster, uses)
		return answer{}, false
	}
	access, err := c.h.build(cluster, primary, func(id objectID) (any, error) {
		uses = append(uses, id)
		return c.get(id)
	})
	c.use(cluster, uses)

	return answer{access: access, err: err, pending: errors.Is(err, errPending)}, true
}

// get returns an object of the copy, and starts to watch it if nothing does
// yet.
func (c *hubCache) get(id objectID) (any, error) {
	if object := c.objects[id]; object != nil {
		return object.value, object.failed
	}
	for _, w := range c.whole[1:] {
		if w.kind.has(id) {
			return nil, missingObject(id)
		}
	}
	w := c.named[id]
	if w == nil {
		k, ok := named(id.ObjectRef)
		if !ok {
			return nil, missingObject(id)
		}
		w = c.start(k)
		w.id = id
		c.named[id] = w
	}

	if !w.heard {
		return nil, errPending
	}
	return nil, missingObject(id)
}

// use replaces the dependencies of a cluster's answer, and stops watches on
// which no answer depends any more.
func (c *hubCache) use(cluster Cluster, ids []objectID) {
	old := c.uses[cluster]
	if len(ids) == 0 {
		delete(c.uses, cluster)
	} else {
		c.uses[cluster] = ids
	}
	for _, id := range ids {
		if c.users[id] == nil {
			c.users[id] = map[Cluster]struct{}{}
		}
		c.users[id][cluster] = struct{}{}
	}

	for _, id := range old {
		if slices.Contains(ids, id) {
			continue
		}
		delete(c.users[id], cluster)
		if len(c.users[id]) == 0 {
			delete(c.users, id)
			c.forget(id)
		}
	}
}

func (c *hubCache) forget(id objectID) {
	w := c.named[id]
	if w == nil {
		return
	}
	w.cancel()
	w.dropped = true
	delete(c.named, id)
	delete(c.objects, id)
}

// store publishes answers to Resolve, and returns the clusters whose answers
// differ.
func (c *hubCache) store(made map[Cluster]answer, gone map[Cluster]struct{}) []Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.synced = true
	c.doubt = nil
	for _, object := range c.unknown {
		c.doubt = &object
	}
	var changed []Cluster
	for cluster := range gone {
		if _, had := c.answers[cluster]; had {
			delete(c.answers, cluster)
			changed = append(changed, cluster)
		}
	}

	for cluster, now := range made {
		if before, had := c.answers[cluster]; !had || !before.equal(now) {
			changed = append(changed, cluster)
		}
		c.answers[cluster] = now
	}

	return changed
}
