// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package delta merges the changes of one object that arrive while a handler is
// busy into what the handler is to receive.
//
// # Tests
//
// The leading test is TestDeleteCarriesTheLastStateAndTheLastDeliveredOne.
// TestHazardSlowHandlerIsToldOfOneStateTwice covers handlers that are busy, and
// TestModel (test/pool) what they receive in all.
package delta

import (
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/packed"
)

// Change is one change of one object of one informer.
type Change struct {
	Old     *packed.Object // the state before, nil if there was none
	New     *packed.Object // the state after, nil if there is none
	Final   *packed.Object // of a delete: the state the object ended with
	Unknown bool           // of a delete: concluded from the object's absence
	Evicted bool           // of a delete: the cluster was removed
	Initial bool
	Resync  bool
	Sight   store.Moment // from when on reads could see the change
}

// Vanished returns the delete of an object that is concluded from its absence.
func Vanished(o *packed.Object) Change { return Change{Old: o, Final: o, Unknown: true} }

// Evicted returns the delete of an object whose cluster was removed.
func Evicted(o *packed.Object) Change {
	return Change{
		Old:     o,
		Final:   o,
		Unknown: true,
		Evicted: true,
	}
}

// Resync returns the repetition of an object's state.
func Resync(o *packed.Object) Change { return Change{Old: o, New: o, Resync: true} }

// Narrow returns the change as seen by a handler that receives only some
// states: an object that begins to match is added, one that stops matching is
// deleted. It reports false if neither state matches. match is false for nil.
func (c Change) Narrow(match func(*packed.Object) bool) (Change, bool) {
	was, is := match(c.Old), match(c.New)
	switch {
	case was && is:
	case is:
		c.Old = nil
	case was:
		if c.Final == nil {
			c.Final = c.New
		}
		c.New = nil
	default:
		return c, false
	}

	return c, true
}
