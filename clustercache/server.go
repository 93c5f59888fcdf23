// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/informerpool"
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
	selection := s.selection(gvk, lo.FieldSelector)
	if len(selection.keep) == 0 {
		return live.List(ctx, list, lo)
	}
	if lo.Continue != "" {
		return fmt.Errorf("%w: a continue token with a field that has an index", ErrUnsupported)
	}
	found, err := selection.read(liveclient.WithBudget(ctx, s.shared.options.MaxLiveBytes), live, lo)
	if err != nil {
		return err
	}
	return s.shared.fill(list, found, false)
}

// listPacked is list without the decoding.
func (s *server) listPacked(
	ctx context.Context, live client.Reader, gvk schema.GroupVersionKind,
	lo *client.ListOptions, metadata bool,
) ([]*informerpool.Object, error) {
	selection := s.selection(gvk, lo.FieldSelector)
	selection.metadata = metadata && len(selection.keep) == 0
	found, err := selection.read(liveclient.WithBudget(ctx, s.shared.options.MaxLiveBytes), live, lo)
	return found.objects, err
}

// liveSelection is a list from the API server that is filtered here.
type liveSelection struct {
	gvk      schema.GroupVersionKind
	rest     fields.Selector // of the fields that the server knows; nil: all
	keep     filters         // by those that have an index
	field    string          // the first of these
	metadata bool            // the server is asked for metadata alone
}

// selection separates the fields that have an index from those for the server.
func (s *server) selection(gvk schema.GroupVersionKind, selector fields.Selector) *liveSelection {
	out := &liveSelection{gvk: gvk}
	if selector == nil {
		return out
	}
	var others []fields.Selector
	for _, r := range selector.Requirements() {
		index := s.shared.indexes.find(s.cluster, gvk, r.Field)
		switch {
		case index != nil && r.Field != wants.FieldName && r.Field != wants.FieldNamespace:
			out.keep, out.field = append(out.keep, index.filter(s.cluster, r)), cmp.Or(out.field, r.Field)
		case r.Operator == "!=":
			others = append(others, fields.OneTermNotEqualSelector(r.Field, r.Value))
		default:
			others = append(others, fields.OneTermEqualSelector(r.Field, r.Value))
		}
	}

	if len(others) > 0 {
		out.rest = fields.AndSelectors(others...)
	}
	return out
}

// read lists in pages, and packs each page before it reads the next, so that a
// large list takes little more memory than the cache would.
func (s *liveSelection) read(ctx context.Context, live client.Reader, lo *client.ListOptions) (selected, error) {
	page := client.ListOptions{
		LabelSelector: lo.LabelSelector,
		FieldSelector: s.rest,
		Namespace:     lo.Namespace,
		Limit:         livePage,
		Raw:           lo.Raw.DeepCopy(), // the client writes the page into it, and others may use it
	}
	codec, found := packed.NewCodec(), selected{}
	for seen := 0; ; {
		items, version, err := s.page(ctx, live, &page)
		switch {
		case err != nil:
			return selected{}, err
		case found.version != "" && found.version != version:
			return selected{}, fmt.Errorf("%w: pages of a list have different resourceVersions", ErrAnswer)
		}
		found.version = version
		if seen += len(items); seen > maxLiveSelected && len(s.keep) > 0 {
			return selected{}, fmt.Errorf("%w: more than %d objects to select from by field %q; "+
				"only an informer that has synced can", ErrUnsupported, maxLiveSelected, s.field)
		}

		for _, item := range items {
			o, err := s.pack(codec, item)
			if err != nil {
				return selected{}, err
			}
			ok, err := s.keep.pass(o)
			if err != nil {
				return selected{}, err
			}
			if ok && lo.Limit > 0 && int64(len(found.objects)) == lo.Limit {
				found.cut = true
				return found, nil
			}
			if ok {
				found.objects = append(found.objects, o)
			}
		}

		full := lo.Limit > 0 && int64(len(found.objects)) == lo.Limit
		if page.Continue == "" || full {
			found.cut = page.Continue != "" // as far as is known
			return found, nil
		}
	}
}

// page reads a page of the list, and sets the options for the next one.
func (s *liveSelection) page(
	ctx context.Context, live client.Reader, lo *client.ListOptions,
) (items []runtime.Object, version string, err error) {
	var list client.ObjectList = &unstructured.UnstructuredList{}
	if s.metadata {
		list = &metav1.PartialObjectMetadataList{}
	}
	list.GetObjectKind().SetGroupVersionKind(s.gvk.GroupVersion().WithKind(s.gvk.Kind + "List"))
	if err = live.List(ctx, list, lo); err != nil {
		return nil, "", err
	}
	lo.Continue = list.GetContinue()
	items, err = meta.ExtractList(list)
	return items, list.GetResourceVersion(), err
}

// pack returns an object of a page as the cache has it.
func (s *liveSelection) pack(codec *packed.Codec, item runtime.Object) (*informerpool.Object, error) {
	u, ok := item.(*unstructured.Unstructured)
	if !ok {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(item)
		if err != nil {
			return nil, err
		}
		u = &unstructured.Unstructured{Object: content}
	}
	u.SetGroupVersionKind(s.gvk) // not all servers name the kind of each object
	return codec.PackUnstructured(codec.Kind(s.gvk), u)
}
