// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package histories numbers the histories of a cluster's resources.
package histories

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
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

// last is the number of a resource's history in its last epoch.
type last struct {
	epoch  string
	number int
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
	default:
		return now.number
	}

	if h.of == nil {
		h.of = map[schema.GroupResource]last{}
	}
	h.of[resource] = now

	return now.number
}
