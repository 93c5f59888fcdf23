// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lineages number the histories of a cluster's resources inside one epoch. A
// resource can go back alone, and each goes back a moment before the cluster is
// known to have: the epoch is the same then, and versions cannot be compared.
type lineages struct {
	mu sync.Mutex // protects what follows; nothing else is locked under it
	of map[schema.GroupResource]lineage
}

// lineage is the number of a resource's history in its last epoch.
type lineage struct {
	epoch  Epoch
	number int
}

// at returns the number of the history that a list shows. another says that it
// is another one than that of the list before, in the same epoch.
func (l *lineages) at(resource schema.GroupResource, epoch Epoch, another bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()

	now := l.of[resource]
	switch {
	case now.epoch != epoch:
		now = lineage{epoch: epoch}
	case another:
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

// lineage returns the number of the history that the list under way shows.
func (f *feed) lineage(l *listing) int {
	f.mu.RLock()
	another := f.epoch == f.known && (f.replace || l.broken != nil)
	f.mu.RUnlock()
	return f.account.lineages.at(f.key.Resource.GroupResource(), f.known, another)
}
