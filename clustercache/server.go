// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/misfit"
	"github.com/fleetcache/fleetcache/internal/packed"
)

// server is the API server of one cluster, as far as it answers reads.
type server struct {
	shared  *shared
	cluster client.ObjectKey
	conn    *connection.Connection
	live    *liveclient.Factory
}

// read queries the API server. If the origin is wanted, the server's
// identity is queried once more after the answer: the proof that admitted the
// read may be a minute old, and behind a proxy the cluster another one since.
func (s *server) read(ctx context.Context, o *readOptions, read func(context.Context, client.Reader) error) error {
	live, err := s.live.Reader()
	if err != nil {
		return err
	}
	v, same := s.conn.View(), func() error { return nil }
	if o.origin != nil {
		ctx, same = s.conn.Witnessed(ctx)
	}
	err = read(ctx, live)
	if err != nil && !apistatus.SaysAbsent(err) {
		return err
	}
	if moved := same(); moved != nil {
		return moved
	}
	if s.conn.View().Epoch != v.Epoch {
		return connection.ErrMoved // the answer belongs to one history, and it is not known which
	}
	if o.origin != nil {
		*o.origin = Origin{Connected: true, Epoch: string(v.Epoch), LastSeen: time.Now()}
	}

	return err
}

const (
	// maxLiveSelected is how many objects of the API server a list by an
	// indexed field may read while no informer answers it.
	maxLiveSelected = 10_000
	livePage        = 500
)

// list lists from the API server, which does not know fields that have an
// index and would refuse the list. Requirements on such fields are evaluated
// here, by the index's function, so that the answer does not depend on where it
// comes from.
func (s *server) list(
	ctx context.Context, live client.Reader, gvk schema.GroupVersionKind,
	lo *client.ListOptions, list client.ObjectList,
) error {
	indexed, rest := s.splitFields(gvk, lo.FieldSelector)
	if len(indexed) == 0 {
		return live.List(ctx, list, lo)
	}
	if lo.Continue != "" {
		return fmt.Errorf("%w: a continue token with a field that has an index", ErrUnsupported)
	}
	selection := liveSelection{server: s, gvk: gvk, indexed: indexed}
	if err := selection.read(liveclient.WithBudget(ctx, s.shared.options.MaxLiveBytes), live, lo, rest); err != nil {
		return err
	}
	return selection.fill(list)
}

// indexedField is a requirement on a field that has an index.
type indexedField struct {
	fields.Requirement

	index *addedIndex
}

// splitFields separates the fields that have an index from those for the
// server.
func (s *server) splitFields(
	gvk schema.GroupVersionKind, selector fields.Selector,
) (indexed []indexedField, rest fields.Selector) {
	if selector == nil {
		return nil, nil
	}
	var others []fields.Selector
	for _, r := range selector.Requirements() {
		index := s.shared.indexes.find(s.cluster, gvk, r.Field)
		switch {
		case index != nil && r.Field != wants.FieldName && r.Field != wants.FieldNamespace:
			indexed = append(indexed, indexedField{Requirement: r, index: index})
		case r.Operator == "!=":
			others = append(others, fields.OneTermNotEqualSelector(r.Field, r.Value))
		default:
			others = append(others, fields.OneTermEqualSelector(r.Field, r.Value))
		}
	}

	if len(others) > 0 {
		rest = fields.AndSelectors(others...)
	}
	return indexed, rest
}

// listPacked lists from the API server in pages, and packs each page before
// it reads the next, so that a large list takes little more memory than the
// cache would.
func (s *server) listPacked(
	ctx context.Context, live client.Reader, gvk schema.GroupVersionKind,
	lo *client.ListOptions, metadata bool,
) ([]*informerpool.Object, error) {
	indexed, rest := s.splitFields(gvk, lo.FieldSelector)
	selection := liveSelection{
		server:   s,
		gvk:      gvk,
		indexed:  indexed,
		codec:    packed.NewCodec(),
		metadata: metadata && len(indexed) == 0,
		packs:    true,
	}
	err := selection.read(liveclient.WithBudget(ctx, s.shared.options.MaxLiveBytes), live, lo, rest)
	return selection.packed, err
}

// liveSelection is a list from the API server that is filtered here.
type liveSelection struct {
	server   *server
	gvk      schema.GroupVersionKind
	indexed  []indexedField
	codec    *packed.Codec // made when a function needs cached objects
	metadata bool          // the server is asked for metadata alone
	packs    bool          // selected objects are packed
	found    []unstructured.Unstructured
	packed   []*informerpool.Object // instead of found
	cut      bool                   // at Limit, with more to follow
	version  string
}

// read lists page by page, and keeps the selected objects.
func (s *liveSelection) read(
	ctx context.Context, live client.Reader, lo *client.ListOptions, rest fields.Selector,
) error {
	page := client.ListOptions{
		LabelSelector: lo.LabelSelector,
		FieldSelector: rest,
		Namespace:     lo.Namespace,
		Limit:         livePage,
		Raw:           lo.Raw.DeepCopy(), // the client writes the page into it, and others may use it
	}
	for seen := 0; ; {
		before := s.version
		items, err := s.page(ctx, live, &page)
		switch {
		case err != nil:
			return err
		case before != "" && before != s.version:
			return fmt.Errorf("%w: pages of a list have different resourceVersions", ErrAnswer)
		}
		if seen += len(items); seen > maxLiveSelected && len(s.indexed) > 0 {
			return fmt.Errorf("%w: more than %d objects to select from by field %q; "+
				"only an informer that has synced can", ErrUnsupported, maxLiveSelected, s.indexed[0].Field)
		}

		for i := range items {
			ok, err := s.selects(&items[i])
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			if lo.Limit > 0 && int64(len(s.found)) == lo.Limit {
				s.cut = true
				return nil
			}
			if err := s.keep(&items[i]); err != nil {
				return err
			}
		}

		if page.Continue == "" {
			return nil
		}
		if lo.Limit > 0 && int64(len(s.found)) == lo.Limit {
			s.cut = true // as far as is known
			return nil
		}
	}
}

// page reads a page of the list, and sets the options for the next one.
func (s *liveSelection) page(
	ctx context.Context, live client.Reader, lo *client.ListOptions,
) ([]unstructured.Unstructured, error) {
	kind := s.gvk.GroupVersion().WithKind(s.gvk.Kind + "List")
	if !s.metadata {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		err := live.List(ctx, list, lo)
		s.version, lo.Continue = list.GetResourceVersion(), list.GetContinue()
		return list.Items, err
	}

	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	err := live.List(ctx, list, lo)
	s.version, lo.Continue = list.GetResourceVersion(), list.GetContinue()
	items := make([]unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		if err == nil {
			items[i].Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(&list.Items[i])
		}
	}

	return items, err
}

// keep keeps a selected object.
func (s *liveSelection) keep(u *unstructured.Unstructured) error {
	if !s.packs {
		s.found = append(s.found, *u)
		return nil
	}
	u.SetGroupVersionKind(s.gvk) // not all servers name the kind of each object
	o, err := s.codec.PackUnstructured(s.codec.Kind(s.gvk), u)
	s.packed = append(s.packed, o)
	return err
}

// selects reports whether all indexed fields select the object.
func (s *liveSelection) selects(u *unstructured.Unstructured) (bool, error) {
	for _, f := range s.indexed {
		values, err := f.index.compute(s.server.cluster, client.ObjectKeyFromObject(u),
			func(r events.Representation) (client.Object, error) { return s.in(r, u) })
		if err != nil || !fieldSelects(f.Requirement, values) {
			return false, err
		}
	}

	return true, nil
}

// in returns a copy of the object in a representation.
func (s *liveSelection) in(r events.Representation, u *unstructured.Unstructured) (client.Object, error) {
	switch r {
	case events.Typed, events.AsGiven:
		fresh, err := s.server.shared.options.Scheme.New(s.gvk)
		if typed, ok := fresh.(client.Object); err == nil && ok {
			return typed, s.convert(u, typed)
		}
		return u.DeepCopy(), nil
	case events.Packed:
		if s.codec == nil {
			s.codec = packed.NewCodec()
		}
		return s.codec.PackUnstructured(s.codec.Kind(s.gvk), u)
	case events.Metadata:
		partial := &metav1.PartialObjectMetadata{}
		return partial, s.convert(u, partial)
	}

	return u.DeepCopy(), nil
}

// convert converts an object into another form. The error of the library quotes
// values, and names neither the object nor the field.
func (s *liveSelection) convert(u *unstructured.Unstructured, into any) error {
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into) == nil {
		return nil
	}
	document, err := u.MarshalJSON()
	if err != nil {
		document = nil
	}
	return &packed.DecodeError{
		GVK:       s.gvk,
		Namespace: u.GetNamespace(),
		Name:      u.GetName(),
		Target:    fmt.Sprintf("%T", into),
		Field:     misfit.Find(document, reflect.TypeOf(into)),
		Err:       packed.ErrMismatch,
	}
}

// fill puts the selected objects into a list of any representation.
func (s *liveSelection) fill(list client.ObjectList) error {
	convert := func(i int, dst runtime.Object) error { return s.convert(&s.found[i], dst) }
	if l, ok := list.(*unstructured.UnstructuredList); ok {
		l.Items = s.found
	} else if err := fillItems(list, len(s.found), convert); err != nil {
		return err
	}
	list.SetResourceVersion(s.version)
	list.SetContinue(continuation(s.cut))
	list.SetRemainingItemCount(nil)
	return nil
}
