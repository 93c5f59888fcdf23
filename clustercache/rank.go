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

// candidate is a hold that covers a read, and how far its informer had come
// before the read.
type candidate struct {
	*hold

	at informerpool.Position
}

// ranking are the holds that cover a read, in the order in which they are
// asked. Each informer follows the server on its own. Were the widest always
// asked first, a read would go back whenever the widest lags, or cannot be
// asked any more and a narrower one lags. So the one that has come furthest is
// asked first, and one that another is ahead of only answers with what the
// other cannot contradict.
type ranking []candidate

// rank puts candidates in order. Those that come wider first stay so where
// nothing else decides. A single one is not asked how far it is.
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

// ahead reports whether the candidate may have shown what the other has not
// come to yet.
func (c candidate) ahead(of candidate) bool {
	return c.hold != of.hold && c.at.Synced && sameHistory(c.at, of.at) && later(c.at.Shown, of.at.ResourceVersion)
}

// errAgain indicates that a read has to begin anew.
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

// disproves reports whether what the candidate has for an object is later than
// what the other one has.
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

// ahead reports whether any candidate is ahead of one of them.
func (r ranking) ahead(of candidate) bool {
	for _, c := range r {
		if c.ahead(of) {
			return true
		}
	}
	return false
}

// mayName reports whether a hold may select an object of a name, without a look
// at its selector where that is plain.
func (h *hold) mayName(name string) bool {
	return h.id.fields == "" || strings.Contains(h.id.fields, name) || strings.Contains(h.id.fields, "!")
}

// showed notes what a read was answered with by the candidate that has come
// further than others which cover the read: their handlers are to hear of the
// end of an object, though it comes and goes before they are told of it.
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
