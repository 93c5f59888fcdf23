// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"reflect"
	"slices"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	misfits "github.com/fleetcache/fleetcache/internal/misfit"
)

// DeepCopyObject returns a new *unstructured.Unstructured that belongs to the
// caller. It panics if the body is damaged.
func (o *Object) DeepCopyObject() runtime.Object {
	u := new(unstructured.Unstructured)
	if err := o.Into(u); err != nil {
		panic(err)
	}
	return u
}

// Into decodes the object into dst: *unstructured.Unstructured,
// *metav1.PartialObjectMetadata, or a pointer to the kind's Go struct, which
// the caller must choose correctly. dst is reset first and belongs to the
// caller afterwards. It always contains apiVersion and kind, as objects from
// controller-runtime's cache do. If Into returns a [*DecodeError], dst is
// empty.
func (o *Object) Into(dst runtime.Object) error {
	v := reflect.ValueOf(dst)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct ||
		v.Type() == reflect.TypeFor[*Object]() {
		return o.decodeError(dst, ErrTarget)
	}
	v.Elem().SetZero()
	to := toEnd
	if _, only := dst.(*metav1.PartialObjectMetadata); only {
		to = toMetadata
	}
	from, err := o.open(to)
	if err != nil {
		return o.decodeError(dst, err)
	}
	defer from.close()

	switch dst := dst.(type) {
	case *unstructured.Unstructured:
		dst.Object = from.content()
		return nil
	case *metav1.PartialObjectMetadata:
		dst.SetGroupVersionKind(o.kind.gvk)
		if from.objectMeta(&dst.ObjectMeta) {
			return nil
		}
	default:
		if p := planOf(v.Type().Elem()); p.meta && from.typed(p, v.UnsafePointer()) {
			dst.GetObjectKind().SetGroupVersionKind(o.kind.gvk)
			return nil
		}
	}

	v.Elem().SetZero()
	if err := from.intoByLibrary(dst); err != nil {
		v.Elem().SetZero()
		misfit := o.decodeError(dst, ErrMismatch)
		misfit.Field = misfits.Find(from.s.other, v.Type().Elem())
		return misfit
	}

	return nil
}

// intoByLibrary decodes objects that the plans do not cover, and finds the
// error in an object that does not fit.
func (o opened) intoByLibrary(dst runtime.Object) error {
	o.s.other = o.appendJSON(o.s.other[:0])
	err := json.Unmarshal(o.s.other, dst)
	dst.GetObjectKind().SetGroupVersionKind(o.kind.gvk)
	return err
}

// typed reads the object into a struct with ordinary metadata.
func (o opened) typed(p *plan, v unsafe.Pointer) bool {
	if !o.objectMeta((*metav1.ObjectMeta)(unsafe.Add(v, p.fields["metadata"].offset))) {
		return false
	}
	d := newDecoder()
	defer d.close()
	// A type without a TypeMeta may still have fields with these names.
	d.begin(o.kind.members)
	if !p.members(d, v) {
		return false
	}
	d.begin(o.s.rest())

	return p.members(d, v)
}

// objectMeta reads the metadata.
func (o opened) objectMeta(m *metav1.ObjectMeta) bool {
	m.Name, m.Namespace = o.GetName(), o.GetNamespace()
	m.UID, m.ResourceVersion = o.GetUID(), o.GetResourceVersion()
	m.Generation = int64(o.generation)
	if o.flags&hasCreated != 0 {
		m.CreationTimestamp = o.GetCreationTimestamp()
	}
	if o.flags&hasLabels != 0 {
		t := text{string(o.s.labels())}
		m.Labels = t.stringMap()
	}
	if o.flags&hasOwners != 0 {
		t := text{string(o.s.owners())}
		m.OwnerReferences = slices.AppendSeq([]metav1.OwnerReference{}, t.owners())
	}
	d := newDecoder()
	defer d.close()
	d.begin(o.s.metadata())

	return planOf(reflect.TypeFor[metav1.ObjectMeta]()).members(d, unsafe.Pointer(m))
}

// content builds the map of an unstructured object.
func (o opened) content() map[string]any {
	d := newDecoder()
	defer d.close()
	meta := make(map[string]any, 12)
	setString(meta, "name", o.GetName())
	setString(meta, "namespace", o.GetNamespace())
	setString(meta, "uid", string(o.GetUID()))
	setString(meta, "resourceVersion", o.GetResourceVersion())
	if o.generation != 0 {
		meta["generation"] = int64(o.generation)
	}
	if o.flags&hasCreated != 0 {
		var buf [32]byte
		meta["creationTimestamp"] = string(o.appendCreated(buf[:0]))
	}
	if o.flags&hasLabels != 0 {
		meta["labels"] = d.read(o.s.labels())
	}
	if o.flags&hasOwners != 0 {
		meta["ownerReferences"] = d.read(o.s.owners())
	}
	d.begin(o.s.metadata())
	d.object(meta)

	content := make(map[string]any, 8)
	content["apiVersion"], content["kind"] = o.kind.apiVersion, o.kind.gvk.Kind
	content["metadata"] = meta
	d.begin(o.s.rest())

	return d.object(content)
}

func setString(m map[string]any, key, value string) {
	if value != "" {
		m[key] = value
	}
}
