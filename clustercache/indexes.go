// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrIndexExists indicates that a field of the kind already has an index.
var ErrIndexExists = errors.New("field is indexed already")

func (x Index) validate(field string) []error {
	var errs []error
	check := func(ok bool, name string) {
		if !ok {
			errs = append(errs, &OptionError{Field: field + "." + name, Err: errors.New("required")})
		}
	}
	check(x.GVK.Version != "" && x.GVK.Kind != "", "GVK")
	check(x.Field != "", "Field")
	check(x.Values != nil, "Values")
	if x.Representation > Metadata {
		errs = append(errs, &OptionError{Field: field + ".Representation", Err: ErrUnsupported})
	}

	return errs
}

// indexes are the fields by which cached reads can select.
type indexes struct {
	mu   sync.RWMutex // protects what follows; nothing else is locked under it
	all  map[schema.GroupVersionKind][]*addedIndex
	next int
}

// addedIndex is an index with its name in informers. No other index ever has
// the same name: a removed index may still exist in an informer.
type addedIndex struct {
	Index

	name     string
	clusters []client.ObjectKey // nil: all
	worked   atomic.Uint32      // the representation that Values last worked with; AsGiven: none yet
	logged   atomic.Bool        // its first failure was logged
}

func newIndexes(of []Index) *indexes {
	s := &indexes{all: map[schema.GroupVersionKind][]*addedIndex{}}
	for _, x := range of {
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
	added := &addedIndex{Index: x, name: fmt.Sprintf("%s#%d", x.Field, s.next), clusters: slices.Clone(clusters)}
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
