// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

// AppendJSON appends the whole object, apiVersion and kind included, as JSON. An
// object whose body is damaged appends nothing.
func (o *Object) AppendJSON(dst []byte) []byte {
	s, err := o.open()
	if err != nil {
		return dst
	}
	defer s.close()
	return o.appendJSON(dst, s)
}

func (o *Object) appendJSON(dst []byte, s *scratch) []byte {
	dst = o.appendMetadata(append(dst, o.kind.prefix...), s)
	dst = append(dst, '}')
	if rest := s.plain[s.meta:]; len(rest) > 0 {
		dst = append(append(dst, ','), rest...)
	}
	return append(dst, '}')
}

// appendMetadata appends the members of metadata.
func (o *Object) appendMetadata(dst []byte, s *scratch) []byte {
	start := len(dst)
	if o.name != "" {
		dst = appendQuoted(append(dst, `"name":`...), o.name)
	}
	if ns := o.GetNamespace(); ns != "" {
		dst = appendQuoted(append(comma(dst, start), `"namespace":`...), ns)
	}
	dst = o.appendIdentity(dst, start)
	if o.generation != 0 {
		dst = append(comma(dst, start), `"generation":`...)
		dst = strconv.AppendUint(dst, uint64(o.generation), 10)
	}
	if o.flags&hasCreated != 0 {
		dst = append(comma(dst, start), `"creationTimestamp":"`...)
		dst = append(time.Unix(o.created, 0).UTC().AppendFormat(dst, time.RFC3339), '"')
	}
	if o.labels != nil {
		dst = append(append(comma(dst, start), `"labels":`...), o.labels.json...)
	}
	if o.owners != nil {
		dst = append(append(comma(dst, start), `"ownerReferences":`...), o.owners.json...)
	}
	if s.meta > 0 {
		dst = append(comma(dst, start), s.plain[:s.meta]...)
	}
	return dst
}

// appendIdentity appends the UID and the resourceVersion.
func (o *Object) appendIdentity(dst []byte, start int) []byte {
	switch {
	case o.flags&hasUID != 0:
		dst = append(comma(dst, start), `"uid":"`...)
		dst = append(appendUID(dst, o.uid), '"')
	case o.rare != nil && o.rare.uid != "":
		dst = appendQuoted(append(comma(dst, start), `"uid":`...), o.rare.uid)
	}
	switch {
	case o.flags&hasVersion != 0:
		dst = append(comma(dst, start), `"resourceVersion":"`...)
		dst = append(strconv.AppendUint(dst, o.version, 10), '"')
	case o.rare != nil && o.rare.version != "":
		dst = appendQuoted(append(comma(dst, start), `"resourceVersion":`...), o.rare.version)
	}
	return dst
}

// comma separates members that begin at start.
func comma(dst []byte, start int) []byte {
	if len(dst) > start {
		return append(dst, ',')
	}
	return dst
}

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
// *metav1.PartialObjectMetadata, or a pointer to the kind's Go struct, which the
// caller must have chosen rightly. dst is reset first and belongs to the caller
// afterwards; it carries apiVersion and kind in every form, as objects from
// controller-runtime's cache do. On a [*DecodeError] dst is left empty.
func (o *Object) Into(dst runtime.Object) error {
	v := reflect.ValueOf(dst)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Type() == reflect.TypeFor[*Object]() {
		return o.decodeError(dst, ErrTarget)
	}
	v.Elem().SetZero()
	s, err := o.open()
	if err != nil {
		return o.decodeError(dst, err)
	}
	defer s.close()
	switch dst := dst.(type) {
	case *unstructured.Unstructured:
		s.other = o.appendJSON(s.other[:0], s)
		err = json.Unmarshal(s.other, &dst.Object)
	case *metav1.PartialObjectMetadata:
		s.other = append(s.other[:0], `{"metadata":{`...)
		s.other = append(o.appendMetadata(s.other, s), "}}"...)
		err = json.Unmarshal(s.other, dst)
		dst.SetGroupVersionKind(o.kind.gvk)
	default:
		s.other = o.appendJSON(s.other[:0], s)
		err = json.Unmarshal(s.other, dst)
		dst.GetObjectKind().SetGroupVersionKind(o.kind.gvk)
	}
	if err != nil {
		v.Elem().SetZero()
		return o.decodeError(dst, err)
	}
	return nil
}

func (o *Object) decodeError(dst runtime.Object, err error) error {
	return &DecodeError{
		GVK: o.kind.gvk, Namespace: o.GetNamespace(), Name: o.name,
		Target: fmt.Sprintf("%T", dst), Err: err,
	}
}
