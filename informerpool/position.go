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
	e := l.rlock().entry
	defer e.mu.RUnlock()

	p := Position{
		Synced:          l.readableLocked() == nil,
		ResourceVersion: e.rv,
		Epoch:           e.epoch,
		History:         e.history,
		Shown:           e.rv,
	}
	if behind(p.Shown, e.partial) {
		p.Shown = e.partial
	}
	return p
}

// commitPart stores the objects that a broken list had brought, and removes
// none.
func (e *entry) commitPart() {
	values := e.lockWith(e.staged.all())
	defer e.mu.Unlock()

	for o := range e.staged.all() {
		if rv := o.GetResourceVersion(); e.partial == "" || behind(e.partial, rv) {
			e.partial = rv
		}
	}
	e.mergeLocked(values)
	e.chargeLocked()
}
