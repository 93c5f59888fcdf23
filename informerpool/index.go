// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"fmt"
	"slices"
)

// IndexFunc computes the values under which an index finds an object. It must be pure and must not block. It is called
// without locks, once per state of an object. A panic in it counts as no values.
type IndexFunc func(*Object) []string

// ownerIndex is the name of the built-in index by owner UID; it is built by the first query that wants it.
const ownerIndex = "\x00owner"

// index finds objects by the values a function computes of them. Its informer's lock protects it. It keeps the values, so
// that removing an object calls no function of the user under that lock.
type index struct {
	name   string
	values IndexFunc
	ready  bool
	found  map[string]map[*Object]struct{}
	listed map[*Object][]string
}

func newIndex(name string, values IndexFunc) *index {
	return &index{name: name, values: values, found: map[string]map[*Object]struct{}{}, listed: map[*Object][]string{}}
}

// compute calls the index function and survives its panic.
func (x *index) compute(o *Object) (values []string) {
	defer func() {
		if recover() != nil {
			values = nil
		}
	}()
	values = x.values(o)
	if len(values) > 1 {
		values = slices.Compact(slices.Sorted(slices.Values(values)))
	}
	return values
}

func (x *index) add(o *Object, values []string) {
	x.listed[o] = values
	for _, v := range values {
		set := x.found[v]
		if set == nil {
			set = map[*Object]struct{}{}
			x.found[v] = set
		}
		set[o] = struct{}{}
	}
}

func (x *index) remove(o *Object) {
	for _, v := range x.listed[o] {
		set := x.found[v]
		delete(set, o)
		if len(set) == 0 {
			delete(x.found, v)
		}
	}
	delete(x.listed, o)
}

func ownerUIDs(o *Object) []string {
	var uids []string
	for uid := range o.OwnerUIDs() {
		uids = append(uids, string(uid))
	}
	return uids
}

// lockWith takes the entry's lock with o's values for every index of the store at hand. The values are computed without
// the lock, since the functions are the user's; an index that is added in the meantime makes it start over.
func (e *entry) lockWith(s *store, o *Object) map[*index][]string {
	var values map[*index][]string
	for {
		e.mu.Lock()
		missing := slices.DeleteFunc(slices.Clone(s.indexes), func(x *index) bool { _, ok := values[x]; return ok })
		if len(missing) == 0 {
			return values
		}
		e.mu.Unlock()
		if values == nil {
			values = make(map[*index][]string, len(missing))
		}
		for _, x := range missing {
			values[x] = x.compute(o)
		}
	}
}

// lockComplete takes the entry's lock when every index of the next store knows all of its objects.
func (e *entry) lockComplete() {
	type missing struct {
		index  *index
		object *Object
		values []string
	}
	for {
		var todo []missing
		e.mu.Lock()
		for _, x := range e.next.indexes {
			if len(x.listed) == e.next.count {
				x.ready = true
				continue
			}
			for o := range e.next.all() {
				if _, known := x.listed[o]; !known {
					todo = append(todo, missing{index: x, object: o})
				}
			}
		}
		if len(todo) == 0 {
			return
		}
		e.mu.Unlock()
		for i, m := range todo {
			todo[i].values = m.index.compute(m.object)
		}
		e.mu.Lock()
		for _, m := range todo { // only the feed, which is here, changes the objects of next
			m.index.add(m.object, m.values)
		}
		e.mu.Unlock()
	}
}

// addIndex adds an index to the informer and fills it. It returns when queries can use it. From its registration on the
// writer brings the values of every object it puts; those of the objects that are there are computed here.
func (e *entry) addIndex(name string, values IndexFunc) error {
	x, missing, err := e.registerIndex(name, values)
	if err != nil || x == nil {
		return err
	}
	computed := make([][]string, len(missing))
	for i, o := range missing {
		computed[i] = x.compute(o)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, o := range missing {
		// One that was replaced meanwhile is not the store's any more. Where all were, by a new epoch, x is not either.
		if e.store.get(o.GetNamespace(), o.GetName()) == o {
			x.add(o, computed[i])
		}
	}
	x.ready = true
	return nil
}

// registerIndex returns the new index and the objects it lacks, or nil where it is the built-in one and exists.
func (e *entry) registerIndex(name string, values IndexFunc) (*index, []*Object, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.store.index(name); x != nil {
		if name == ownerIndex {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("informer %s: index %q: %w", e.key, name, ErrIndexExists)
	}
	x := newIndex(name, values)
	e.store.indexes = append(slices.Clip(e.store.indexes), x)
	if e.next != nil {
		// What it has been given already is completed before it becomes the store.
		e.next.indexes = append(slices.Clip(e.next.indexes), newIndex(name, values))
	}
	return x, slices.Collect(e.store.all()), nil
}

// index returns the index of that name, or nil.
func (s *store) index(name string) *index {
	for _, x := range s.indexes {
		if x.name == name {
			return x
		}
	}
	return nil
}

// lookup appends the objects an index finds.
func (x *index) lookup(value string, dst []*Object) []*Object {
	for o := range x.found[value] {
		dst = append(dst, o)
	}
	return dst
}
