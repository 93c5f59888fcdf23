// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Objects implement runtime.Unstructured, so that apiutil.GVKForObject and
// others find their kind without a scheme, and
// runtime.DefaultUnstructuredConverter and others find their content without
// reflection.
var _ runtime.Unstructured = (*Object)(nil)

// UnstructuredContent returns a new map of the whole object, which belongs to
// the caller. It panics if the body is damaged.
func (o *Object) UnstructuredContent() map[string]any {
	var u unstructured.Unstructured
	if err := o.Into(&u); err != nil {
		panic(err)
	}
	return u.Object
}

// NewEmptyInstance returns a new, mutable object of the same kind.
func (o *Object) NewEmptyInstance() runtime.Unstructured {
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(o.kind.gvk)
	return u
}

var errNoList = errors.New("informerpool: an object is no list")

// single has what runtime.Unstructured asks lists for.
type single struct{}

// IsList returns false.
func (single) IsList() bool { return false }

// EachListItem fails because an object is not a list.
func (single) EachListItem(func(runtime.Object) error) error { return errNoList }

// EachListItemWithAlloc fails because an object is not a list.
func (single) EachListItemWithAlloc(func(runtime.Object) error) error { return errNoList }
