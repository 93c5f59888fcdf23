// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package ordering compares resourceVersions, and states of objects by them.
//
// # Tests
//
// The leading test is TestStatesAreComparedByVersionAndElseByContent.
// TestHazardRepetitionIsTakenForARollback covers streams that repeat
// themselves.
package ordering

import (
	"strconv"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/fleetcache/fleetcache/internal/packed"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// Ordered reports whether a version has the form that API servers issue: a
// 64-bit number without sign, blanks or leading zeros. Other versions may be
// returned by reads, and are compared only for equality. A server that issues
// one need not accept it, so no informer resumes from it, nor takes it for its
// position.
func Ordered(rv string) bool {
	if rv == "" || rv[0] < '1' || rv[0] > '9' {
		return false // at once: an error of strconv is allocated, and reads get here
	}
	_, err := strconv.ParseUint(rv, 10, 64)
	return err == nil
}

// Further returns which of two versions, the one that was reached and one that
// was shown since, is the informer's position.
func Further(reached, shown string) string {
	if Behind(shown, reached) {
		return reached
	}
	if Ordered(shown) || !Ordered(reached) {
		return shown
	}
	return reached
}

// Opaque reports whether a version denotes a moment, and is no number. Those of
// a server's lists are then of another kind than those of its objects, which it
// may have from several other servers.
func Opaque(rv string) bool { return !Versionless(rv) && !Ordered(rv) }

// Moved returns the informer's position after a stream has shown an object of
// that version.
func Moved(reached, shown string) string {
	if Opaque(reached) {
		return reached // a bookmark moves it
	}
	return Further(reached, shown)
}

// Versionless reports whether a version denotes no moment. A watch from it
// begins with all objects, in no order, and does not mark where they end.
func Versionless(rv string) bool { return rv == "" || rv == "0" }

// compare returns the order of two versions, and whether they have one.
// Versions that are not numbers have none: the API allows no conclusion from
// them.
func compare(a, b string) (order int, comparable bool) {
	if !Ordered(a) || !Ordered(b) {
		return 0, false
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return order, err == nil
}

// Behind reports whether version a is before version b.
func Behind(a, b string) bool {
	order, ok := compare(a, b)
	return ok && order < 0
}

// Reaches reports whether version a is not before version b.
func Reaches(a, b string) bool {
	order, ok := compare(a, b)
	return ok && order >= 0
}

// Newer reports whether a, which was shown later, is a later state than b.
// Versions that are not numbers can only be distinguished, and equal ones prove
// nothing.
func Newer(a, b *packed.Object) bool {
	va, oka := a.Version()
	vb, okb := b.Version()
	if oka && okb && va > 0 && vb > 0 {
		return va > vb
	}
	return !SameState(b, a)
}

// Older reports whether a is an earlier state than b.
func Older(a, b *packed.Object) bool {
	va, oka := a.Version()
	vb, okb := b.Version()
	return oka && okb && va > 0 && va < vb
}

// Repeats reports whether a stream shows the cached object in the state of that
// version once more.
func Repeats(shown, cached *packed.Object) bool {
	return cached != nil && shown.GetUID() == cached.GetUID() &&
		shown.GetResourceVersion() == cached.GetResourceVersion()
}

// Explained reports whether a stream may show an object at a version before the
// one that it has reached, and still be of the same history. It may repeat the
// cached state, or the delete of an object that the cache lacks or has a
// successor of. And it may delete the cached state at the version of that: some
// servers give deletes none of their own.
func Explained(deleted bool, shown, cached *packed.Object) bool {
	if Repeats(shown, cached) {
		return true
	}
	return deleted && (cached == nil || shown.GetUID() != cached.GetUID() && Older(shown, cached))
}

// SameState reports whether a list shows the cached state of an object. An
// equal version is no proof of that: a default that was added to a definition,
// or another conversion, changes content under the same version.
func SameState(cached, listed *packed.Object) bool {
	return cached.GetResourceVersion() == listed.GetResourceVersion() && cached.SameContent(listed)
}

// Ends reports whether a delete with this identity ends the cached object,
// rather than an earlier state of it or another object of its name.
func Ends(id wire.Identity, o *packed.Object) bool {
	if id.UID != "" && string(o.GetUID()) != id.UID {
		return false
	}
	n, err := strconv.ParseUint(id.ResourceVersion, 10, 64)
	version, ok := o.Version()
	return err != nil || !ok || n >= version
}

// Succeeds reports whether an identity has a later version than a cached
// object.
func Succeeds(id wire.Identity, o *packed.Object) bool {
	n, err := strconv.ParseUint(id.ResourceVersion, 10, 64)
	version, ok := o.Version()
	return err == nil && ok && n > version
}
