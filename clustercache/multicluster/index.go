// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
)

// fieldIndex holds the arguments of IndexField.
type fieldIndex struct {
	representation representation
	field          string
	values         client.IndexerFunc
}

// indexKey identifies an index in a cluster: one index serves every
// representation of a kind.
type indexKey struct {
	gvk   schema.GroupVersionKind
	field string
}

// indexed is an index of a cluster.
type indexed struct {
	representation representation
	remove         func()
}

// IndexField indexes objects by a field, in every present and future cluster,
// for lists with client.MatchingFields. The index lasts as long as the
// ClusterCache, however often informers and clusters are removed and created
// again. IndexField computes the field of objects that are cached already, and
// does no I/O. A second index of the same field and representation is an error,
// as in every cache; that of another representation of the kind serves this one
// too.
func (s *Clusters) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	f, err := representationOf(obj, s.cc.Options().Scheme)
	if err != nil {
		return err
	}
	x := fieldIndex{representation: f, field: field, values: values}
	s.indexing.Lock()
	defer s.indexing.Unlock()

	if s.indexesInAnotherRepresentation(x) {
		return nil
	}
	if _, err := s.cc.AddIndex(x.index()); err != nil {
		return err
	}
	s.mu.Lock()
	s.indexes = append(s.indexes, x)
	s.mu.Unlock()
	return nil
}

// indexesInAnotherRepresentation reports whether every cluster has the index of
// another representation of the kind.
func (s *Clusters) indexesInAnotherRepresentation(x fieldIndex) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.indexes, func(old fieldIndex) bool {
		return old.representation.gvk == x.representation.gvk && old.field == x.field &&
			old.representation != x.representation
	})
}

// index returns the index in the ClusterCache's representation. An object that
// does not fit the type is an error of the lists: otherwise they could miss it.
func (x fieldIndex) index() clustercache.Index {
	return clustercache.Index{
		GVK:            x.representation.gvk,
		Field:          x.field,
		Values:         x.values,
		Representation: x.representation.named(),
	}
}

// IndexField implements client.FieldIndexer. The index is kept until the
// cluster is forgotten, however often its informers are removed and created
// again. IndexField computes the field of objects that are cached already, and
// does no I/O.
func (c *remoteCache) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	f, err := representationOf(obj, c.cc.Options().Scheme)
	if err != nil {
		return c.fail("index", f.gvk, err)
	}
	return c.index(fieldIndex{representation: f, field: field, values: values})
}

func (c *remoteCache) index(x fieldIndex) error {
	k := indexKey{gvk: x.representation.gvk, field: x.field}
	c.s.indexing.Lock()
	defer c.s.indexing.Unlock()

	c.mu.Lock()
	old, closed := c.indexed[k], c.closed
	c.mu.Unlock()

	switch {
	case closed:
		return c.fail("index", x.representation.gvk, clustercache.ErrReleased)
	case old != nil && old.representation != x.representation, c.s.indexesInAnotherRepresentation(x):
		return nil
	}

	remove, err := c.cc.AddIndex(x.index(), c.key)
	if err != nil {
		return c.fail("index", x.representation.gvk, err)
	}
	c.mu.Lock()
	c.indexed[k] = &indexed{representation: x.representation, remove: remove}
	closed = c.closed
	c.mu.Unlock()

	if closed {
		remove() // close did not see it
	}

	return nil
}

func (c *remoteCache) dropIndexes() {
	c.mu.Lock()
	dropped := c.indexed
	c.indexed = map[indexKey]*indexed{}
	c.mu.Unlock()

	for _, x := range dropped {
		x.remove()
	}
}
