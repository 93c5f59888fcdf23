// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/informerpool"
)

// representation is a kind with the form of its objects: their Go type,
// unstructured, or only their metadata.
type representation struct {
	gvk schema.GroupVersionKind
	typ reflect.Type // the type that objects point to
}

var errNoStruct = errors.New("not a pointer to a struct")

func representationOf(obj client.Object, scheme *runtime.Scheme) (representation, error) {
	typ := reflect.TypeOf(obj)
	if typ == nil || typ.Kind() != reflect.Pointer || typ.Elem().Kind() != reflect.Struct {
		return representation{}, fmt.Errorf("%T: %w", obj, errNoStruct)
	}
	gvk, err := apiutil.GVKForObject(obj, scheme)
	return representation{gvk: gvk, typ: typ.Elem()}, err
}

// named returns the representation as the ClusterCache defines it.
func (f representation) named() events.Representation {
	switch f.typ {
	case reflect.TypeFor[unstructured.Unstructured]():
		return events.Unstructured
	case reflect.TypeFor[metav1.PartialObjectMetadata]():
		return events.Metadata
	}

	return events.Typed
}

// decode returns an object in this representation, which belongs to the caller.
func (f representation) decode(o *informerpool.Object) (client.Object, error) {
	dst, ok := reflect.TypeAssert[client.Object](reflect.New(f.typ))
	if !ok {
		return nil, fmt.Errorf("%s is no object", f.typ)
	}
	return dst, o.Into(dst)
}
