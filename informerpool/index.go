// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/callback"
)

// IndexFunc computes the values under which an index finds an object. It must
// be pure and must not block. It is called without locks, once per state of an
// object. If it panics for an object of the store, queries of the index fail
// with an [*IndexError] as long as that object is there: without its values
// they could miss it. The panic is logged, and reported to Options.OnPanic as
// "Index".
type IndexFunc func(*Object) []string

// TryIndexFunc is an [IndexFunc] that can fail, for example because it decodes
// the object. An error has the same effect as a panic.
type TryIndexFunc func(*Object) ([]string, error)

// IndexError reports that an index cannot answer because its function failed
// for objects of the store.
type IndexError struct {
	Key   Key
	Index string
	// Objects is the number of objects it failed for, and Object is one of
	// them.
	Objects int
	Object  types.NamespacedName
	// Err is the function's error for that object, or [ErrIndexPanicked].
	Err error
}

// Error implements error.
func (e *IndexError) Error() string {
	return fmt.Sprintf("informer %s: index %q: no values of %d objects, %s for one: %v", e.Key, e.Index, e.Objects, e.Object, e.Err)
}

// Unwrap returns the cause.
func (e *IndexError) Unwrap() error { return e.Err }

// ownerIndex is the name of the built-in index by owner UID, which the first
// query by owner builds.
const ownerIndex = "\x00owner"

// index finds objects by the values that a function computes from them. Its
// informer's lock protects it. It keeps the values, so that removing an object
// calls no user function under that lock.
type index struct {
	name   string
	values TryIndexFunc
	ready  bool
	found  map[string]map[*Object]struct{}
	listed map[*Object][]string
	failed map[*Object]error // objects whose values could not be computed
	bytes  int64             // approximate memory of the index
}

// The average memory of an index for an object, for each of its values, and for
// a value that no other object has.
const (
	listedBytes = 64
	valueBytes  = 40
	setBytes    = 200
)

func newIndex(name string, values TryIndexFunc) *index {
	return &index{
		name:   name,
		values: values,
		found:  map[string]map[*Object]struct{}{},
		listed: map[*Object][]string{},
		failed: map[*Object]error{},
	}
}

// computed is the result of an index function for one object.
type computed struct {
	values []string
	err    error
}

// compute calls the index function for each object, without locks, and recovers
// from its panics. The first panic is logged, without the object's content:
// objects may be secrets.
func (i *informer) compute(x *index, objects []*Object) []computed {
	out := make([]computed, 0, len(objects))
	if x.name == ownerIndex { // it is not the user's
		for _, o := range objects {
			out = append(out, x.compute(o))
		}
		return out
	}

	for said := false; len(out) < len(objects); {
		// One goroutine serves all objects up to the first that ends it.
		failure := callback.ApartSecret("Index", func() error {
			for _, o := range objects[len(out):] {
				out = append(out, x.compute(o))
			}
			return nil
		})
		caught, failed := errors.AsType[*callback.PanicError](failure)
		if !failed {
			break
		}
		if !said {
			callback.Log(i.pool.options.Logger, caught, "Callback panicked", "informer", i.key.String(), "index", x.name)
		}
		said = true
		out = append(out, computed{err: ErrIndexPanicked})
		i.pool.panicked(caught.Callback)
	}

	return out
}

// compute calls the index function.
func (x *index) compute(o *Object) computed {
	values, err := x.values(o)
	if err != nil {
		return computed{err: err}
	}
	if len(values) > 1 {
		values = slices.Compact(slices.Sorted(slices.Values(values)))
	}
	return computed{values: values}
}

func (x *index) add(o *Object, of computed) {
	x.listed[o] = of.values
	x.bytes += listedBytes + valueBytes*int64(len(of.values))
	if of.err != nil {
		x.failed[o] = of.err
	}

	for _, v := range of.values {
		set := x.found[v]
		if set == nil {
			set = map[*Object]struct{}{}
			x.found[v] = set
			x.bytes += setBytes + int64(len(v))
		}
		set[o] = struct{}{}
	}
}

// check returns why queries of the index cannot be answered, or nil.
func (x *index) check(k Key) error {
	for o, err := range x.failed {
		return &IndexError{
			Key:     k,
			Index:   x.name,
			Objects: len(x.failed),
			Object:  nameOf(o),
			Err:     err,
		}
	}

	return nil
}

func (x *index) remove(o *Object) {
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

func ownerUIDs(o *Object) ([]string, error) {
	var uids []string
	for uid := range o.OwnerUIDs() {
		uids = append(uids, string(uid))
	}
	return uids, nil
}

// indexed holds the values of objects, by index.
type indexed map[*index]map[*Object]computed

// of returns the values of one object, by index.
func (v indexed) of(o *Object) map[*index]computed {
	if len(v) == 0 {
		return nil
	}
	out := make(map[*index]computed, len(v))
	for x, values := range v {
		out[x] = values[o]
	}
	return out
}

// one yields one object.
func one(o *Object) iter.Seq[*Object] {
	return func(yield func(*Object) bool) { yield(o) }
}

// lockWith takes the informer's lock together with the objects' values for
// every index of the current store. The values are computed without the lock,
// since the functions are the user's; if an index is added meanwhile, lockWith
// starts over.
func (i *informer) lockWith(objects iter.Seq[*Object]) indexed {
	var values indexed
	for {
		i.mu.Lock()
		missing := slices.DeleteFunc(slices.Clone(i.mu.store.indexes), func(x *index) bool { _, ok := values[x]; return ok })
		if len(missing) == 0 {
			return values
		}
		i.mu.Unlock()

		if values == nil {
			values = make(indexed, len(missing))
		}
		for _, x := range missing {
			values[x] = map[*Object]computed{}
			all := slices.Collect(objects)
			for n, c := range i.compute(x, all) {
				values[x][all[n]] = c
			}
		}
	}
}

// addIndex adds an index to the informer and fills it. It returns when queries
// can use it. Once the index is registered, the writer supplies the values of
// every object it puts; addIndex computes those of the objects that are already
// there.
func (i *informer) addIndex(name string, f TryIndexFunc) error {
	x, missing, err := i.registerIndex(name, f)
	if err != nil || x == nil {
		return err
	}
	values := i.compute(x, missing)
	i.mu.Lock()
	defer i.mu.Unlock()

	for n, o := range missing {
		// An object that was replaced meanwhile is no longer in the store.
		if i.mu.store.get(o.GetNamespace(), o.GetName()) == o {
			x.add(o, values[n])
		}
	}

	x.ready = true

	return nil
}

// registerIndex returns the new index and the objects it lacks, or nil if it is
// the built-in one and exists.
func (i *informer) registerIndex(name string, values TryIndexFunc) (*index, []*Object, error) {
	i.mu.Lock()
	defer i.mu.Unlock()

	if x := i.mu.store.index(name); x != nil {
		if name == ownerIndex {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("informer %s: index %q: %w", i.key, name, ErrIndexExists)
	}

	x := newIndex(name, values)
	i.mu.store.indexes = append(slices.Clip(i.mu.store.indexes), x)

	return x, slices.Collect(i.mu.store.all()), nil
}

// indexReady reports whether queries can use an index.
func (i *informer) indexReady(name string) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	x := i.mu.store.index(name)
	return x != nil && x.ready
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
