// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package comparison compares cached objects with lists of their server.
//
// # Tests
//
// The leading tests are TestComparisonFindsWhatAListShowsDifferently and, of
// claims, TestClaimIsProvenByWhatTheListShows.
// TestHazardServerChangesWithoutEnd and TestHazardListOfAnAuditHasNoEnd cover
// their memory. TestHazardServerDropsEvents (test/pool) covers whole audits.
package comparison

import (
	"iter"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/packed"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// MaxDifferent is how many differing objects a comparison keeps. One is enough
// for a finding, and a server may show any number.
const MaxDifferent = 256

// Comparison compares cached objects with one list, and then what differed with
// a second one:
//
//	Begin ──► Compare, Skip: each object of the list ──► End ──► Differs
//	  ▲                                                            │
//	  └── Owe ◄── Settle: what the stream has brought since ◄──────┘ ──► Lost
//
// It is not safe for concurrent use.
type Comparison struct {
	rest  map[string]map[string]*packed.Object // cached and not yet seen in the list
	wrong map[types.NamespacedName]Difference  // of the last list; at most MaxDifferent
	owed  map[types.NamespacedName]Difference  // of the first list; nil until Owe
	blind bool                                 // the list has objects that cannot be identified
	noted map[types.NamespacedName]bool        // true if the last list has an object that was not compared
}

// Difference is how a list shows an object that is cached in another state.
type Difference struct {
	Absent  bool
	Version string // of the object, or of the list that lacks it
}

// Begin begins with a list. The comparison owns cached, the objects by
// namespace and name, and noted, the names that Uncompared reports on.
func (c *Comparison) Begin(cached map[string]map[string]*packed.Object, noted map[types.NamespacedName]bool) {
	c.rest, c.noted = cached, noted
	c.wrong, c.blind = map[types.NamespacedName]Difference{}, false
}

// Compare compares one object of the list with the cached one.
func (c *Comparison) Compare(it wire.Item) {
	cached := c.rest[it.Namespace][it.Name]
	if cached == nil || string(cached.GetUID()) != it.UID || cached.GetResourceVersion() != it.ResourceVersion {
		c.differ(types.NamespacedName{Namespace: it.Namespace, Name: it.Name}, Difference{Version: it.ResourceVersion})
	}
	delete(c.rest[it.Namespace], it.Name)
}

// Skip skips an object of the list that cannot be read, such as one that is too
// large. Its state is unknown, which is no difference: an object that any user
// may create must not end the comparison of all others.
func (c *Comparison) Skip(id wire.Identity) {
	delete(c.rest[id.Namespace], id.Name)
	c.blind = c.blind || id.Name == ""
	c.overlook(types.NamespacedName{Namespace: id.Namespace, Name: id.Name})
}

// End ends the list, which is at a version: it lacks the cached objects that it
// has not shown.
func (c *Comparison) End(version string) {
	for namespace, objects := range c.rest {
		if c.blind {
			break // any of them may be an object that could not be read
		}
		for name := range objects {
			c.differ(types.NamespacedName{Namespace: namespace, Name: name}, Difference{Absent: true, Version: version})
		}
	}

	c.rest = nil
}

// differ records a difference. The second list only checks the differences of
// the first.
func (c *Comparison) differ(name types.NamespacedName, d Difference) {
	if _, owed := c.owed[name]; len(c.wrong) < MaxDifferent && (owed || c.owed == nil) {
		c.wrong[name] = d
	} else {
		c.overlook(name)
	}
}

// overlook records that the list has an object that is not compared.
func (c *Comparison) overlook(name types.NamespacedName) {
	if _, noted := c.noted[name]; noted {
		c.noted[name] = true
	}
}

// Differs reports whether the last list differs.
func (c *Comparison) Differs() bool { return len(c.wrong) > 0 }

// Settle removes the differences for which settled is true: of the first list
// if Owe was called, and else of the last one.
func (c *Comparison) Settle(settled func(types.NamespacedName, Difference) bool) {
	differences := c.owed
	if differences == nil {
		differences = c.wrong
	}
	for name, d := range differences {
		if settled(name, d) {
			delete(differences, name)
		}
	}
}

// Owe makes the next list check what differs now.
func (c *Comparison) Owe() { c.owed = c.wrong }

// Lost returns how many objects differ in both lists.
func (c *Comparison) Lost() (lost int) {
	for name := range c.owed {
		if _, differs := c.wrong[name]; differs {
			lost++
		}
	}
	return lost
}

// Blind reports whether the last list has objects that cannot be identified.
func (c *Comparison) Blind() bool { return c.blind }

// Uncompared yields the noted names of which the last list has an object that
// was not compared, or not kept as a difference.
func (c *Comparison) Uncompared() iter.Seq[types.NamespacedName] {
	return func(yield func(types.NamespacedName) bool) {
		for name, has := range c.noted {
			if has && !yield(name) {
				return
			}
		}
	}
}
