// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
)

// histories number the histories of a cluster's resources within one epoch. A
// single resource can go back, and each resource goes back a moment before the
// whole cluster is known to have done so: the epoch is then still the same, and
// versions cannot be compared.
type histories struct {
	mu sync.Mutex // protects the fields below; no other lock is taken under it
	of map[schema.GroupResource]lastHistory
}

// lastHistory is the number of a resource's history in its last epoch.
type lastHistory struct {
	epoch  Epoch
	number int
}

// at returns the number of the history that a list shows. another reports that
// it is not own, the history of the list before in the same epoch. If another
// informer of the resource has already found that, both have found the same
// history.
func (l *histories) at(resource schema.GroupResource, epoch Epoch, another bool, own int) int {
	l.mu.Lock()
	defer l.mu.Unlock()

	now := l.of[resource]
	switch {
	case now.epoch != epoch:
		now = lastHistory{epoch: epoch}
	case another && own == now.number:
		now.number++
	default:
		return now.number
	}

	if l.of == nil {
		l.of = map[schema.GroupResource]lastHistory{}
	}
	l.of[resource] = now

	return now.number
}

// historyOf returns the number of the history that the current list shows.
func (r *reflector) historyOf(l *listing) int {
	r.informer.mu.RLock()
	another, own := r.informer.mu.epoch == r.at.epoch && (r.at.replace || l.broken != nil), r.informer.mu.history
	r.informer.mu.RUnlock()
	return r.informer.cluster.histories.at(r.informer.key.Resource.GroupResource(), r.at.epoch, another, own)
}

// disproved returns the proof that a complete list at a version is of another
// history than another informer of the resource has shown: that informer has a
// later state of an object, from before the list. An informer that lagged when
// its server was restored has nothing in its own store that contradicts the
// list.
func (l *listing) disproved(rv string) error {
	r := l.reflector
	if counts, ok := r.options.Source.(interface{ counting(key Key) bool }); ok && counts.counting(r.informer.key) {
		return nil // each informer counts its own versions
	}
	for _, i := range r.informer.pool.siblings(r.informer) {
		if proof := l.disprovedBy(i, rv); proof != nil {
			return proof
		}
	}
	return nil
}

// disprovedBy is disproved for one of the other informers.
func (l *listing) disprovedBy(i *informer, rv string) error {
	r := l.reflector
	i.mu.RLock()
	defer i.mu.RUnlock()

	if !i.mu.synced || i.mu.epoch != r.at.epoch || i.mu.history != r.informer.mu.history {
		return nil
	}
	contradicts := func(listed, shown *Object) bool {
		return listed != nil && shown != nil && ordering.Older(listed, shown) && !ordering.Behind(rv, shown.GetResourceVersion())
	}
	proof := func(listed, shown *Object) error {
		return fmt.Errorf("%s %s: listed at %s, cached at %s by %s",
			r.informer.key, store.NameOf(shown), listed.GetResourceVersion(), shown.GetResourceVersion(), i.key)
	}
	if i.mu.store.Count <= r.informer.mu.store.Count+r.informer.mu.staged.Count {
		for shown := range i.mu.store.All() {
			if listed := l.shows(store.NameOf(shown)); contradicts(listed, shown) {
				return proof(listed, shown)
			}
		}
		return nil
	}

	for _, listed := range slices.Concat(slices.Collect(maps.Keys(l.seen)), slices.Collect(r.informer.mu.staged.All())) {
		if shown := i.mu.store.Get(listed.GetNamespace(), listed.GetName()); contradicts(listed, shown) {
			return proof(listed, shown)
		}
	}

	return nil
}

// siblings returns the other informers of an informer's resource.
func (p *Pool) siblings(of *informer) (siblings []*informer) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for i := range of.cluster.informers {
		if i != of && i.key.Resource.GroupResource() == of.key.Resource.GroupResource() {
			siblings = append(siblings, i)
		}
	}
	return siblings
}
