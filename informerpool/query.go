// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"fmt"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/selector"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/packed"
)

// Query narrows a list. The zero Query selects everything.
type Query struct {
	// Namespace selects one namespace; empty means all.
	Namespace string
	// Labels selects by labels; nil means all. Objects that do not match are
	// not decoded.
	Labels labels.Selector
	// Owner selects the objects with an owner reference to this uid.
	Owner types.UID
	// Index and Value select by an index added with AddIndex.
	Index, Value string
	// Limit is the maximum number of objects returned; zero means no limit.
	// Which objects are returned is undefined.
	Limit int
}

// List returns the cached objects that a query selects, in no order, and the
// resourceVersion the cache has reached. All objects belong to one epoch. The
// error is [ErrReleased], [ErrNotSynced], [ErrNoIndex] or an [*IndexError]. The
// objects are shared and read-only.
func (l *Lease) List(q Query) ([]*Object, string, error) {
	candidates, rv, narrow, err := l.candidates(&q)
	if err != nil {
		return nil, "", err
	}
	required := q.required(narrow)
	out := candidates[:0]
	for _, o := range candidates {
		if q.Limit > 0 && len(out) == q.Limit {
			break
		}
		if o.MayHave(required) && q.selects(o, narrow) {
			out = append(out, o)
		}
	}

	return slices.Clip(out), rv, nil
}

// All returns the objects that List returns, as a sequence over a snapshot: it
// filters during iteration, without a lock, and shows no later changes. It can
// be iterated more than once.
func (l *Lease) All(q Query) (iter.Seq[*Object], error) {
	candidates, _, narrow, err := l.candidates(&q)
	if err != nil {
		return nil, err
	}
	required := q.required(narrow)
	return func(yield func(*Object) bool) {
		left := q.Limit
		for _, o := range candidates {
			if !o.MayHave(required) || !q.selects(o, narrow) {
				continue
			}
			if !yield(o) || left == 1 {
				return
			}
			left--
		}
	}, nil
}

// candidates copies the objects that the indexes narrow a query down to. The
// other criteria are checked without the lock. A query by owner becomes one on
// the built-in index, which the first such query builds. Queries that arrive
// while it is being built scan every object instead.
func (l *Lease) candidates(q *Query) (objects []*Object, rv string, narrow selector.Selector, err error) {
	byOwner := q.Owner != "" && q.Index == ""
	if byOwner {
		_ = l.at.informer().indexes().add(store.OwnerIndex, store.OwnerUIDs)
	}
	at := l.at.rlock()
	i := at.informer
	defer i.mu.RUnlock()

	if err := l.readableLocked(); err != nil {
		return nil, "", narrow, err
	}
	i.mu.store.Sight.Look()

	if x := i.mu.store.Index(store.OwnerIndex); byOwner && x != nil && x.Ready {
		q.Index, q.Value, q.Owner = store.OwnerIndex, string(q.Owner), ""
	}
	if q.Index != "" {
		x := i.mu.store.Index(q.Index)
		if x == nil || !x.Ready {
			return nil, "", narrow, fmt.Errorf("%s: index %q: %w", at.key, q.Index, ErrNoIndex)
		}
		if err := checkIndex(x, at.key); err != nil {
			return nil, "", narrow, err
		}
		return x.Lookup(q.Value), i.mu.rv, at.selector, nil
	}

	namespace := q.Namespace
	if namespace == "" {
		namespace = at.selector.Namespace
	}
	size := i.mu.store.Count
	if namespace != "" {
		size = i.mu.store.CountIn(namespace)
	}
	objects = make([]*Object, 0, size)
	for o := range i.mu.store.In(namespace) {
		objects = append(objects, o)
	}

	return objects, i.mu.rv, at.selector, nil
}

// required returns a digest of the labels that the selected objects have.
func (q *Query) required(narrow selector.Selector) packed.Labels {
	return packed.Required(q.Labels) | packed.Required(narrow.Labels)
}

// selects reports whether a query selects an object that passes the selector.
func (q *Query) selects(o *Object, narrow selector.Selector) bool {
	if q.Namespace != "" && o.GetNamespace() != q.Namespace {
		return false
	}
	if q.Labels != nil && !o.MatchesLabels(q.Labels) {
		return false
	}
	if q.Owner != "" && !slices.Contains(slices.Collect(o.OwnerUIDs()), q.Owner) {
		return false
	}
	return narrow.Match(o)
}

// Decode decodes o into dst: an *unstructured.Unstructured, a
// *metav1.PartialObjectMetadata, or a pointer to a typed struct. The caller
// owns the result. Typed objects that are read repeatedly come from a cache of
// decoded objects. Decode does no I/O.
func (p *Pool) Decode(o *Object, dst runtime.Object) error { return p.decoded.Decode(o, dst) }

// DecodeShared is Decode for a caller that changes nothing: dst may share maps,
// slices and pointers with the cache of decoded objects and with other readers.
// An object that is read repeatedly, in any form, is not even copied then.
//
// If the environment variable KUBE_CACHE_MUTATION_DETECTOR is true, as client-go
// reads it, each read of a cached object looks whether a reader has changed it,
// and panics if so. Set it in tests: it takes as long as decoding.
func (p *Pool) DecodeShared(o *Object, dst runtime.Object) error { return p.decoded.Share(o, dst) }
