// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Object is one change of one object in one cluster.
type Object struct {
	// Cluster is the cluster of the object.
	Cluster client.ObjectKey
	// GVK is the object's kind.
	GVK schema.GroupVersionKind
	// Event has the objects, which are shared and read-only. DeepCopyObject
	// returns an unstructured copy that you may change, and Into decodes.
	informerpool.Event
	// Decoder decodes the objects for As.
	Decoder Decoder
}

// Decoder returns objects in representations.
type Decoder interface {
	// As returns an object in a representation.
	As(r Representation, o *informerpool.Object) (client.Object, error)
}

// As returns one of the event's objects, Old, New or LastDelivered, in a
// representation, and nil for nil. [AsGiven] is that of the [Selection]. Each
// object is decoded once: predicates and the handler share the result, which is
// read-only. The error is that of an object that does not fit the
// representation, of which the log has a line for each object and cause, or
// [ErrUnsupported].
func (e Object) As(r Representation, o *informerpool.Object) (client.Object, error) {
	switch {
	case e.Decoder == nil:
		return nil, ErrUnsupported
	case o == nil:
		return nil, nil
	}
	return e.Decoder.As(r, o)
}

// ErrUnsupported indicates that there is no such representation, or that the
// event has no Decoder. It is clustercache.ErrUnsupported.
var ErrUnsupported = errors.New("not supported by the cache")
