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

// valuesOf computes o's values for every index of the current store, without a lock.
func (e *entry) valuesOf(s *store, o *Object) map[*index][]string {
	e.mu.RLock()
	indexes := s.indexes // copied on write
	e.mu.RUnlock()
	if len(indexes) == 0 {
		return nil
	}
	values := make(map[*index][]string, len(indexes))
	for _, x := range indexes {
		values[x] = x.compute(o)
	}
	return values
}

// addIndex adds an index to the informer and fills it. It returns when queries can use it.
func (e *entry) addIndex(name string, values IndexFunc) error {
	x, err := e.registerIndex(name, values)
	if err != nil || x == nil {
		return err
	}
	// A writer that computed its values before the index was registered puts an object without values for it; every
	// later one brings them. So this ends after the first round or the second.
	for {
		missing := e.missingFrom(name)
		if missing == nil {
			return nil
		}
		computed := make([][]string, len(missing))
		for i, o := range missing {
			computed[i] = x.compute(o)
		}
		e.mu.Lock()
		if current := e.store.index(name); current != nil {
			for i, o := range missing {
				if _, known := current.listed[o]; !known && e.store.get(o.GetNamespace(), o.GetName()) == o {
					current.add(o, computed[i])
				}
			}
		}
		e.mu.Unlock()
	}
}

// registerIndex returns nil without an error where the index exists and is the built-in one.
func (e *entry) registerIndex(name string, values IndexFunc) (*index, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.store.index(name); x != nil {
		if name == ownerIndex {
			return x, nil
		}
		return nil, fmt.Errorf("informer %s: index %q: %w", e.key, name, ErrIndexExists)
	}
	x := newIndex(name, values)
	e.store.indexes = append(slices.Clip(e.store.indexes), x)
	if e.next != nil {
		e.next.indexes = append(slices.Clip(e.next.indexes), newIndex(name, values))
	}
	return x, nil
}

// missingFrom returns the objects that the index has not seen; nil marks the index ready.
func (e *entry) missingFrom(name string) []*Object {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.store.index(name)
	if x == nil {
		return nil
	}
	var missing []*Object
	if len(x.listed) < e.store.count {
		for o := range e.store.all() {
			if _, known := x.listed[o]; !known {
				missing = append(missing, o)
			}
		}
	}
	x.ready = x.ready || missing == nil
	return missing
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
