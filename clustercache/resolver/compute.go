// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"errors"
	"slices"
)

// errPending indicates that the watches have not reported an object yet.
var errPending = errors.New("not read yet")

// compute renews the answers of the dirty clusters, once everything was listed,
// and reports those that differ.
func (e *engine) compute(dirty map[Cluster]struct{}) {
	if slices.ContainsFunc(e.whole, func(w *listWatch) bool { _, waits := e.unheard[w]; return waits }) {
		return
	}
	first := !e.isSynced()
	if first {
		for cluster := range e.claims {
			dirty[cluster] = struct{}{}
		}
	}
	made := make(map[Cluster]answer, len(dirty))
	gone := make(map[Cluster]struct{})
	for cluster := range dirty {
		if len(e.claims[cluster]) == 0 {
			delete(e.claims, cluster)
			e.use(cluster, nil)
			gone[cluster] = struct{}{}
			continue
		}

		made[cluster] = e.build(cluster)
	}

	changed := e.store(made, gone)
	if first {
		// A request may have been answered for a cluster that no longer exists.
		changed = append(changed, e.h.answered()...)
	}
	e.h.news.publish(changed...)
}

// build computes one answer from the copy, and records what it depends on.
func (e *engine) build(cluster Cluster) answer {
	var candidates []found
	for ref := range e.claims[cluster] {
		candidates = append(candidates, e.objects[ref].found)
	}
	primary := slices.MinFunc(candidates, compareClaims(cluster))
	var uses []ObjectRef
	access, err := e.h.build(cluster, primary, func(ref ObjectRef) (any, error) {
		uses = append(uses, ref)
		return e.get(ref)
	})
	e.use(cluster, uses)

	return answer{access: access, err: err, pending: errors.Is(err, errPending)}
}

// get returns an object of the copy, and starts to watch it if nothing does
// yet.
func (e *engine) get(ref ObjectRef) (any, error) {
	if object := e.objects[ref]; object != nil {
		return object.value, object.failed
	}
	for _, w := range e.whole[1:] {
		if w.kind.gvk.Kind == ref.Kind {
			return nil, missingObject(ref)
		}
	}
	w := e.named[ref]
	if w == nil {
		k, ok := named(ref)
		if !ok {
			return nil, missingObject(ref)
		}
		w = e.start(k)
		e.named[ref] = w
		e.unheard[w] = struct{}{}
	}

	if _, waits := e.unheard[w]; waits {
		return nil, errPending
	}
	return nil, missingObject(ref)
}

// use replaces the dependencies of a cluster's answer, and stops watches on
// which no answer depends any more.
func (e *engine) use(cluster Cluster, refs []ObjectRef) {
	old := e.uses[cluster]
	if len(refs) == 0 {
		delete(e.uses, cluster)
	} else {
		e.uses[cluster] = refs
	}
	for _, ref := range refs {
		if e.users[ref] == nil {
			e.users[ref] = map[Cluster]struct{}{}
		}
		e.users[ref][cluster] = struct{}{}
	}

	for _, ref := range old {
		if slices.Contains(refs, ref) {
			continue
		}
		delete(e.users[ref], cluster)
		if len(e.users[ref]) == 0 {
			delete(e.users, ref)
			e.forget(ref)
		}
	}
}

func (e *engine) forget(ref ObjectRef) {
	w := e.named[ref]
	if w == nil {
		return
	}
	w.cancel()
	delete(e.named, ref)
	delete(e.unheard, w)
	delete(e.objects, ref)
}

// store publishes answers to Resolve, and returns the clusters whose answers
// differ.
func (e *engine) store(made map[Cluster]answer, gone map[Cluster]struct{}) []Cluster {
	e.mu.Lock()
	defer e.mu.Unlock()

	e.synced = true
	e.doubt = nil
	for _, object := range e.unknown {
		e.doubt = &object
	}
	var changed []Cluster
	for cluster := range gone {
		if _, had := e.answers[cluster]; had {
			delete(e.answers, cluster)
			changed = append(changed, cluster)
		}
	}

	for cluster, now := range made {
		if before, had := e.answers[cluster]; !had || !before.equal(now) {
			changed = append(changed, cluster)
		}
		e.answers[cluster] = now
	}

	return changed
}
