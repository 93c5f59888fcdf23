// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lineages number the histories of a cluster's resources within one epoch. A
// single resource can go back, and each resource goes back a moment before the
// whole cluster is known to have done so: the epoch is then still the same, and
// versions cannot be compared.
type lineages struct {
	mu sync.Mutex // protects the fields below; no other lock is taken under it
	of map[schema.GroupResource]lineage
}

// lineage is the number of a resource's history in its last epoch.
type lineage struct {
	epoch  Epoch
	number int
}

// at returns the number of the history that a list shows. another reports that
// it is not own, the history of the list before in the same epoch. If another
// informer of the resource has already found that, both have found the same
// history.
func (l *lineages) at(resource schema.GroupResource, epoch Epoch, another bool, own int) int {
	l.mu.Lock()
	defer l.mu.Unlock()

	now := l.of[resource]
	switch {
	case now.epoch != epoch:
		now = lineage{epoch: epoch}
	case another && own == now.number:
		now.number++
	default:
		return now.number
	}

	if l.of == nil {
		l.of = map[schema.GroupResource]lineage{}
	}
	l.of[resource] = now

	return now.number
}

// lineage returns the number of the history that the current list shows.
func (f *feed) lineage(l *listing) int {
	f.mu.RLock()
	another, own := f.epoch == f.known && (f.replace || l.broken != nil), f.history
	f.mu.RUnlock()
	return f.account.lineages.at(f.key.Resource.GroupResource(), f.known, another, own)
}

// disproved returns the proof that a complete list at a version is of another
// history than another informer of the resource has shown: that informer has a
// later state of an object, from before the list. An informer that lagged when
// its server was restored has nothing in its own store that contradicts the
// list.
func (l *listing) disproved(rv string) error {
	f := l.feed
	if counts, ok := f.options.Source.(interface{ counting(key Key) bool }); ok && counts.counting(f.key) {
		return nil // each informer counts its own versions
	}
	for _, e := range f.pool.siblings(f.entry) {
		if proof := l.disprovedBy(e, rv); proof != nil {
			return proof
		}
	}
	return nil
}

// disprovedBy is disproved for one of the other informers.
func (l *listing) disprovedBy(e *entry, rv string) error {
	f := l.feed
	e.mu.RLock()
	defer e.mu.RUnlock()

	if !e.synced || e.epoch != f.known || e.history != f.history {
		return nil
	}
	contradicts := func(listed, shown *Object) bool {
		return listed != nil && shown != nil && older(listed, shown) && !behind(rv, shown.GetResourceVersion())
	}
	proof := func(listed, shown *Object) error {
		return fmt.Errorf("%s %s: listed at %s, cached at %s by %s",
			f.key, nameOf(shown), listed.GetResourceVersion(), shown.GetResourceVersion(), e.key)
	}
	if e.store.count <= f.store.count+f.staged.count {
		for shown := range e.store.all() {
			if listed := l.shows(nameOf(shown)); contradicts(listed, shown) {
				return proof(listed, shown)
			}
		}
		return nil
	}

	for _, listed := range slices.Concat(slices.Collect(maps.Keys(l.seen)), slices.Collect(f.staged.all())) {
		if shown := e.store.get(listed.GetNamespace(), listed.GetName()); contradicts(listed, shown) {
			return proof(listed, shown)
		}
	}

	return nil
}

// siblings returns the other informers of an informer's resource.
func (p *Pool) siblings(of *entry) (siblings []*entry) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for e := range of.account.entries {
		if e != of && e.key.Resource.GroupResource() == of.key.Resource.GroupResource() {
			siblings = append(siblings, e)
		}
	}
	return siblings
}
