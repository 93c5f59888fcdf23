// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import "github.com/fleetcache/fleetcache/informerpool/internal/ordering"

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

// position is the Position as the reflector writes it. informer.mu protects it.
type position struct {
	epoch   Epoch
	history int // number of the resource's own history in the epoch
	rv      string
	partial string // highest version that broken lists have brought since the last complete one
	taken   int    // lists that were committed
}

// Position returns the position of the lease's informer. Within one history it
// never moves backwards.
func (l *Lease) Position() Position {
	i := l.rlock().informer
	defer i.mu.RUnlock()

	p := Position{
		Synced:          l.readableLocked() == nil,
		ResourceVersion: i.mu.rv,
		Epoch:           i.mu.epoch,
		History:         i.mu.history,
		Shown:           i.mu.rv,
	}
	if ordering.Behind(p.Shown, i.mu.partial) {
		p.Shown = i.mu.partial
	}
	return p
}
