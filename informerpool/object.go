// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// scanner is a reader at an object.
type scanner interface {
	Scan(strip *wire.Strip) (wire.Item, error)
}

// object turns an object's bytes into what is stored. What is not of the key's kind or place, or has no identity, is
// refused and counted, and nil is returned: a broken object must not stop the others. An error ends the stream.
func (f *feed) object(at scanner, header wire.ListHeader) (*Object, error) {
	it, err := at.Scan(nil)
	if err == nil {
		err = f.check(&it, header)
	}
	var o *Object
	if err == nil {
		o, err = f.pool.codec.Pack(f.kind, it)
	}
	if err == nil {
		o, err = f.transform(o)
	}
	if field, ok := errors.AsType[*wire.FieldError](err); ok {
		f.counters.rejected.inc()
		f.options.Logger.V(1).Info("Object refused", "informer", f.key.String(), "error", field.Error())
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.key, err)
	}
	return o, nil
}

// check validates an object against the key, and learns the kind from the first one.
func (f *feed) check(it *wire.Item, header wire.ListHeader) error {
	version := f.key.Resource.GroupVersion().String()
	kind := it.Kind
	if kind == "" {
		kind = strings.TrimSuffix(header.Kind, "List")
	}
	if kind == "" {
		return &wire.FieldError{Field: "kind", Reason: "missing"}
	}
	expect := wire.Expect{APIVersion: version, Namespace: f.key.Namespace}
	if f.kind != nil {
		expect.Kind = f.kind.GVK().Kind
	}
	if err := expect.Check(*it); err != nil {
		return err
	}
	if f.kind == nil {
		f.kind = f.pool.codec.Kind(schema.GroupVersionKind{Group: f.key.Resource.Group, Version: f.key.Resource.Version, Kind: kind})
	}
	return nil
}

// transform applies the user's transform, which must leave alone what the object is known by.
func (f *feed) transform(o *Object) (*Object, error) {
	change := f.options.Transforms[f.key.Resource.GroupResource()]
	if change == nil {
		return o, nil
	}
	u := &unstructured.Unstructured{}
	if err := o.Into(u); err != nil {
		return nil, err
	}
	if err := callTransform(change, u); err != nil {
		return nil, &wire.FieldError{Field: "transform", Reason: err.Error()}
	}
	changed, err := f.pool.codec.PackUnstructured(f.kind, u)
	if err != nil {
		return nil, &wire.FieldError{Field: "transform", Reason: err.Error()}
	}
	if nameOf(changed) != nameOf(o) || changed.GetUID() != o.GetUID() || changed.GetResourceVersion() != o.GetResourceVersion() {
		return nil, &wire.FieldError{Field: "transform", Reason: "changed the object's identity"}
	}
	return changed, nil
}

func callTransform(change TransformFunc, u *unstructured.Unstructured) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("panicked")
		}
	}()
	return change(u)
}
