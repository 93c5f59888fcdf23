// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package answer

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

// Scope is what cached reads of a set of objects have shown. It only grows.
type Scope struct {
	Gets  Moment // of objects that are in no narrower scope by name or namespace
	Lists Moment // of exactly the scope, or of one in it that is not kept
}

// Get records the answer to a get: the version of the object, or zero if there
// is none, and the position of the informer.
func (s Scope) Get(object, reached Moment) Scope {
	if object.Version == 0 {
		object = reached
	}
	s.Gets = s.Gets.Latest(object)
	return s
}

// List records the answer to a list.
func (s Scope) List(reached Moment) Scope {
	s.Lists = s.Lists.Latest(reached)
	return s
}

// Absorb records the end of a scope whose objects this one has as well.
func (s Scope) Absorb(ended Scope) Scope {
	return Scope{Gets: s.Gets.Latest(ended.Gets), Lists: s.Lists.Latest(ended.Lists)}
}

// Shown returns the latest moment of a scope.
func (s Scope) Shown() Moment { return s.Gets.Latest(s.Lists) }

// Candidate is an informer that covers a read.
type Candidate struct {
	// Trusted reports whether the informer follows its server, in the epoch
	// that is served.
	Trusted bool
	// Reached is its position, at which it has what follows.
	Reached Moment
	// Decides reports whether it selects all that the read asks for, so that
	// what it lacks does not exist.
	Decides bool
	// Object is the version of what a get has found, or zero.
	Object Moment
}

// Read is what a read demands. It has to be looked up after the candidates'
// positions and objects, so that what is shown meanwhile counts.
type Read struct {
	// Needed is the number of its scope.
	Needed Moment
	// Answered is the version with which an informer that does not decide has
	// answered a get of the same object.
	Answered Moment
	// Written is the version of the last write that the answer has to show.
	Written Moment
}

// Verdict says whether a candidate answers a read, and why not.
type Verdict int

// From the weakest reason to the strongest.
const (
	Unwatched  Verdict = iota // no informer covers the read
	Distrusted                // one does, and is not trusted
	Behind                    // one is trusted, and another one, or a write, is ahead of it
	Cached                    // one answers
)

// Choose returns the first candidate that may answer a read, and otherwise why
// none may.
func (r Read) Choose(candidates ...Candidate) (int, Verdict) {
	why := Unwatched
	for i, c := range candidates {
		v := r.allows(c)
		if v == Cached {
			return i, v
		}
		why = max(why, v)
	}
	return -1, why
}

func (r Read) allows(c Candidate) Verdict {
	switch {
	case c.Object.Version == 0 && !c.Decides:
		return Unwatched
	case !c.Trusted:
		return Distrusted
	case c.Reached.Before(r.Written):
		return Behind
	case !c.Decides && c.Object.Before(r.Answered), c.Decides && c.Reached.Before(r.Answered):
		return Behind
	case c.Reached.Before(r.Needed):
		return Behind
	}
	return Cached
}
