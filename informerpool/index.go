// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/calls"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
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
	return fmt.Sprintf("informer %s: index %q: no values of %d objects, %s for one: %v",
		e.Key, e.Index, e.Objects, e.Object, e.Err)
}

// Unwrap returns the cause.
func (e *IndexError) Unwrap() error { return e.Err }

// indexes are those of an informer's store. Their functions are the user's, and
// are called without the lock.
type indexes struct {
	key   *Key
	calls *calls.Caller
	mu    *sync.RWMutex // the informer's, which protects store
	store **store.Store
}

func (i *informer) indexes() indexes {
	return indexes{&i.key, &i.pool.calls, &i.mu.RWMutex, &i.mu.store}
}

// compute calls an index function for each object, and recovers from its
// panics. The first panic is logged, without the object's content: objects may
// be secrets.
func (s indexes) compute(x *store.Index, objects []*Object) []store.Computed {
	out := make([]store.Computed, 0, len(objects))
	if x.Name == store.OwnerIndex { // it is not the user's
		for _, o := range objects {
			out = append(out, x.Compute(o))
		}
		return out
	}

	for said := false; len(out) < len(objects); {
		// One goroutine serves all objects up to the first that ends it.
		failure := callback.ApartSecret("Index", func() error {
			for _, o := range objects[len(out):] {
				out = append(out, x.Compute(o))
			}
			return nil
		})
		caught, failed := errors.AsType[*callback.PanicError](failure)
		if !failed {
			break
		}
		if !said {
			callback.Log(s.calls.Logger, caught, "Callback panicked", "informer", s.key.String(), "index", x.Name)
		}
		said = true
		out = append(out, store.Computed{Err: ErrIndexPanicked})
		s.calls.Panicked(caught.Callback)
	}

	return out
}

// indexed holds the values of objects, by index.
type indexed map[*store.Index]map[*Object]store.Computed

// of returns the values of one object, by index.
func (v indexed) of(o *Object) map[*store.Index]store.Computed {
	if len(v) == 0 {
		return nil
	}
	out := make(map[*store.Index]store.Computed, len(v))
	for x, values := range v {
		out[x] = values[o]
	}
	return out
}

// one yields one object.
func one(o *Object) iter.Seq[*Object] {
	return func(yield func(*Object) bool) { yield(o) }
}

// lock takes the informer's lock together with the objects' values for every
// index of the current store. If an index is added while they are computed, it
// starts over.
func (s indexes) lock(objects iter.Seq[*Object]) indexed {
	var values indexed
	for {
		s.mu.Lock()
		missing := slices.DeleteFunc(slices.Clone((*s.store).Indexes),
			func(x *store.Index) bool { _, ok := values[x]; return ok })
		if len(missing) == 0 {
			return values
		}
		s.mu.Unlock()

		if values == nil {
			values = make(indexed, len(missing))
		}
		for _, x := range missing {
			values[x] = map[*Object]store.Computed{}
			all := slices.Collect(objects)
			for n, c := range s.compute(x, all) {
				values[x][all[n]] = c
			}
		}
	}
}

// add adds an index and fills it. It returns when queries can use it. Once the
// index is registered, the writer supplies the values of every object it puts;
// add computes those of the objects that are already there.
func (s indexes) add(name string, f TryIndexFunc) error {
	x, missing, err := s.register(name, f)
	if err != nil || x == nil {
		return err
	}
	values := s.compute(x, missing)
	s.mu.Lock()
	defer s.mu.Unlock()

	for n, o := range missing {
		// An object that was replaced meanwhile is no longer in the store.
		if (*s.store).Of(o) == o {
			x.Add(o, values[n])
		}
	}

	x.Ready = true

	return nil
}

// register returns the new index and the objects it lacks, or nil if it is the
// built-in one and exists.
func (s indexes) register(name string, values TryIndexFunc) (*store.Index, []*Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if x := (*s.store).Index(name); x != nil {
		if name == store.OwnerIndex {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("informer %s: index %q: %w", s.key, name, ErrIndexExists)
	}

	x := store.NewIndex(name, values)
	(*s.store).Indexes = append(slices.Clip((*s.store).Indexes), x)

	return x, slices.Collect((*s.store).All()), nil
}

// copyFrom adds the indexes of another informer.
func (s indexes) copyFrom(other indexes) {
	other.mu.RLock()
	all := (*other.store).Indexes // never changed in place
	other.mu.RUnlock()

	for _, x := range all {
		_ = s.add(x.Name, x.Values) // it may have the index already
	}
}

// checkIndex returns why queries of an index cannot be answered, or nil.
func checkIndex(x *store.Index, k Key) error {
	o, count, err := x.Failure()
	if o == nil {
		return nil
	}
	return &IndexError{
		Key:     k,
		Index:   x.Name,
		Objects: count,
		Object:  store.NameOf(o),
		Err:     err,
	}
}
