// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"fmt"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
)

// cursor is where a reflector continues.
type cursor struct {
	epoch    Epoch  // the epoch that resume belongs to
	resume   string // the resourceVersion to continue at; if empty, list
	reach    string // the newest resourceVersion the store has seen in this history
	replace  bool   // the next list is of a new history: versions are not comparable with those of the store
	distrust error  // why a list must follow the stream, instead of a resume; nil if it may be resumed
}

// relist makes the next attempt list.
func (c *cursor) relist() { c.resume = "" }

// checkOrder fails if a stream shows a version before the one it has reached:
// versions of one history only grow. The initial objects of a watch without a
// version have no order.
func (r *reflector) checkOrder(rv string) error {
	if !r.session.unordered && ordering.Behind(rv, r.at.resume) {
		return fmt.Errorf("watch %s: %w (stream went from %s to %s)", r.informer.key, ErrHistory, r.at.resume, rv)
	}
	return nil
}

// reached records how far the stream has come.
func (r *reflector) reached(rv string) error {
	if rv == "" {
		return nil
	}
	if err := r.checkOrder(rv); err != nil {
		return err
	}
	if ordering.Behind(rv, r.at.resume) {
		rv = r.at.resume
	}
	rv = ordering.Further(r.at.resume, rv)
	on := rv != r.at.resume
	r.at.resume, r.at.reach = rv, rv
	if on {
		r.failures.followed()
	}
	r.informer.advance(rv, on)

	return nil
}

// endUnordered requests a list after a stream that ended within its initial
// objects: their versions do not show how far it came.
func (r *reflector) endUnordered() {
	if r.session.unordered {
		r.session.unordered, r.at.resume = false, ""
	}
}
