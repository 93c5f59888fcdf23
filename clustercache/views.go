// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleetcache/fleetcache/informerpool"
)

// views are the objects of one event in a representation. Each is decoded once,
// when first requested; predicates and the mapping function share it.
type views struct {
	cc             *ClusterCache
	representation Representation
	decoded        map[*informerpool.Object]client.Object
}

// of returns an object of the event in the representation.
func (v *views) of(o *informerpool.Object) (client.Object, error) {
	if v.representation == Packed {
		return o, nil
	}
	if obj, ok := v.decoded[o]; ok {
		return obj, nil
	}
	obj, err := v.representation.of(v.cc, o)
	if err != nil {
		return nil, err
	}
	if v.decoded == nil {
		v.decoded = make(map[*informerpool.Object]client.Object, 2)
	}
	v.decoded[o] = obj

	return obj, nil
}

// passes reports whether predicates let an event pass. A requested object
// passes as a change or as a generic event. The error is that of an object that
// does not fit the representation.
func (v *views) passes(predicates []predicate.Predicate, e informerpool.Event) (bool, error) {
	if len(predicates) == 0 {
		return true, nil
	}
	var generic, change bool
	var err error
	if e.Requested {
		if generic, err = v.all(predicates, e, ask{generic: true}); generic || err != nil {
			return generic, err
		}
	}
	if e.Resync {
		return false, nil
	}
	change, err = v.all(predicates, e, ask{})

	return change, err
}

// ask selects how predicates are called for an event.
type ask struct{ generic bool }

// all reports whether all predicates let an event pass.
func (v *views) all(predicates []predicate.Predicate, e informerpool.Event, how ask) (bool, error) {
	for _, p := range predicates {
		in := v
		if metadataOnly(p) {
			in = &views{cc: v.cc, representation: Packed}
		}
		if ok, err := in.one(p, e, how); !ok || err != nil {
			return false, err
		}
	}

	return true, nil
}

// one calls one predicate.
func (v *views) one(p predicate.Predicate, e informerpool.Event, how ask) (bool, error) {
	var before, after client.Object
	var err error
	if e.Old != nil {
		before, err = v.of(e.Old)
	}
	if e.New != nil && err == nil {
		after, err = v.of(e.New)
	}
	if err != nil {
		return false, err
	}

	switch {
	case how.generic && after != nil:
		return p.Generic(event.GenericEvent{Object: after}), nil
	case how.generic:
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
