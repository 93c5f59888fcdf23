// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/listopts"
)

// cutAtLimit is the continue token of a list that was selected here and has
// fewer objects than exist. It cannot be used: a List with it is an error.
// Without a token, a partial list would look complete to code that reads page
// by page. controller-runtime's cache uses the same token.
const cutAtLimit = "continue-not-supported"

// list answers a list from the cache.
func (c *caches) list(
	o *readOptions, gvk schema.GroupVersionKind, lo *client.ListOptions, list client.ObjectList,
) error {
	found, err := c.selectAll(o, gvk, lo)
	if err != nil {
		return err
	}
	return c.shared.fill(list, found, o.share)
}

// selectAll selects the objects of a list from the cache.
func (c *caches) selectAll(o *readOptions, gvk schema.GroupVersionKind, lo *client.ListOptions) (selected, error) {
	switch lo.Continue {
	case "":
	case cutAtLimit:
		return selected{}, fmt.Errorf("%w: a list that was cut at its limit cannot be continued; "+
			"read it without Limit, or with LiveClient", ErrUnsupported)
	default:
		if o.mode == CacheOnly {
			return selected{}, fmt.Errorf("%w: a continue token", ErrUnsupported)
		}
		return selected{}, errLive
	}
	if listopts.Nothing(lo) != "" {
		return selected{}, nil // true whatever the API server has
	}
	if o.mode == LiveOnly {
		return selected{}, errLive
	}

	return c.lookUpAll(o, gvk, lo)
}

// selected is the result of a list that was selected here.
type selected struct {
	objects []*informerpool.Object
	version string
	cut     bool // at Limit: there are more
}

// lookUpAll finds the objects of a list in the cache.
func (c *caches) lookUpAll(o *readOptions, gvk schema.GroupVersionKind, lo *client.ListOptions) (selected, error) {
	covering, why := c.coverList(o, gvk, lo)
	for _, want := range covering {
		found, answers, err := c.selectFrom(o, want, lo)
		switch {
		case answers && err == nil:
			c.wants.Seen.Answered(want, found.objects...)
			return found, nil
		case answers:
			return selected{}, err
		case err != nil:
			why = err
		}
	}

	return selected{}, why
}

// selectFrom finds the objects of a list in the cache of a want. If that does not
// answer, the error is why.
func (c *caches) selectFrom(
	o *readOptions, want *wants.Want, lo *client.ListOptions,
) (found selected, answers bool, err error) {
	if why := c.usable(o, want); why != nil {
		return selected{}, false, why
	}
	asked := *lo
	if lo.Limit > 0 && lo.Limit < math.MaxInt32 {
		asked.Limit++ // to know whether there are more
	}
	namespace := want.In(lo.Namespace)
	outdated := c.wants.Lag.ListOutdated(want, lo) // before the look-up: the informer may catch up after it
	// It is asked before and after the list: what is refused in between may exist
	// in another state, and what is known since then is not in the list.
	unknown := want.Lease().Unknown(namespace, "")
	objects, rv, failed := c.listFrom(want, &asked)
	if why := cmp.Or(unknown, want.Lease().Unknown(namespace, "")); why != nil {
		return selected{}, false, instead(o, distrusted(why))
	}
	switch {
	case errors.Is(failed, informerpool.ErrReleased): // at this moment
		return selected{}, false, nil
	case failed != nil:
		return selected{}, true, translateIndex(failed)
	}
	if outdated != nil {
		c.shared.metrics.outdated.Inc()
		return selected{}, false, instead(o, outdated)
	}
	if c.usable(&readOptions{mode: o.mode, maxAge: o.maxAge, atLeast: o.atLeast}, want) != nil ||
		o.moved(want) || want.In(lo.Namespace) != namespace { // another history or scope began meanwhile
		return c.selectFrom(o, want, lo)
	}

	found = selected{objects: objects, version: rv}
	if lo.Limit > 0 && int64(len(objects)) > lo.Limit {
		found.objects, found.cut = objects[:lo.Limit], true
	}
	return found, true, nil
}

// coverList returns the wants that have everything that a list selects and that
// can select it. The error is the one to return if none of them answers.
func (c *caches) coverList(
	o *readOptions, gvk schema.GroupVersionKind, lo *client.ListOptions,
) ([]*wants.Want, error) {
	err := notWatched(o)
	var covering []*wants.Want
	for _, want := range c.wants.Index.Listing(gvk, lo) {
		_, _, unsupported := c.query(want, lo, true)
		if unsupported != nil { // by this informer; a narrower one may have selected it
			if err = errLive; o.mode == CacheOnly {
				err = unsupported
			}
			continue
		}

		covering = append(covering, want)
	}

	return covering, err
}

// listFrom lists from one informer.
func (c *caches) listFrom(want *wants.Want, lo *client.ListOptions) ([]*informerpool.Object, string, error) {
	q, keep, err := c.query(want, lo, true)
	if err != nil {
		return nil, "", err
	}
	objects, rv, err := want.Lease().List(q)
	if errors.Is(err, informerpool.ErrNoIndex) { // the index is being built
		if q, keep, err = c.query(want, lo, false); err == nil { // it may have been removed meanwhile
			objects, rv, err = want.Lease().List(q)
		}
	}
	if err == nil {
		objects, err = keep.from(objects)
	}

	return objects, rv, err
}

// translateIndex is translate for an error that may come from an index, which
// already names the field, the kind and the cluster.
func translateIndex(err error) error {
	if own, ok := errors.AsType[*IndexError](err); ok {
		return own
	}
	return translate(err)
}

// filters select cached objects by conditions that a query of the pool cannot
// express.
type filters []func(*informerpool.Object) (bool, error)

// from returns the objects that pass every filter. It reuses the slice.
func (s filters) from(objects []*informerpool.Object) ([]*informerpool.Object, error) {
	if len(s) == 0 {
		return objects, nil
	}
	kept := objects[:0]
	for _, o := range objects {
		ok, err := s.pass(o)
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, o)
		}
	}

	return kept, nil
}

func (s filters) pass(o *informerpool.Object) (bool, error) {
	for _, f := range s {
		if ok, err := f(o); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// query turns list options into a query of the pool, and filters for the
// options that a query cannot express.
func (c *caches) query(
	want *wants.Want, lo *client.ListOptions, useIndex bool,
) (informerpool.Query, filters, error) {
	q := informerpool.Query{Namespace: want.In(lo.Namespace), Limit: int(lo.Limit)}
	if lo.LabelSelector != nil && !lo.LabelSelector.Empty() {
		q.Labels = lo.LabelSelector
	}
	if lo.FieldSelector == nil || lo.FieldSelector.Empty() || want.FieldSelector != "" {
		return q, nil, nil // no selector, or the informer has already applied it
	}
	var keep filters
	for _, r := range lo.FieldSelector.Requirements() {
		index := c.shared.indexes.find(c.cluster, want.GVK, r.Field)
		switch {
		case r.Field == wants.FieldName:
			keep = append(keep,
				func(o *informerpool.Object) (bool, error) { return wants.Matches(r, o.GetName()), nil })
		case r.Field == wants.FieldNamespace:
			keep = append(keep,
				func(o *informerpool.Object) (bool, error) { return wants.Matches(r, o.GetNamespace()), nil })
		case index == nil:
			return q, nil, fmt.Errorf("%w: field %q has no index", ErrUnsupported, r.Field)
		case r.Operator != selection.NotEquals && q.Index == "" && useIndex:
			q.Index, q.Value = index.name, r.Value
		default:
			keep = append(keep, index.filter(c.cluster, r))
		}
	}

	if len(keep) > 0 {
		q.Limit = 0 // the filters come first
	}

	return q, keep, nil
}

// fill decodes objects into a list of any form, whose items are structs or
// pointers to structs.
func (s *shared) fill(list client.ObjectList, found selected, share bool) error {
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	slice, n := reflect.ValueOf(items).Elem(), len(found.objects)
	element := slice.Type().Elem()
	out := reflect.MakeSlice(slice.Type(), n, n)
	for i, o := range found.objects {
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
		if err := s.decodeInto(o, dst, share); err != nil {
			return err
		}
	}

	slice.Set(out)
	list.SetResourceVersion(found.version)
	list.SetContinue("")
	if found.cut {
		list.SetContinue(cutAtLimit)
	}
	list.SetRemainingItemCount(nil)

	return nil
}
