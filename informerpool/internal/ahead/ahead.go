// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package ahead

import (
	"hash/maphash"
	"iter"
	"maps"
	"slices"
)

// Name stands for the name of an object. Two names may have the same Name: then
// a read of one of them is held back for the sake of the other.
type Name uint64

var seed = maphash.MakeSeed()

// NameOf returns the Name of an object.
func NameOf(namespace, name string) Name {
	return Name(maphash.String(seed, namespace)*31 + maphash.String(seed, name))
}

// Limit is how many changes are kept.
const Limit = 4096

// Changes are the last changes of the objects of one resource in one history,
// as far as some of its informers may not have reached them. The zero Changes
// is ready to use.
type Changes struct {
	of     map[Name]Change
	forgot uint64 // the latest version among those that were dropped unreached
	review int    // at how many of them to forget
}

// Change is the last change of an object.
type Change struct {
	At    uint64 // its version
	Until uint64 // the latest version of a list that has shown it to be the last one
	Gone  bool   // the object does not exist since
}

// Record records a change that an informer is about to show. It reports whether
// to call Forget.
func (c *Changes) Record(of Name, is Change) (crowded bool) {
	if c.of == nil {
		c.of = map[Name]Change{}
	}
	switch was, known := c.of[of]; {
	case !known || was.At < is.At:
		c.of[of] = is
	case was.At == is.At:
		was.Until, was.Gone = max(was.Until, is.Until), was.Gone || is.Gone // a delete may have the last version
		c.of[of] = was
	}
	return len(c.of) > max(c.review, 64)
}

// Last returns the last change of an object that some informers may not have
// reached; zero if all have. Of changes that were dropped only the latest
// version is known.
func (c *Changes) Last(of Name) Change {
	if is := c.of[of]; is.At >= c.forgot {
		return is
	}
	return Change{At: c.forgot}
}

// Any reports whether there are changes that some informers may not have
// reached.
func (c *Changes) Any() bool { return len(c.of) > 0 || c.forgot > 0 }

// Forget drops the changes that all informers have reached, which are at least
// at a version. If many are left, it drops the earliest half of them, too: those
// count for every object then.
func (c *Changes) Forget(reached uint64) {
	maps.DeleteFunc(c.of, func(_ Name, is Change) bool { return is.At <= reached })
	if c.forgot <= reached {
		c.forgot = 0
	}
	if len(c.of) >= Limit {
		versions := make([]uint64, 0, len(c.of))
		for _, is := range c.of {
			versions = append(versions, is.At)
		}
		slices.Sort(versions)
		c.forgot = max(c.forgot, versions[len(versions)/2])
		maps.DeleteFunc(c.of, func(_ Name, is Change) bool { return is.At <= c.forgot })
	}
	c.review = min(2*len(c.of), Limit)
}

// Debts are what one informer owes to others, by what they select.
type Debts[S comparable] struct {
	to   map[S]debt
	rest uint64 // the latest version of debts that were too many to keep one by one
}

// maxOwed is how many debts are kept one by one.
const maxOwed = 1024

// debt is the latest version at which another informer has shown a change of an
// object that both may select, and the latest at which it has listed; and what
// the informer shows and the other one lacks, or has in a state that the
// informer does not select, as of a version.
type debt struct {
	shown, listed, lacked uint64
	gone                  map[Name]struct{}
}

// Owe records that another informer has shown a change at a version.
func (d *Debts[S]) Owe(to S, shown uint64) {
	d.change(to, func(is *debt) { is.shown = max(is.shown, shown) })
}

// Listed records that another informer has listed at a version.
func (d *Debts[S]) Listed(to S, at uint64) {
	d.change(to, func(is *debt) { is.listed = max(is.listed, at) })
}

// Lacks records that another informer lacks, as of a version, objects that the
// informer shows.
func (d *Debts[S]) Lacks(to S, at uint64, lacks ...Name) {
	d.change(to, func(is *debt) {
		is.lacked = max(is.lacked, at)
		for _, name := range lacks {
			if is.gone == nil {
				is.gone = map[Name]struct{}{}
			}
			is.gone[name] = struct{}{}
		}
	})
}

func (d *Debts[S]) change(to S, change func(*debt)) {
	if d.to == nil {
		d.to = map[S]debt{}
	}
	is := d.to[to]
	change(&is)
	if d.to[to] = is; len(d.to) <= maxOwed {
		return
	}
	for _, is := range d.to {
		d.rest = max(d.rest, is.shown, is.listed, is.lacked)
	}
	clear(d.to)
}

// Changed records that the informer shows another state of an object.
func (d *Debts[S]) Changed(name Name) {
	for _, is := range d.to {
		delete(is.gone, name)
	}
}

// Any reports whether anything is owed.
func (d *Debts[S]) Any() bool { return len(d.to) > 0 || d.rest > 0 }

// Pay drops what is owed no more at a version.
func (d *Debts[S]) Pay(reached uint64) {
	if d.rest <= reached {
		d.rest = 0
	}
	maps.DeleteFunc(d.to, func(_ S, is debt) bool { return max(is.shown, is.listed, is.lacked) <= reached })
}

// Owes returns the latest version that is owed to those that are true of which,
// if it is later than the one that was reached; otherwise zero.
func (d *Debts[S]) Owes(reached uint64, which func(S) bool) (owed uint64) {
	if d.rest > reached {
		owed = d.rest
	}
	for to, is := range d.to {
		at := is.shown
		if len(is.gone) > 0 {
			at = max(at, is.lacked)
		}
		if at > max(reached, owed) && which(to) {
			owed = at
		}
	}
	return owed
}

// Lists yields those that have listed at a version after another, and when.
func (d *Debts[S]) Lists(after uint64) iter.Seq2[S, uint64] {
	return func(yield func(S, uint64) bool) {
		for to, is := range d.to {
			if is.listed > after && !yield(to, is.listed) {
				return
			}
		}
	}
}

// Clone returns a copy.
func (d *Debts[S]) Clone() Debts[S] {
	copied := maps.Clone(d.to)
	for to, is := range copied {
		is.gone = maps.Clone(is.gone)
		copied[to] = is
	}
	return Debts[S]{copied, d.rest}
}
