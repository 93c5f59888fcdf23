// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"fmt"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
)

// cursor is where a reflector continues.
type cursor struct {
	resume    string // the resourceVersion to continue at; if empty, list
	reach     string // the newest resourceVersion the store has seen in this history
	replace   bool   // the next list is of a new history: versions are not comparable with those of the store
	unordered bool   // the stream still shows its initial objects, in no order
	distrust  error  // why a list must follow the stream, instead of a resume; nil if it may be resumed
}

// relist makes the next attempt list.
func (c *cursor) relist() { c.resume = "" }

// checkOrder fails if a stream shows a version before the one it has reached:
// versions of one history only grow. The initial objects of a watch without a
// version have no order.
func (c *cursor) checkOrder(rv string) error {
	if !c.unordered && ordering.Behind(rv, c.resume) {
		return fmt.Errorf("%w (stream went from %s to %s)", ErrHistory, c.resume, rv)
	}
	return nil
}

// advance records how far the stream has come, and reports whether that is
// further than before.
func (c *cursor) advance(rv string) (further bool, err error) {
	if err := c.checkOrder(rv); err != nil {
		return false, err
	}
	if ordering.Behind(rv, c.resume) {
		rv = c.resume
	}
	rv = ordering.Further(c.resume, rv)
	further = rv != c.resume
	c.resume, c.reach = rv, rv

	return further, nil
}

// endUnordered requests a list after a stream that ended within its initial
// objects: their versions do not show how far it came.
func (c *cursor) endUnordered() {
	if c.unordered {
		c.unordered, c.resume = false, ""
	}
}
