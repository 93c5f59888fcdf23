// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/meter"
	"github.com/fleetcache/fleetcache/internal/misfit"
	"github.com/fleetcache/fleetcache/internal/transport"
	"github.com/fleetcache/fleetcache/internal/wire"
)

const (
	// maxItem is the largest object of a live list in JSON, unless
	// informers accept larger ones.
	maxItem = 16 << 20
	// maxList is the largest live list in JSON, unless MaxLiveBytes is
	// more.
	maxList = 1 << 30

	listSuffix = "List"
	anyList    = "List"
)

// items extracts the items of a list from its body one by one while the
// body is read, so that neither the whole body nor its garbage is ever in
// memory. client-go decodes the rest, a list without items.
type items struct {
	element  reflect.Type  // of the list's Items
	items    reflect.Value // the decoded items: a slice of elements
	unnamed  int           // items that do not name their kind
	largest  int64         // largest item so far, in bytes
	metadata bool          // a list of metadata only
}

// newItems returns nil for lists whose JSON is not a member items with an
// array of objects.
func newItems(list client.ObjectList) *items {
	t := reflect.TypeOf(list)
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil
	}
	_, decodesItself := list.(json.Unmarshaler)
	field, ok := t.Elem().FieldByName("Items")
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	switch {
	case t.Elem() == unstructuredList:
	case decodesItself, !ok, name != "items", len(field.Index) != 1, field.Type.Kind() != reflect.Slice:
		return nil
	case structOf(field.Type.Elem()).Kind() != reflect.Struct:
		return nil
	}

	_, metadata := list.(*metav1.PartialObjectMetadataList)

	return &items{element: field.Type.Elem(), metadata: metadata}
}

func structOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// fill sets the items of the list.
func (l *items) fill(list client.ObjectList, kind schema.GroupVersionKind) {
	if !l.items.IsValid() {
		return
	}
	reflect.ValueOf(list).Elem().FieldByName("Items").Set(l.items)
	if m, ok := list.(*metav1.PartialObjectMetadataList); ok && !kind.Empty() {
		for i := range m.Items {
			m.Items[i].SetGroupVersionKind(kind) // as the client does
		}
	}
}

// listBody reads a whole list at the first call of Read. Its own content is
// that list without the items.
type listBody struct {
	io.ReadCloser

	call *callState
	rest io.Reader
	err  error
}

// Read implements io.Reader.
func (b *listBody) Read(p []byte) (int, error) {
	if b.rest == nil && b.err == nil {
		var document []byte
		if document, b.err = b.call.list.read(b.call, &countedBody{b: b}); b.err != nil {
			b.call.list.items = reflect.Value{}
		}
		b.call.raw = document
		b.rest = bytes.NewReader(document)
	}

	if b.err != nil {
		return 0, b.err
	}
	return b.rest.Read(p)
}

// countedBody counts the bytes of a list.
type countedBody struct{ b *listBody }

func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.b.ReadCloser.Read(p)
	c.b.call.budget.read += int64(n)
	return n, err
}

// read extracts the items from a list, and returns the rest.
func (l *items) read(call *callState, body io.Reader) ([]byte, error) {
	l.items, l.unnamed, l.largest = reflect.MakeSlice(reflect.SliceOf(l.element), 0, 0), 0, 0
	r := wire.NewListReader(body, wire.Limits{
		Object:   max(maxItem, call.item),
		Response: max(maxList, call.budget.limit),
	})
	defer r.Close()
	r.KeepMembers()
	m := meter.New(reflect.PointerTo(l.decoded()))
	for {
		raw, err := r.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, wire.ErrNoItems), r.Header().Kind == "Status":
			call.budget.taken += l.cost(m)
			return l.finish(call, r, errors.Is(err, io.EOF))
		case err != nil:
			return nil, call.fail(malformed(limited(err)))
		}

		m.Next()
		m.Feed(raw)
		l.largest = max(l.largest, int64(len(raw)))
		if err := call.budget.check(l.cost(m) + copies*l.largest); err != nil {
			return nil, call.fail(err)
		}
		if err := l.check(call, m); err != nil {
			return nil, call.fail(err)
		}
		if err := l.add(raw); err != nil {
			return nil, call.fail(l.misfit(raw, err))
		}
	}
}

// cost returns what the items take together with the current one, in a slice
// that grows.
func (l *items) cost(m *meter.Meter) int64 {
	return m.Cost() + int64(l.items.Len()+1)*int64(l.element.Size())*9/4 //nolint:gosec // sizes are small
}

// limited turns the errors of a list that is too large into an ErrBudget.
func limited(err error) error {
	if limit, ok := errors.AsType[*wire.LimitError](err); ok {
		return fmt.Errorf("%w: %w", informerpool.ErrBudget, limit)
	}
	return err
}

// malformed turns the errors of a document that is whole and no list into an
// ErrAnswer with their text, which quotes nothing.
func malformed(err error) error {
	_, field := errors.AsType[*wire.FieldError](err)
	syntax, _ := errors.AsType[*wire.SyntaxError](err)
	if field || syntax != nil && syntax.Err == nil {
		return &answerError{field: err.Error(), err: err}
	}
	return err
}

// decoded returns the type that one item is decoded into.
func (l *items) decoded() reflect.Type {
	if l.element == reflect.TypeFor[unstructured.Unstructured]() {
		return reflect.TypeFor[map[string]any]()
	}
	return structOf(l.element)
}

// check refuses an item of another kind.
func (l *items) check(call *callState, m *meter.Meter) error {
	apiVersion, kind := m.TypeMeta()
	if kind == "" {
		l.unnamed++
	}
	return call.check(apiVersion, kind)
}

// add decodes an item the way client-go does.
func (l *items) add(raw []byte) error {
	into := reflect.New(l.decoded())
	if err := utiljson.Unmarshal(raw, into.Interface()); err != nil {
		return err
	}
	value := into.Elem()
	switch {
	case l.decoded() != structOf(l.element):
		object, _ := reflect.TypeAssert[map[string]any](value)
		if object == nil { // null
			object = map[string]any{}
		}
		value = reflect.ValueOf(unstructured.Unstructured{Object: object})
	case l.element.Kind() == reflect.Pointer:
		value = into
	}

	l.items = reflect.Append(l.items, value)

	return nil
}

// misfit returns the error of an item that cannot be decoded.
func (l *items) misfit(raw []byte, err error) error {
	id := wire.Identify(raw)
	return &answerError{
		of:    fmt.Sprintf("items[%d] %s", l.items.Len(), nameOf(id.Namespace, id.Name)),
		field: misfit.Find(raw, l.decoded()),
		err:   err,
	}
}

// finish checks the list as a whole, and returns it without its items.
func (l *items) finish(call *callState, r *wire.ListReader, isList bool) ([]byte, error) {
	header := r.Header()
	if err := l.checkList(call, header, isList); err != nil {
		return nil, call.fail(err)
	}
	if l.decoded() != structOf(l.element) {
		l.inferKinds(call.want, header)
	} else if !l.metadata && !call.want.Empty() {
		header.APIVersion, header.Kind = call.want.GroupVersion().String(), call.want.Kind+listSuffix
	}
	document, err := json.Marshal(metav1.TypeMeta{APIVersion: header.APIVersion, Kind: header.Kind})
	if err != nil {
		return nil, err
	}
	members := r.Members()
	if len(document) == len("{}") && len(members) > 0 {
		members = members[1:] // the comma
	}
	document = append(document[:len(document)-1], members...)

	return append(document, '}'), nil
}

// checkList refuses a list of another kind. Definitions may give their lists
// any name: then each item has to name its own kind. An empty list of another
// kind is no evidence for the requested kind, and neither is a single object.
func (l *items) checkList(call *callState, header wire.ListHeader, isList bool) error {
	want := call.want
	switch {
	case l.items.Len() == 0 && header.ResourceVersion == "" && (header.Kind == "" || header.Kind == anyList):
		return fmt.Errorf("%w: an empty list of no kind and no version, %w", ErrAnswer, transport.ErrNotKubernetes)
	case want.Empty(), header.Kind == "":
		return nil
	case header.Kind == want.Kind+listSuffix && isVersion(header.APIVersion, want), header.Kind == anyList:
		return nil
	case l.metadata && header.Kind == "PartialObjectMetadataList" &&
		strings.HasPrefix(header.APIVersion, metav1.GroupName+"/"):
		return nil
	case isList && l.unnamed == 0 && isVersion(header.APIVersion, want) &&
		(l.items.Len() > 0 || !strings.HasSuffix(header.Kind, listSuffix)):
		return nil
	}

	want.Kind += listSuffix
	return otherKind(header.APIVersion, header.Kind, want)
}

// inferKinds sets the kind of items that have none, according to the list's.
func (l *items) inferKinds(want schema.GroupVersionKind, header wire.ListHeader) {
	if (header.Kind == "" || header.Kind == anyList) && !want.Empty() {
		header.APIVersion, header.Kind = want.GroupVersion().String(), want.Kind
	}
	for i := range l.items.Len() {
		u, ok := reflect.TypeAssert[*unstructured.Unstructured](l.items.Index(i).Addr())
		if ok && u.GetKind() == "" && u.GetAPIVersion() == "" {
			u.SetKind(strings.TrimSuffix(header.Kind, listSuffix))
			u.SetAPIVersion(header.APIVersion)
		}
	}
}

// unstructuredList is the type that lists of unstructured objects are decoded
// into.
var unstructuredList = reflect.TypeFor[unstructured.UnstructuredList]()
