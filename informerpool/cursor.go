// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// cursor is where a reflector continues, and how far its stream has come.
//
// A stream from a version shows the changes after it, in their order. Some
// servers ignore the version: each of their streams begins with the objects
// that exist, in any order, as one does that is requested without a version.
// Such a beginning proves nothing about the server's history. It does not
// mention what was deleted before it either, so unless it shows every cached
// object, a list is due behind it: at the first frame that is no object of it,
// or after a silence.
//
// No object of a beginning is a position, if the stream had none: changes from
// before the stream may be newer than each of them, and a stream from there
// would show those once more.
type cursor struct {
	resume   string // the resourceVersion to continue at; if empty, list
	reach    string // the newest resourceVersion the store has seen in this history
	replace  bool   // the next list is of a new history: versions are not comparable with those of the store
	over     era    // with replace: the history that is over
	distrust error  // why a list must follow the stream, instead of a resume; nil if it may be resumed
	opening  opening
}

// opening is what a stream has shown before anything else than objects, which
// may be those that exist.
type opening struct {
	from     string // the version that the stream was requested from
	over     bool   // it has shown something else
	placed   bool   // it has shown a later version since, which is a position
	existing bool   // it begins with the objects that exist
	repeated bool   // it has shown that it does, although it was requested from a version
	odd      bool   // it has shown a state that the cache should have had
	objects  int    // how many it has shown

	ended map[types.UID]string // last versions of cached objects that the list behind it lacks
}

// relist makes the next attempt list.
func (c *cursor) relist() { c.resume = "" }

// replaces makes the next attempt list, since a history is over. The store may
// show a later one by now.
func (c *cursor) replaces(over era) { c.resume, c.replace, c.over = "", true, over }

// begin records that a stream from the position begins; existing reports
// whether it is known to begin with the objects that exist.
func (c *cursor) begin(existing bool) { c.opening = opening{from: c.resume, existing: existing} }

// see records what kind of frame the stream shows, and reports whether the
// first objects end with it.
func (o *opening) see(frame string) (ends bool) {
	switch {
	case o.over:
		return false
	case frame == wire.Added:
		o.objects++
		return false
	}
	o.over = true
	return true
}

// without records that the object which the stream shows is refused, and that
// the cache has none of its name: it does not stand for a cached one.
func (o *opening) without() {
	if !o.over {
		o.objects--
	}
}

// unordered reports whether what the stream shows at present has no order.
func (o *opening) unordered() bool { return o.existing && !o.over }

// versionless reports whether the stream was requested without a version.
func (o *opening) versionless() bool { return ordering.Versionless(o.from) }

// repeats reports whether an object shows that the stream begins with the
// objects that exist, although it was requested from a version. The object of
// that version alone does not: the server may count the version in.
func (c *cursor) repeats(shown, cached *Object) bool {
	o, rv := &c.opening, shown.GetResourceVersion()
	switch {
	case o.over || o.versionless():
		return false
	case c.behind(rv):
		return true
	}
	return ordering.Repeats(shown, cached) && (o.existing || rv != o.from)
}

// lacks reports whether a stream from a version, which began with the objects
// that exist, has not shown all the cached ones, or has shown others than the
// cache should have.
func (o *opening) lacks(cached int) bool {
	return o.existing && !o.versionless() && (o.odd || o.objects != cached)
}

// gone records that the list behind the beginning lacks a cached object.
func (o *opening) gone(last *Object) {
	if o.ended == nil {
		o.ended = map[types.UID]string{}
	}
	if uid := last.GetUID(); uid != "" {
		o.ended[uid] = last.GetResourceVersion()
	}
}

// past reports whether an object that the cache lacks is shown in a state from
// before its end, which the list behind the beginning has shown. back reports
// that it may have come back, as what is selected again does: then it has,
// unless the state is one of before.
func (o *opening) past(shown *Object, back bool) bool {
	last, ended := o.ended[shown.GetUID()]
	version := shown.GetResourceVersion()
	return ended && (!back || version == last || ordering.Behind(version, last))
}

// behind reports whether a version is before the one that the stream has
// reached.
func (c *cursor) behind(rv string) bool { return ordering.Behind(rv, c.resume) }

// place checks an object that the stream shows against the version that the
// stream has reached, and reports whether it is to be applied. cached is the
// object of its name; back is that of past.
func (c *cursor) place(frame string, shown, cached *Object, back bool) (apply bool, err error) {
	version, deleted := shown.GetResourceVersion(), frame == wire.Deleted
	switch at := &c.opening; {
	case !deleted && cached == nil && at.past(shown, back):
		return false, nil
	case c.repeats(shown, cached):
		at.repeated, at.existing = true, true
		lacked := cached == nil && ordering.Reaches(at.from, version)
		if lacked || cached != nil && (cached.GetUID() != shown.GetUID() || ordering.Older(shown, cached)) {
			at.odd = true // a list decides
			return false, nil
		}
		return true, nil
	case at.unordered(), !c.behind(version), ordering.Explained(deleted, shown, cached):
		return true, nil
	}

	return false, c.wentBack(version)
}

// placeRefused is place for a state that is refused. One from before the
// position that the stream has reached says nothing of the object now, unless it
// repeats the state that was refused, as again reports. At the beginning of the
// stream it may be of an object that exists, and a list decides.
func (c *cursor) placeRefused(version string, again bool) error {
	at := &c.opening
	switch {
	case at.unordered() || !c.behind(version):
	case !at.over:
		at.repeated, at.existing = true, true
		at.odd = at.odd || !again
	case !again:
		return c.wentBack(version)
	}
	return nil
}

// wentBack is the error of a stream that shows a version before the one that it
// has reached, although nothing but another history explains it: versions of
// one history only grow.
func (c *cursor) wentBack(rv string) error {
	return fmt.Errorf("%w (stream went from %s to %s)", ErrHistory, c.resume, rv)
}

// advance records how far the stream has come, and reports whether that is
// further than before.
func (c *cursor) advance(rv string) (further bool) {
	rv = ordering.Further(c.resume, rv)
	further = rv != c.resume
	c.resume, c.reach = rv, ordering.Further(c.reach, rv)
	c.opening.placed = c.opening.placed || further && c.opening.over

	return further
}

// end requests a list after a stream that has shown no position, or that ended
// within the objects that exist, unless it has shown all of the cached ones:
// their versions do not show how far it came. It reports whether it lacked
// some.
func (c *cursor) end(cached int) (lacked bool) {
	o := c.opening
	c.opening = opening{over: true}
	lacked = !o.over && o.lacks(cached)
	if lacked || o.existing && o.versionless() && !o.placed {
		c.resume = ""
	}
	return lacked
}
