// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package ahead

import (
	"hash/maphash"
	"maps"
	"slices"
)

// Moment is a version in a numbered history of a resource. The zero Moment is
// before all others.
type Moment struct {
	History int
	Version uint64
}

// Before reports whether m is earlier than other. A later history is later,
// whatever the versions.
func (m Moment) Before(other Moment) bool {
	return m.History < other.History || m.History == other.History && m.Version < other.Version
}

// Latest returns the later of two moments.
func (m Moment) Latest(other Moment) Moment {
	if m.Before(other) {
		return other
	}
	return m
}

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
	of     map[Name]change
	forgot uint64 // the latest version among those that were dropped unreached
	review int    // at how many of them to forget
}

// change is the version of the last change of an object, and the latest version
// at which a list has shown that it was the last one.
type change struct{ at, until uint64 }

// Record records that an informer shows an object in the state of a version, or
// that it is gone at a version, and that there was no later change until
// another one. It reports whether to call Forget.
func (c *Changes) Record(of Name, at, until uint64) (crowded bool) {
	if c.of == nil {
		c.of = map[Name]change{}
	}
	switch was, known := c.of[of]; {
	case !known || was.at < at:
		c.of[of] = change{at, until}
	case was.at == at:
		c.of[of] = change{at, max(was.until, until)}
	}
	return len(c.of) > max(c.review, 64)
}

// Last returns the version of the last change of an object that some informers
// may not have reached; zero if all have.
func (c *Changes) Last(of Name) uint64 { return max(c.of[of].at, c.forgot) }

// LastedUntil reports whether a list at a version has shown an object in the
// state of another one.
func (c *Changes) LastedUntil(of Name, at, until uint64) bool {
	is := c.of[of]
	return is.at == at && is.until >= until
}

// Any reports whether there are changes that some informers may not have
// reached.
func (c *Changes) Any() bool { return len(c.of) > 0 || c.forgot > 0 }

// Forget drops the changes that all informers have reached, which are at least
// at a version. If many are left, it drops the earliest half of them, too: those
// count for every object then.
func (c *Changes) Forget(reached uint64) {
	maps.DeleteFunc(c.of, func(_ Name, is change) bool { return is.at <= reached })
	if c.forgot <= reached {
		c.forgot = 0
	}
	if len(c.of) >= Limit {
		versions := make([]uint64, 0, len(c.of))
		for _, is := range c.of {
			versions = append(versions, is.at)
		}
		slices.Sort(versions)
		c.forgot = max(c.forgot, versions[len(versions)/2])
		maps.DeleteFunc(c.of, func(_ Name, is change) bool { return is.at <= c.forgot })
	}
	c.review = min(2*len(c.of), Limit)
}

// Debts are what one informer owes to others, by what they select: the versions
// that they have shown, and that it has not reached.
type Debts[S comparable] struct {
	to map[S]debt
}

// debt is the latest version at which another informer has shown a change of an
// object that both may select, and the latest at which it has listed.
type debt struct{ shown, listed uint64 }

// Owe records that another informer has shown a change at a version.
func (d *Debts[S]) Owe(to S, shown uint64) { d.raise(to, debt{shown: shown}) }

// Listed records that another informer has listed at a version.
func (d *Debts[S]) Listed(to S, at uint64) { d.raise(to, debt{listed: at}) }

func (d *Debts[S]) raise(to S, by debt) {
	if d.to == nil {
		d.to = map[S]debt{}
	}
	was := d.to[to]
	d.to[to] = debt{max(was.shown, by.shown), max(was.listed, by.listed)}
}

// Any reports whether anything is owed.
func (d *Debts[S]) Any() bool { return len(d.to) > 0 }

// Pay drops what is owed no more at a version.
func (d *Debts[S]) Pay(reached uint64) {
	if len(d.to) == 0 {
		return
	}
	maps.DeleteFunc(d.to, func(_ S, is debt) bool { return max(is.shown, is.listed) <= reached })
	if len(d.to) == 0 {
		d.to = nil
	}
}

// Owes returns the latest version that is owed to those that are true of which,
// if it is later than the one that was reached; otherwise zero.
func (d *Debts[S]) Owes(reached uint64, which func(S) bool) (shown uint64) {
	for to, is := range d.to {
		if is.shown > max(reached, shown) && which(to) {
			shown = is.shown
		}
	}
	return shown
}

// Lists yields the lists at later versions that others have made.
func (d *Debts[S]) Lists(after uint64) map[S]uint64 {
	var lists map[S]uint64
	for to, is := range d.to {
		if is.listed > after {
			if lists == nil {
				lists = map[S]uint64{}
			}
			lists[to] = is.listed
		}
	}
	return lists
}

// Clone returns a copy.
func (d *Debts[S]) Clone() Debts[S] { return Debts[S]{maps.Clone(d.to)} }
