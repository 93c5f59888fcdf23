// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package histories numbers the histories of a cluster's resources.
package histories

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
)

// Histories number the histories of a cluster's resources within one epoch. A
// single resource can go back, and each resource goes back a moment before the
// whole cluster is known to have done so: the epoch is then still the same, and
// versions cannot be compared. The zero value knows none. Histories are safe
// for concurrent use.
type Histories struct {
	mu sync.Mutex // protects the field below; no other lock is taken under it
	of map[schema.GroupResource]last
}

// last is the number of a resource's history in its last epoch, and the highest
// version of it that informers which have ended have shown.
type last struct {
	epoch  string
	number int
	shown  string
}

// WentBack reports whether a resource went back alone within an epoch.
func (h *Histories) WentBack(resource schema.GroupResource, epoch string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()

	now := h.of[resource]
	return now.epoch == epoch && now.number > 0
}

// At returns the number of the history that a list shows. another reports that
// it is not own, the history of the list before in the same epoch. If another
// informer of the resource has already found that, both have found the same
// history.
func (h *Histories) At(resource schema.GroupResource, epoch string, another bool, own int) int {
	h.mu.Lock()
	defer h.mu.Unlock()

	now := h.of[resource]
	switch {
	case now.epoch != epoch:
		now = last{epoch: epoch}
	case another && own == now.number:
		now.number++
		now.shown = ""
	default:
		return now.number
	}

	if h.of == nil {
		h.of = map[schema.GroupResource]last{}
	}
	h.of[resource] = now

	return now.number
}

// Show records that an informer of a resource has shown a version in a history.
func (h *Histories) Show(resource schema.GroupResource, epoch string, number int, version string) {
	h.mu.Lock()
	defer h.mu.Unlock()

	now, known := h.of[resource]
	if known && now.epoch == epoch && now.number == number {
		now.shown = ordering.Further(now.shown, version)
		h.of[resource] = now
	}
}

// Shown returns the highest version of a resource that was shown in its current
// history; empty if none is known.
func (h *Histories) Shown(resource schema.GroupResource, epoch string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.of[resource]; now.epoch == epoch {
		return now.shown
	}
	return ""
}

// Forget forgets what was shown of a resource.
func (h *Histories) Forget(resource schema.GroupResource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now, known := h.of[resource]; known {
		now.shown = ""
		h.of[resource] = now
	}
}
