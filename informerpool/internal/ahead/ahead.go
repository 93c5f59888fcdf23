// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package ahead

import (
	"hash/maphash"
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
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

// Forgot returns changes of which only the latest version is known.
func Forgot(latest uint64) Changes { return Changes{forgot: latest} }

// Change is the last change of an object.
type Change struct {
	At    uint64 // its version
	Until uint64 // the latest version of a list that has shown it to be the last one
	Gone  bool   // the object does not exist since
}

// Record records a change that an informer is about to show. It reports whether
// to call Forget.
func (c *Changes) Record(of Name, is Change) (bursting bool) {
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
	gone                  map[Name]types.NamespacedName
}

// Owe records that another informer has shown a change at a version.
func (d *Debts[S]) Owe(to S, shown uint64) {
	d.change(to, func(is *debt) { is.shown = max(is.shown, shown) })
}

// OweAll records that others have shown changes up to a version, and not which.
func (d *Debts[S]) OweAll(latest uint64) { d.rest = max(d.rest, latest) }

// Listed records that another informer has listed at a version.
func (d *Debts[S]) Listed(to S, at uint64) {
	d.change(to, func(is *debt) { is.listed = max(is.listed, at) })
}

// Lacks records that another informer lacks, as of a version, objects that the
// informer may show.
func (d *Debts[S]) Lacks(to S, at uint64, lacks ...types.NamespacedName) {
	d.change(to, func(is *debt) {
		is.lacked = max(is.lacked, at)
		for _, o := range lacks {
			if is.gone == nil {
				is.gone = map[Name]types.NamespacedName{}
			}
			is.gone[NameOf(o.Namespace, o.Name)] = o
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

// Changed records that the informer shows a state of an object at a version. What
// another one lacks as of a later version stays owed, unless that one has listed
// since: Lists yields those.
func (d *Debts[S]) Changed(name Name, at uint64) {
	for _, is := range d.to {
		if at >= is.lacked || at < is.listed {
			delete(is.gone, name)
		}
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
// if it is later than the one that was reached; otherwise zero. shows reports
// whether the informer shows an object: what another one lacks is owed only
// while it does.
func (d *Debts[S]) Owes(
	reached uint64, which func(S) bool, shows func(types.NamespacedName) bool,
) (owed uint64) {
	owed = max(reached, d.rest)
	for to, is := range d.to {
		if max(is.shown, is.lacked) <= owed || !which(to) {
			continue
		}
		owed = max(owed, is.shown)
		if is.lacked > owed && is.shownOf(shows) {
			owed = is.lacked
		}
	}
	if owed == reached {
		return 0
	}
	return owed
}

// shownOf reports whether the informer shows anything that the other one lacks.
func (is *debt) shownOf(shows func(types.NamespacedName) bool) bool {
	for _, o := range is.gone {
		if shows(o) {
			return true
		}
	}
	return false
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
