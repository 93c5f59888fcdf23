// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/callback"
)

// ErrIndexExists indicates that a field of the kind already has an index.
var ErrIndexExists = errors.New("field is indexed already")

// indexes are the fields by which cached reads can select.
type indexes struct {
	shared *shared

	mu   sync.RWMutex // protects what follows; nothing else is locked under it
	all  map[schema.GroupVersionKind][]*addedIndex
	next int
}

// addedIndex is an index with its name in informers. No other index ever has
// the same name: a removed index may still exist in an informer.
type addedIndex struct {
	Index

	shared   *shared
	name     string
	clusters []client.ObjectKey // nil: all
	worked   atomic.Uint32      // the representation that Values last worked with; AsGiven: none yet
	logged   atomic.Bool        // its first failure was logged
}

func newIndexes(of *shared) *indexes {
	s := &indexes{shared: of, all: map[schema.GroupVersionKind][]*addedIndex{}}
	for _, x := range of.options.Indexes {
		_, _ = s.add(x, nil) // of two indexes for one field the first counts
	}
	return s
}

func (x *addedIndex) appliesTo(cluster client.ObjectKey) bool {
	return len(x.clusters) == 0 || slices.Contains(x.clusters, cluster)
}

func (s *indexes) add(x Index, clusters []client.ObjectKey) (*addedIndex, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, old := range s.all[x.GVK] {
		overlaps := len(clusters) == 0 || len(old.clusters) == 0 || slices.ContainsFunc(clusters, old.appliesTo)
		if old.Field == x.Field && overlaps {
			return nil, fmt.Errorf("index %q of %s: %w", x.Field, kindName(x.GVK), ErrIndexExists)
		}
	}

	s.next++
	added := &addedIndex{
		Index:    x,
		shared:   s.shared,
		name:     fmt.Sprintf("%s#%d", x.Field, s.next),
		clusters: slices.Clone(clusters),
	}
	s.all[x.GVK] = append(slices.Clip(s.all[x.GVK]), added)

	return added, nil
}

func (s *indexes) remove(x *addedIndex) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(s.all[x.GVK]), func(old *addedIndex) bool { return old == x })
	if s.all[x.GVK] = left; len(left) == 0 {
		delete(s.all, x.GVK)
	}
}

// of returns the indexes of a kind in a cluster.
func (s *indexes) of(cluster client.ObjectKey, gvk schema.GroupVersionKind) []*addedIndex {
	s.mu.RLock()
	all := s.all[gvk] // never changed in place
	s.mu.RUnlock()

	var out []*addedIndex
	for _, x := range all {
		if x.appliesTo(cluster) {
			out = append(out, x)
		}
	}

	return out
}

// find returns the index of a field, or nil.
func (s *indexes) find(cluster client.ObjectKey, gvk schema.GroupVersionKind, field string) *addedIndex {
	of := s.of(cluster, gvk)
	if i := slices.IndexFunc(of, func(x *addedIndex) bool { return x.Field == field }); i >= 0 {
		return of[i]
	}
	return nil
}

// addTo adds the indexes that an informer lacks.
func (s *indexes) addTo(lease *informerpool.Lease, cluster client.ObjectKey, gvk schema.GroupVersionKind) {
	for _, x := range s.of(cluster, gvk) {
		values := func(o *informerpool.Object) ([]string, error) { return x.valuesOf(cluster, o) }
		err := lease.TryAddIndex(x.name, values)
		if err != nil && !errors.Is(err, informerpool.ErrIndexExists) && !errors.Is(err, informerpool.ErrReleased) &&
			!errors.Is(err, informerpool.ErrClosed) {
			s.shared.log.Error(err, "Index cannot be added", "cluster", clusterName(cluster), "field", x.Field)
		}
	}
}

// IndexError indicates that a list by an indexed field cannot be answered
// because Index.Values failed for cached objects. Other reads of the kind are
// not affected.
type IndexError struct {
	Cluster client.ObjectKey
	GVK     schema.GroupVersionKind
	// Field is the indexed field.
	Field string
	// Object is one of the objects that it failed for.
	Object client.ObjectKey
	// Err is the cause: [informerpool.ErrIndexPanicked], or why the object does
	// not fit the representation.
	Err error
}

// Error implements error.
func (e *IndexError) Error() string {
	return fmt.Sprintf("index %q of %s in cluster %s: object %s: %v",
		e.Field, kindName(e.GVK), clusterName(e.Cluster), objectName(e.Object), e.Err)
}

// Unwrap returns the cause.
func (e *IndexError) Unwrap() error { return e.Err }

// filter returns a filter of objects by a requirement on the field.
func (x *addedIndex) filter(cluster client.ObjectKey, r fields.Requirement) func(*informerpool.Object) (bool, error) {
	return func(o *informerpool.Object) (bool, error) {
		values, err := x.valuesOf(cluster, o)
		return slices.Contains(values, r.Value) == (r.Operator != selection.NotEquals), err
	}
}

// valuesOf calls Values with an object in the representation that it needs. By
// default that representation is found by trying: a function that asserts
// another type than it receives panics, or returns no values, and is called
// with the next representation. The first representation for which it returned
// values is kept.
func (x *addedIndex) valuesOf(cluster client.ObjectKey, o *informerpool.Object) ([]string, error) {
	name := client.ObjectKeyFromObject(o)
	var first *callback.PanicError
	answered := false
	for _, r := range x.representations() {
		obj, err := x.shared.decode(r, o)
		if err != nil {
			return nil, x.failed(cluster, name, err, err.Error())
		}
		values, failed := x.call(obj)
		if len(values) > 0 {
			x.worked.Store(uint32(r))
			return values, nil
		}
		answered = answered || failed == nil
		if failed == nil {
			continue
		}
		if first == nil {
			first = failed
		}
		if _, assertion := errors.AsType[*runtime.TypeAssertionError](failed); !assertion {
			answered = false
			break
		}
	}

	if answered {
		return nil, nil
	}
	return nil, x.failed(cluster, name, informerpool.ErrIndexPanicked, first.Value)
}

// representations returns the representations to call Values with, in order.
func (x *addedIndex) representations() []events.Representation {
	if x.Representation != events.AsGiven {
		return []events.Representation{x.Representation}
	}
	if worked := events.Representation(x.worked.Load()); worked != events.AsGiven {
		return []events.Representation{worked}
	}
	return []events.Representation{events.Typed, events.Packed, events.Unstructured}
}

// call calls Values and recovers if it panics or ends its goroutine.
func (x *addedIndex) call(obj client.Object) (values []string, failed *callback.PanicError) {
	err := callback.Apart(indexCallback, func() error {
		values = x.Values(obj)
		return nil
	})
	if err == nil {
		return values, nil
	}
	failed, _ = errors.AsType[*callback.PanicError](err)
	return nil, failed
}

const indexCallback = "Index.Values"

// failed counts a failure and logs the first one of the index.
func (x *addedIndex) failed(cluster, name client.ObjectKey, err error, text string) error {
	x.shared.metrics.indexFailed.Inc()
	if errors.Is(err, informerpool.ErrIndexPanicked) {
		x.shared.metrics.panicked(indexCallback)
	}
	if !x.logged.Swap(true) {
		x.shared.log.Error(err, "Index function failed; lists by its field fail. Further failures are not logged",
			"cluster", clusterName(cluster), "kind", kindName(x.GVK), "field", x.Field, "object", objectName(name),
			"failure", text)
	}
	return &IndexError{
		Cluster: cluster,
		GVK:     x.GVK,
		Field:   x.Field,
		Object:  name,
		Err:     err,
	}
}
