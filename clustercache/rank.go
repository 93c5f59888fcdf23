// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// candidate is a hold that covers a read, with the position of its informer
// before the read.
type candidate struct {
	*hold

	at informerpool.Position
}

// ranking are the holds that cover a read, in the order in which they are
// tried. Each informer follows the server independently. If the widest were
// always tried first, a read would go back in time whenever the widest lags, or
// whenever it can no longer answer and a narrower one lags. So the most
// advanced one is tried first, and one that another is ahead of answers only
// what the other cannot contradict.
type ranking []candidate

// rank sorts the candidates. The given order, widest first, stays where nothing
// else decides. The position of a single candidate is not read.
func (r ranking) rank() ranking {
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

func (c candidate) before(other candidate) bool {
	if c.at.Epoch == other.at.Epoch && c.at.History != other.at.History {
		return c.at.History > other.at.History
	}
	return sameHistory(c.at, other.at) && later(c.at.ResourceVersion, other.at.ResourceVersion)
}

// ahead reports whether the candidate may have shown something that the other
// has not reached yet.
func (c candidate) ahead(of candidate) bool {
	return c.hold != of.hold && c.at.Synced && sameHistory(c.at, of.at) && later(c.at.Shown, of.at.ResourceVersion)
}

// errAgain indicates that a read has to start again.
var errAgain = errors.New("begin anew")

// contradicts returns an error if another candidate shows a later state of an
// object than the one that is to answer with o, which is nil if it has none.
func (r ranking) contradicts(o *informerpool.Object, by candidate, key client.ObjectKey) error {
	for _, c := range r {
		if !c.ahead(by) {
			continue
		}
		other, err := c.lease.Get(c.namespace(key.Namespace), key.Name)
		if errors.Is(err, informerpool.ErrReleased) {
			return errAgain // there is a debt instead by now
		}
		if c.disproves(other, err, o, by) {
			return by.behind(c)
		}
	}

	return nil
}

// disproves reports whether the candidate has a later state of an object than
// the other one.
func (c candidate) disproves(own *informerpool.Object, err error, o *informerpool.Object, by candidate) bool {
	switch {
	case own != nil && o != nil:
		return precedes(o, own)
	case own != nil:
		return later(own.GetResourceVersion(), by.at.ResourceVersion)
	case o == nil || !isNotFound(err) || c.id.labels+c.id.fields != "":
		return false
	}

	return !later(o.GetResourceVersion(), c.at.ResourceVersion) // it was deleted since
}

// contradictsList is contradicts for a list; others returns what another
// candidate would answer.
func (r ranking) contradictsList(objects []*informerpool.Object, by candidate, others func(*hold) ([]*informerpool.Object, error)) error {
	for _, c := range r {
		if !c.ahead(by) {
			continue
		}
		other, err := others(c.hold)
		switch {
		case errors.Is(err, informerpool.ErrReleased):
			return errAgain
		case err == nil && c.disprovesList(other, objects, by):
			return by.behind(c)
		}
	}

	return nil
}

func (c candidate) disprovesList(own, objects []*informerpool.Object, by candidate) bool {
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

func (c candidate) behind(other candidate) error {
	return fmt.Errorf("%w: at resourceVersion %s; another watch showed %s", ErrStale, c.at.ResourceVersion, other.at.Shown)
}

// ahead reports whether any candidate of the ranking is ahead of the given one.
func (r ranking) ahead(of candidate) bool {
	for _, c := range r {
		if c.ahead(of) {
			return true
		}
	}
	return false
}

// mayName reports whether a hold may select an object of a name. It examines
// the selector only where that is simple.
func (h *hold) mayName(name string) bool {
	return h.id.fields == "" || strings.Contains(h.id.fields, name) || strings.Contains(h.id.fields, "!")
}

// showed records the objects with which a candidate answered a read, at the
// other candidates that cover the read and lag behind: their handlers must
// receive the deletion of an object, even if it is created and deleted before
// they receive it.
func (r ranking) showed(by candidate, objects ...*informerpool.Object) {
	for _, c := range r {
		if c.hold == by.hold || !c.at.Synced || !sameHistory(c.at, by.at) {
			continue
		}
		at, err := strconv.ParseUint(c.at.ResourceVersion, 10, 64)
		if err != nil {
			continue
		}
		var newer []*informerpool.Object
		for _, o := range objects {
			if version, ordered := o.Version(); ordered && version > at && c.mayName(o.GetName()) {
				newer = append(newer, o)
			}
		}
		if len(newer) > 0 {
			c.lease.SeenObjects(newer...)
		}
	}
}
