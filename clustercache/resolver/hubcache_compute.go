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
	if slices.ContainsFunc(c.whole, func(w *listWatch) bool { _, waits := c.unheard[w]; return waits }) {
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
	for ref := range c.candidates[cluster] {
		candidates = append(candidates, c.objects[ref].found)
	}
	primary := slices.MinFunc(candidates, compareCandidates(cluster))
	var uses []ObjectRef
	second, _ := c.h.second(primary, func(key client.ObjectKey) (any, error) {
		ref := c.h.convention.primary.ref(key)
		uses = append(uses, ref)
		if peer := c.objects[ref]; peer != nil {
			return peer.value, nil
		}
		return nil, nil
	})
	if second {
		c.use(cluster, uses)
		return answer{}, false
	}
	access, err := c.h.build(cluster, primary, func(ref ObjectRef) (any, error) {
		uses = append(uses, ref)
		return c.get(ref)
	})
	c.use(cluster, uses)

	return answer{access: access, err: err, pending: errors.Is(err, errPending)}, true
}

// get returns an object of the copy, and starts to watch it if nothing does
// yet.
func (c *hubCache) get(ref ObjectRef) (any, error) {
	if object := c.objects[ref]; object != nil {
		return object.value, object.failed
	}
	for _, w := range c.whole[1:] {
		if w.kind.gvk.Kind == ref.Kind {
			return nil, missingObject(ref)
		}
	}
	w := c.named[ref]
	if w == nil {
		k, ok := named(ref)
		if !ok {
			return nil, missingObject(ref)
		}
		w = c.start(k)
		c.named[ref] = w
		c.unheard[w] = struct{}{}
	}

	if _, waits := c.unheard[w]; waits {
		return nil, errPending
	}
	return nil, missingObject(ref)
}

// use replaces the dependencies of a cluster's answer, and stops watches on
// which no answer depends any more.
func (c *hubCache) use(cluster Cluster, refs []ObjectRef) {
	old := c.uses[cluster]
	if len(refs) == 0 {
		delete(c.uses, cluster)
	} else {
		c.uses[cluster] = refs
	}
	for _, ref := range refs {
		if c.users[ref] == nil {
			c.users[ref] = map[Cluster]struct{}{}
		}
		c.users[ref][cluster] = struct{}{}
	}

	for _, ref := range old {
		if slices.Contains(refs, ref) {
			continue
		}
		delete(c.users[ref], cluster)
		if len(c.users[ref]) == 0 {
			delete(c.users, ref)
			c.forget(ref)
		}
	}
}

func (c *hubCache) forget(ref ObjectRef) {
	w := c.named[ref]
	if w == nil {
		return
	}
	w.cancel()
	delete(c.named, ref)
	delete(c.unheard, w)
	delete(c.objects, ref)
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
