// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"slices"

	"github.com/fleetcache/fleetcache/internal/packed"
)

// OwnerIndex is the name of the built-in index by owner UID, which the first
// query by owner builds.
const OwnerIndex = "\x00owner"

// Index finds objects by the values that a function computes from them. Its
// informer's lock protects it. It keeps the values, so that removing an object
// calls no user function under that lock.
type Index struct {
	Name   string
	Values func(*packed.Object) ([]string, error)
	Ready  bool
	found  map[string]map[*packed.Object]struct{}
	listed map[*packed.Object][]string
	failed map[*packed.Object]error // objects whose values could not be computed
	bytes  int64                    // approximate memory of the index
}

// The average memory of an index for an object, for each of its values, and for
// a value that no other object has.
const (
	listedBytes = 64
	valueBytes  = 40
	setBytes    = 200
)

// NewIndex returns an index without objects.
func NewIndex(name string, values func(*packed.Object) ([]string, error)) *Index {
	return &Index{
		Name:   name,
		Values: values,
		found:  map[string]map[*packed.Object]struct{}{},
		listed: map[*packed.Object][]string{},
		failed: map[*packed.Object]error{},
	}
}

// Computed is the result of an index function for one object.
type Computed struct {
	Values []string
	Err    error
}

// Compute calls the index function.
func (x *Index) Compute(o *packed.Object) Computed {
	values, err := x.Values(o)
	if err != nil {
		return Computed{Err: err}
	}
	if len(values) > 1 {
		values = slices.Compact(slices.Sorted(slices.Values(values)))
	}
	return Computed{Values: values}
}

// Add adds an object with its values.
func (x *Index) Add(o *packed.Object, of Computed) {
	x.listed[o] = of.Values
	x.bytes += listedBytes + valueBytes*int64(len(of.Values))
	if of.Err != nil {
		x.failed[o] = of.Err
	}

	for _, v := range of.Values {
		set := x.found[v]
		if set == nil {
			set = map[*packed.Object]struct{}{}
			x.found[v] = set
			x.bytes += setBytes + int64(len(v))
		}
		set[o] = struct{}{}
	}
}

// Failure returns one of the objects whose values could not be computed, how
// many there are, and why; nil if there is none.
func (x *Index) Failure() (o *packed.Object, count int, err error) {
	for o, err := range x.failed {
		return o, len(x.failed), err
	}
	return nil, 0, nil
}

func (x *Index) remove(o *packed.Object) {
	values, listed := x.listed[o]
	if listed {
		x.bytes -= listedBytes + valueBytes*int64(len(values))
	}
	for _, v := range values {
		set, ok := x.found[v]
		delete(set, o)
		if ok && len(set) == 0 { // a value may occur twice
			delete(x.found, v)
			x.bytes -= setBytes + int64(len(v))
		}
	}

	delete(x.listed, o)
	delete(x.failed, o)
}

// OwnerUIDs is the function of the built-in index.
func OwnerUIDs(o *packed.Object) ([]string, error) {
	var uids []string
	for uid := range o.OwnerUIDs() {
		uids = append(uids, string(uid))
	}
	return uids, nil
}

// Index returns the index of that name, or nil.
func (s *Store) Index(name string) *Index {
	for _, x := range s.Indexes {
		if x.Name == name {
			return x
		}
	}
	return nil
}

// Lookup returns the objects that an index finds.
func (x *Index) Lookup(value string) []*packed.Object {
	return slices.Collect(maps.Keys(x.found[value]))
}
