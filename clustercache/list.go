// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// listCached reads a list from the cache.
func (c *cluster) listCached(o *readOptions, gvk schema.GroupVersionKind, lo *client.ListOptions, list client.ObjectList) error {
	if lo.Continue != "" {
		if o.mode == CacheOnly {
			return fmt.Errorf("%w: a continue token", ErrUnsupported)
		}
		return errLive
	}
	err := notWatched(o)
	for _, h := range c.holds.of(gvk) {
		if !h.covers(lo) {
			continue
		}
		q, keep, unsupported := c.query(h, lo, true)
		if unsupported != nil {
			if o.mode == CacheOnly {
				return unsupported
			}
			return errLive
		}
		if why := c.usable(o, h); why != nil {
			err = why
			continue
		}
		objects, rv, failed := h.lease.List(q)
		if errors.Is(failed, informerpool.ErrNoIndex) { // it is being built
			q, keep, _ = c.query(h, lo, false)
			objects, rv, failed = h.lease.List(q)
		}
		switch {
		case errors.Is(failed, informerpool.ErrReleased): // at this moment
			continue
		case failed != nil:
			return translate(failed)
		case c.usable(o, h) != nil: // another history began in between
			return c.listCached(o, gvk, lo, list)
		}
		if keep != nil {
			objects = slices.DeleteFunc(objects, func(x *informerpool.Object) bool { return !keep(x) })
		}
		if lo.Limit > 0 && int64(len(objects)) > lo.Limit {
			objects = objects[:lo.Limit]
		}
		return c.fill(list, objects, rv)
	}
	return err
}

// covers tells whether the hold's informer has everything that a list selects.
func (h *hold) covers(lo *client.ListOptions) bool {
	if h.id.namespace != "" && h.id.namespace != lo.Namespace {
		return false
	}
	return (h.id.labels == "" || (lo.LabelSelector != nil && h.id.labels == lo.LabelSelector.String())) &&
		(h.id.fields == "" || (lo.FieldSelector != nil && h.id.fields == lo.FieldSelector.String()))
}

// query turns list options into a query of the pool and a filter for what that cannot express.
func (c *cluster) query(h *hold, lo *client.ListOptions, useIndex bool) (informerpool.Query, func(*informerpool.Object) bool, error) {
	q := informerpool.Query{Namespace: lo.Namespace, Limit: int(lo.Limit)}
	if lo.LabelSelector != nil && !lo.LabelSelector.Empty() {
		q.Labels = lo.LabelSelector
	}
	if lo.FieldSelector == nil || lo.FieldSelector.Empty() || h.id.fields != "" {
		return q, nil, nil // nothing asked, or the informer selected it
	}
	var filters []func(*informerpool.Object) bool
	for _, r := range lo.FieldSelector.Requirements() {
		index := c.cc.indexes.find(c.key, h.id.gvk, r.Field)
		switch {
		case r.Field == "metadata.name":
			filters = append(filters, func(o *informerpool.Object) bool { return matches(r, o.GetName()) })
		case r.Field == "metadata.namespace":
			filters = append(filters, func(o *informerpool.Object) bool { return matches(r, o.GetNamespace()) })
		case index == nil:
			return q, nil, fmt.Errorf("%w: field %q has no index", ErrUnsupported, r.Field)
		case r.Operator != selection.NotEquals && q.Index == "" && useIndex:
			q.Index, q.Value = index.name, r.Value
		default:
			filters = append(filters, func(o *informerpool.Object) bool {
				return slices.Contains(index.Values(o), r.Value) == (r.Operator != selection.NotEquals)
			})
		}
	}
	if len(filters) == 0 {
		return q, nil, nil
	}
	q.Limit = 0 // the filters come first
	return q, func(o *informerpool.Object) bool {
		return !slices.ContainsFunc(filters, func(f func(*informerpool.Object) bool) bool { return !f(o) })
	}, nil
}

func matches(r fields.Requirement, value string) bool {
	return (value == r.Value) == (r.Operator != selection.NotEquals)
}

// fill decodes objects into a list of any form.
func (c *cluster) fill(list client.ObjectList, objects []*informerpool.Object, rv string) error {
	var err error
	switch l := list.(type) {
	case *unstructured.UnstructuredList:
		l.Items = make([]unstructured.Unstructured, len(objects))
		for i, o := range objects {
			err = errors.Join(err, c.cc.pool.Decode(o, &l.Items[i]))
		}
	case *metav1.PartialObjectMetadataList:
		l.Items = make([]metav1.PartialObjectMetadata, len(objects))
		for i, o := range objects {
			err = errors.Join(err, c.cc.pool.Decode(o, &l.Items[i]))
		}
	default:
		err = c.fillTyped(list, objects)
	}
	if err != nil {
		return err
	}
	list.SetResourceVersion(rv)
	list.SetContinue("")
	list.SetRemainingItemCount(nil)
	return nil
}

// fillTyped decodes into the elements of the Items slice, which are structs or pointers to structs.
func (c *cluster) fillTyped(list client.ObjectList, objects []*informerpool.Object) error {
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	slice := reflect.ValueOf(items).Elem()
	element := slice.Type().Elem()
	out := reflect.MakeSlice(slice.Type(), len(objects), len(objects))
	for i, o := range objects {
		at := out.Index(i)
		if element.Kind() == reflect.Pointer {
			at.Set(reflect.New(element.Elem()))
		} else {
			at = at.Addr()
		}
		dst, ok := reflect.TypeAssert[runtime.Object](at)
		if !ok {
			return fmt.Errorf("%T has items that are no objects", list)
		}
		if err := c.cc.pool.Decode(o, dst); err != nil {
			return err
		}
	}
	slice.Set(out)
	return nil
}
