// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"reflect"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleetcache/fleetcache/clustercache"
)

// WatchOption is an option of [Builder].For, Owns, Watches and WatchesHandler:
// [OnlyMetadata], [MatchEveryOwner], or what [WithPredicates] or [Selecting]
// returns. Options of the same kind add up.
type WatchOption interface{ applyTo(in *builderInput) }

// watchFlag is an option without a value.
type watchFlag uint8

const (
	// OnlyMetadata makes predicates and handlers receive metadata instead of
	// complete objects, as if the kind were named by [clustercache.Kind]. All
	// forms of a kind share one cache, so the reconciler may read either.
	OnlyMetadata watchFlag = iota
	// MatchEveryOwner makes Owns request every owner of the kind given to For,
	// instead of the controller alone. It is an option of Owns.
	MatchEveryOwner
)

func (f watchFlag) applyTo(in *builderInput) {
	switch f {
	case OnlyMetadata:
		in.onlyMetadata = true
	case MatchEveryOwner:
		in.everyOwner = true
	}
}

// watchFunc is an option that is made by a function.
type watchFunc func(in *builderInput)

func (f watchFunc) applyTo(in *builderInput) { f(in) }

// WithPredicates lets an event pass if all predicates do. They receive objects
// in the representation in which the kind is named, see [events.AsGiven].
// Those of a Go type, such as predicate.TypedFuncs[*corev1.Pod], fit a kind
// that is named by an object of the type; with any other, Build fails.
func WithPredicates[object client.Object](predicates ...predicate.TypedPredicate[object]) WatchOption {
	return watchFunc(func(in *builderInput) {
		for _, p := range predicates {
			in.predicates = append(in.predicates, untyped(p))
		}
	})
}

// Selecting narrows what is watched to the objects that list options select,
// such as client.InNamespace, MatchingLabels and MatchingFields; the API
// servers select. Several of it select what any of them does, so that there
// can be several namespaces. The cache answers reads of what is watched, and
// the API server the others: read with the same options.
func Selecting(options ...client.ListOption) WatchOption {
	options = slices.Clone(options)
	return watchFunc(func(in *builderInput) { in.selections = append(in.selections, options) })
}

// ofType is implemented by what deals with objects of one Go type.
type ofType interface{ objectType() reflect.Type }

// fits returns an error if a predicate or handler is made for objects of
// another Go type than the one that names the kind.
func fits(field, method string, object client.Object, what any) error {
	of, ok := what.(ofType)
	if !ok || reflect.TypeOf(object).AssignableTo(of.objectType()) {
		return nil
	}
	return &clustercache.OptionError{
		Field: field,
		Err:   fmt.Errorf("is for objects of type %v, and %s has objects of type %T", of.objectType(), method, object),
	}
}

// untyped returns the predicate for any object.
func untyped[object client.Object](p predicate.TypedPredicate[object]) predicate.Predicate {
	if p == nil {
		return nil
	}
	if same, ok := p.(predicate.Predicate); ok {
		return same
	}
	return typedPredicate{
		Funcs: predicate.Funcs{
			CreateFunc:  func(e event.CreateEvent) bool { return p.Create(typedCreate[object](e)) },
			UpdateFunc:  func(e event.UpdateEvent) bool { return p.Update(typedUpdate[object](e)) },
			DeleteFunc:  func(e event.DeleteEvent) bool { return p.Delete(typedDelete[object](e)) },
			GenericFunc: func(e event.GenericEvent) bool { return p.Generic(typedGeneric[object](e)) },
		},
		of: reflect.TypeFor[object](),
	}
}

// typedPredicate calls a predicate for objects of one Go type.
type typedPredicate struct {
	predicate.Funcs

	of reflect.Type
}

func (p typedPredicate) objectType() reflect.Type { return p.of }

func typedCreate[object client.Object](e event.CreateEvent) event.TypedCreateEvent[object] {
	return event.TypedCreateEvent[object]{Object: e.Object.(object), IsInInitialList: e.IsInInitialList}
}

func typedUpdate[object client.Object](e event.UpdateEvent) event.TypedUpdateEvent[object] {
	return event.TypedUpdateEvent[object]{ObjectOld: e.ObjectOld.(object), ObjectNew: e.ObjectNew.(object)}
}

func typedDelete[object client.Object](e event.DeleteEvent) event.TypedDeleteEvent[object] {
	return event.TypedDeleteEvent[object]{Object: e.Object.(object), DeleteStateUnknown: e.DeleteStateUnknown}
}

func typedGeneric[object client.Object](e event.GenericEvent) event.TypedGenericEvent[object] {
	return event.TypedGenericEvent[object]{Object: e.Object.(object)}
}
