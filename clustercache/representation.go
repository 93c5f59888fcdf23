// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Representation is the Go type of the objects that a user's function receives.
type Representation uint8

const (
	// AsGiven is the representation in which the user named the kind: [Typed]
	// for a typed object, [Unstructured] for an unstructured one, and [Packed]
	// for [Kind]. It is the default. A selection that names no kind uses
	// Packed.
	AsGiven Representation = iota
	// Packed is the cached object itself, shared and read-only. Its metadata
	// can be read without decoding.
	Packed
	// Typed is an object of the kind's Go type in Options.Scheme, or an
	// unstructured object if the scheme does not have the kind.
	Typed
	// Unstructured is an *unstructured.Unstructured.
	Unstructured
	// Metadata is a *metav1.PartialObjectMetadata.
	Metadata
)

// givenRepresentation returns the representation in which a kind was named.
func givenRepresentation(kind client.Object) Representation {
	switch kind.(type) {
	case *metav1.PartialObjectMetadata, *informerpool.Object:
		return Packed
	case runtime.Unstructured:
		return Unstructured
	}

	return Typed
}

// of returns the object in the representation r; for AsGiven, which is not
// resolved here, it returns the cached object. All but packed objects belong to
// the caller.
func (r Representation) of(cc *ClusterCache, o *informerpool.Object) (client.Object, error) {
	var dst client.Object
	switch r {
	case Typed:
		fresh, err := cc.options.Scheme.New(o.GetObjectKind().GroupVersionKind())
		typed, ok := fresh.(client.Object)
		switch {
		case err == nil && ok:
			dst = typed
		case err != nil && !runtime.IsNotRegisteredError(err):
			return nil, err
		default:
			dst = &unstructured.Unstructured{}
		}
	case Unstructured:
		dst = &unstructured.Unstructured{}
	case Metadata:
		dst = &metav1.PartialObjectMetadata{}
	default:
		return o, nil
	}

	return dst, cc.pool.Decode(o, dst)
}
