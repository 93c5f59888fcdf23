// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package comparison

import (
	"iter"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/packed"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// MaxOwed is how many objects a stream may owe a claim. A list costs little
// more than as many changes.
const MaxOwed = 10_000

// Claim is the state of an earlier process, which may be out of date. One list
// of the server's metadata shows which objects differ. The stream that
// continues the state owes them, in the versions that the list shows:
//
//	Compare: each object of the list ──► End ──► Proven
//	                                      └──► Brought: each change ──► Proven
//
// A claim is proven once the state, with the changes so far, is that of the
// list or a later one. It is not safe for concurrent use.
type Claim struct {
	kept   func(namespace, name string) *packed.Object
	listed map[*packed.Object]struct{}     // kept objects whose names the list has
	owed   map[types.NamespacedName]string // the listed version; empty if the list lacks the object
	at     uint64                          // the version of the list
}

// NewClaim returns the claim of a state, whose object of a name kept returns,
// or nil.
func NewClaim(kept func(namespace, name string) *packed.Object) *Claim {
	return &Claim{kept: kept, listed: map[*packed.Object]struct{}{}, owed: map[types.NamespacedName]string{}}
}

// Compare compares one object of the list with the kept one.
func (c *Claim) Compare(it wire.Item) {
	kept := c.kept(it.Namespace, it.Name)
	if kept != nil {
		c.listed[kept] = struct{}{}
	}
	if kept == nil || string(kept.GetUID()) != it.UID || kept.GetResourceVersion() != it.ResourceVersion {
		c.owed[types.NamespacedName{Namespace: it.Namespace, Name: it.Name}] = it.ResourceVersion
	}
}

// End ends the list, which is at a version: it lacks the kept objects that it
// has not shown.
func (c *Claim) End(version uint64, kept iter.Seq[*packed.Object]) {
	c.at = version
	for o := range kept {
		if _, listed := c.listed[o]; !listed {
			c.owed[types.NamespacedName{Namespace: o.GetNamespace(), Name: packed.NameOf(o)}] = ""
		}
	}
	c.listed = nil
}

// Brought records a change that the stream has brought: an object has a
// version, or is gone since. What changed after the list is no concern of it;
// the changes before it, which come first, have to lead to what it shows.
func (c *Claim) Brought(name types.NamespacedName, version uint64, text string, gone bool) {
	owed, owes := c.owed[name]
	switch {
	case version > c.at:
		delete(c.owed, name)
	case gone && owed == "" || !gone && owes && owed == text:
		delete(c.owed, name)
	case !gone && !owes:
		c.owed[name] = "" // it was created since the state was kept, and is gone by the time of the list
	}
}

// Owed returns how many objects differ.
func (c *Claim) Owed() int { return len(c.owed) }

// Proven reports whether no object differs.
func (c *Claim) Proven() bool { return len(c.owed) == 0 }
