// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"errors"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Candidate is a want that covers a read, with the position of its informer
// before the read.
type Candidate struct {
	*Want

	at informerpool.Position
}

// Candidates are the wants that cover a read, in the order in which they are
// tried. Each informer follows the server independently. If the widest were
// always tried first, a read would go back in time whenever the widest lags, or
// whenever it can no longer answer and a narrower one lags. So the most
// advanced one is tried first, and one that another is ahead of answers only
// what the other cannot contradict.
type Candidates []Candidate

// Rank sorts the candidates. The given order, widest first, stays where nothing
// else decides. The position of a single candidate is not read.
func (r Candidates) Rank() Candidates {
	if len(r) < 2 {
		return r
	}
	for i := range r {
		r[i].at = r[i].lease.Position()
		for j := i; j > 0 && r[j].before(r[j-1]); j-- {
			r[j-1], r[j] = r[j], r[j-1]
		}
	}

	return r
}

func (c Candidate) before(other Candidate) bool {
	if c.at.Epoch == other.at.Epoch && c.at.History != other.at.History {
		return c.at.History > other.at.History
	}
	return sameHistory(c.at, other.at) && later(c.at.ResourceVersion, other.at.ResourceVersion)
}

// ahead reports whether the candidate may have shown something that the other
// has not reached yet.
func (c Candidate) ahead(of Candidate) bool {
	return c.Want != of.Want && c.at.Synced && sameHistory(c.at, of.at) && later(c.at.Shown, of.at.ResourceVersion)
}

// ErrAgain indicates that a read has to start again.
var ErrAgain = errors.New("read must restart")

// Contradicts returns an error if another candidate shows a later state of an
// object than the one that is to answer with o, which is nil if it has none.
func (r Candidates) Contradicts(o *informerpool.Object, by Candidate, key client.ObjectKey) error {
	for _, c := range r {
		if !c.ahead(by) {
			continue
		}
		other, err := c.lease.Get(c.In(key.Namespace), key.Name)
		if errors.Is(err, informerpool.ErrReleased) {
			return ErrAgain // there is a debt instead by now
		}
		if c.disproves(other, err, o, by, key.Name) {
			return by.behind(c)
		}
	}

	return nil
}

// disproves reports whether the candidate has a later state of an object of a
// name than the other one.
func (c Candidate) disproves(
	own *informerpool.Object, err error, o *informerpool.Object, by Candidate, name string,
) bool {
	switch {
	case own != nil && o != nil:
		return precedes(o, own)
	case own != nil:
		return later(own.GetResourceVersion(), by.at.ResourceVersion)
	case o == nil || !apierrors.IsNotFound(err) || !c.Decides(name):
		return false
	}

	return !later(o.GetResourceVersion(), c.at.ResourceVersion) // it was deleted since
}

// ContradictsList is Contradicts for a list; others returns what another
// candidate would answer.
func (r Candidates) ContradictsList(
	objects []*informerpool.Object, by Candidate, others func(*Want) ([]*informerpool.Object, error),
) error {
	for _, c := range r {
		if !c.ahead(by) {
			continue
		}
		other, err := others(c.Want)
		switch {
		case errors.Is(err, informerpool.ErrReleased):
			return ErrAgain
		case err == nil && c.disprovesList(other, objects, by):
			return by.behind(c)
		}
	}

	return nil
}

func (c Candidate) disprovesList(own, objects []*informerpool.Object, by Candidate) bool {
	has := make(map[types.NamespacedName]*informerpool.Object, len(own))
	for _, o := range own {
		has[client.ObjectKeyFromObject(o)] = o
	}
	for _, o := range objects {
		name := client.ObjectKeyFromObject(o)
		other := has[name]
		delete(has, name)
		switch {
		case other != nil && precedes(o, other):
			return true
		case other == nil && !later(o.GetResourceVersion(), c.at.ResourceVersion):
			return true // it was deleted, or left the selection, since
		}
	}

	for _, o := range has {
		if later(o.GetResourceVersion(), by.at.ResourceVersion) {
			return true
		}
	}
	return false
}

func (c Candidate) behind(other Candidate) error {
	return staleAt(c.at, other.at.Shown)
}

// Ahead reports whether any candidate is ahead of the given one.
func (r Candidates) Ahead(of Candidate) bool {
	for _, c := range r {
		if c.ahead(of) {
			return true
		}
	}
	return false
}

// Listed records the objects with which a candidate answered a list, at the
// other candidates, which select them as well, that lag behind: their handlers
// must receive the deletion of an object, even if it is created and deleted
// before they receive it.
func (r Candidates) Listed(by *Want, objects ...*informerpool.Object) {
	if len(r) < 2 {
		return
	}
	own := r[slices.IndexFunc(r, func(c Candidate) bool { return c.Want == by })]
	for _, c := range r {
		c.saw(own, objects)
	}
}

// Got is Listed for the one object with which a candidate answered a Get, at
// those that may select it.
func (r Candidates) Got(by *Want, o *informerpool.Object) {
	if len(r) > 1 {
		r.Listed(by, o)
	}
}

// saw records what another candidate showed of the same history.
func (c Candidate) saw(by Candidate, objects []*informerpool.Object) {
	if c.Want == by.Want || !c.at.Synced || !sameHistory(c.at, by.at) {
		return
	}
	at, err := strconv.ParseUint(c.at.ResourceVersion, 10, 64)
	if err != nil {
		return
	}
	var newer []*informerpool.Object
	for _, o := range objects {
		if version, ordered := o.Version(); ordered && version > at {
			newer = append(newer, o)
		}
	}
	if len(newer) > 0 {
		c.lease.SeenObjects(newer...)
	}
}
