// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/informerpool"
)

// givenRepresentation returns the representation in which a kind was named.
func givenRepresentation(kind client.Object) events.Representation {
	switch kind.(type) {
	case *metav1.PartialObjectMetadata:
		return events.Metadata
	case *informerpool.Object:
		return events.Packed
	case runtime.Unstructured:
		return events.Unstructured
	}

	return events.Typed
}

// decodeInto decodes an object for a caller that owns it or, with share, that
// does not change it.
func (s *shared) decodeInto(o *informerpool.Object, dst runtime.Object, share bool) error {
	if share {
		return s.pool.DecodeShared(o, dst)
	}
	return s.pool.Decode(o, dst)
}

// decode returns the object in the representation r; for AsGiven, which is not
// resolved here, it returns the cached object. All but packed objects belong to
// the caller.
func (s *shared) decode(r events.Representation, o *informerpool.Object) (client.Object, error) {
	var dst client.Object
	switch r {
	case events.Typed:
		fresh, err := s.options.Scheme.New(o.GetObjectKind().GroupVersionKind())
		typed, ok := fresh.(client.Object)
		switch {
		case err == nil && ok:
			dst = typed
		case err != nil && !runtime.IsNotRegisteredError(err):
			return nil, err
		default:
			dst = &unstructured.Unstructured{}
		}
	case events.Unstructured:
		dst = &unstructured.Unstructured{}
	case events.Metadata:
		dst = &metav1.PartialObjectMetadata{}
	default:
		return o, nil
	}

	return dst, s.pool.Decode(o, dst)
}

// views are the objects of one event in the representations that were asked
// for. Each is decoded once. They implement events.Decoder.
type views struct {
	shared  *shared
	cluster client.ObjectKey
	given   events.Representation // what AsGiven means

	mu      sync.Mutex // protects decoded
	decoded map[view]client.Object
}

// view is an object in a representation.
type view struct {
	representation events.Representation
	object         *informerpool.Object
}

// As returns an object of the event in a representation.
func (v *views) As(r events.Representation, o *informerpool.Object) (client.Object, error) {
	switch {
	case r > events.Metadata: // no representation
		return nil, ErrUnsupported
	case r == events.AsGiven:
		r = v.given
	}
	if r == events.Packed {
		return o, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()

	key := view{r, o}
	if obj, ok := v.decoded[key]; ok {
		return obj, nil
	}
	obj, err := v.shared.decode(r, o)
	if err != nil {
		v.misfit(o, err)
		return nil, err
	}
	if v.decoded == nil {
		v.decoded = make(map[view]client.Object, 2)
	}
	v.decoded[key] = obj

	return obj, nil
}

// misfit logs that an object does not fit the representation that a predicate
// or a handler asks for: once for an object and a cause, which names both,
// however many events and handlers it has.
func (v *views) misfit(o *informerpool.Object, err error) {
	if name := clusterName(v.cluster); v.shared.misfits.First(name, err) {
		v.shared.log.Error(err, "Object cannot be given to a predicate or handler", "cluster", name,
			"kind", kindName(o.Kind().GVK()), "object", objectName(client.ObjectKeyFromObject(o)))
	}
}

// passes reports whether predicates let an event pass. A requested object
// passes as a change or as a generic event. The error is that of an object that
// does not fit the representation.
func (v *views) passes(predicates []predicate.Predicate, e informerpool.Event) (bool, error) {
	if len(predicates) == 0 {
		return true, nil
	}
	if e.Requested {
		if ok, err := v.all(predicates, e, true); ok || err != nil {
			return ok, err
		}
	}
	if e.Resync {
		return false, nil
	}
	return v.all(predicates, e, false)
}

// all reports whether all predicates let an event pass, as a change or as a
// generic event.
func (v *views) all(predicates []predicate.Predicate, e informerpool.Event, generic bool) (bool, error) {
	for _, p := range predicates {
		in := events.AsGiven
		if metadataOnly(p) {
			in = events.Packed
		}
		if ok, err := v.one(p, e, in, generic); !ok || err != nil {
			return false, err
		}
	}

	return true, nil
}

// one calls one predicate with objects in a representation.
func (v *views) one(p predicate.Predicate, e informerpool.Event, in events.Representation, generic bool) (bool, error) {
	var before, after client.Object
	var err error
	if e.Old != nil {
		before, err = v.As(in, e.Old)
	}
	if e.New != nil && err == nil {
		after, err = v.As(in, e.New)
	}
	if err != nil {
		return false, err
	}

	switch {
	case generic && after != nil:
		return p.Generic(event.GenericEvent{Object: after}), nil
	case generic:
		return p.Generic(event.GenericEvent{Object: before}), nil
	case e.Type == informerpool.Added:
		return p.Create(event.CreateEvent{Object: after, IsInInitialList: e.Initial}), nil
	case e.Type == informerpool.Deleted:
		return p.Delete(event.DeleteEvent{Object: before, DeleteStateUnknown: e.FinalStateUnknown}), nil
	}

	return p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}), nil
}

// metadataOnly reports whether a predicate is one of controller-runtime's that
// read only metadata, which every representation has.
func metadataOnly(p predicate.Predicate) bool {
	switch p.(type) {
	case predicate.ResourceVersionChangedPredicate, *predicate.ResourceVersionChangedPredicate,
		predicate.GenerationChangedPredicate, *predicate.GenerationChangedPredicate,
		predicate.AnnotationChangedPredicate, *predicate.AnnotationChangedPredicate,
		predicate.LabelChangedPredicate, *predicate.LabelChangedPredicate:
		return true
	}

	return false
}
