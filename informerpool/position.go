// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

// Position is how far an informer has come in the history of its resource.
type Position struct {
	// Synced reports whether reads are answered.
	Synced bool
	// ResourceVersion is how far the cache has come, and Epoch the history it
	// belongs to. History numbers those of the resource itself inside the
	// epoch.
	ResourceVersion string
	Epoch           Epoch
	History         int
	// Shown is the highest version that reads may show: later than
	// ResourceVersion where a list broke that had brought some objects.
	Shown string
}

// Position returns how far the lease's informer has come. Inside one history it
// never goes back.
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

// commitPart puts what a list that broke had brought, and takes nothing away.
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
