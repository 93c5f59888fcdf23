// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

// Position is the point that an informer has reached in the history of its
// resource.
type Position struct {
	// Synced reports whether reads are served.
	Synced bool
	// ResourceVersion is the version the cache has reached, and Epoch the
	// history it belongs to. History numbers the resource's own histories
	// within the epoch.
	ResourceVersion string
	Epoch           Epoch
	History         int
	// Shown is the highest version that reads may return: it is later than
	// ResourceVersion after a list that broke had brought some objects.
	Shown string
}

// Position returns the position of the lease's informer. Within one history it
// never moves backwards.
func (l *Lease) Position() Position {
	i := l.rlock().informer
	defer i.mu.RUnlock()

	p := Position{
		Synced:          l.readableLocked() == nil,
		ResourceVersion: i.rv,
		Epoch:           i.epoch,
		History:         i.history,
		Shown:           i.rv,
	}
	if behind(p.Shown, i.partial) {
		p.Shown = i.partial
	}
	return p
}

// commitPart stores the objects that a broken list had brought, and removes
// none.
func (i *informer) commitPart() {
	values := i.lockWith(i.staged.all())
	defer i.mu.Unlock()

	for o := range i.staged.all() {
		if rv := o.GetResourceVersion(); i.partial == "" || behind(i.partial, rv) {
			i.partial = rv
		}
	}
	i.mergeLocked(values)
	i.chargeLocked()
}
