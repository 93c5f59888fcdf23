// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// subscriptions are the subscriptions to objects.
type subscriptions struct {
	fleet *clusters

	mu  sync.Mutex // protects all; nothing else is locked under it
	all map[*objectSubscription]struct{}
}

func newSubscriptions(fleet *clusters) *subscriptions {
	return &subscriptions{fleet: fleet, all: map[*objectSubscription]struct{}{}}
}

// add registers a subscription that has started.
func (s *subscriptions) add(o *objectSubscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[o] = struct{}{}
}

// remove undoes add.
func (s *subscriptions) remove(o *objectSubscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, o)
}

// started returns the subscriptions that have started, and not stopped.
func (s *subscriptions) started() []*objectSubscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.all))
}

// changed is called with each change of a cluster. It does not block.
func (s *subscriptions) changed(c *cluster, what change) {
	for _, o := range s.started() {
		o.changed(c, what)
	}
}

// bound is called for every want that has got its lease. It does not block.
func (s *subscriptions) bound(c *cluster, want *watchset.Want) {
	for _, o := range s.started() {
		o.leaseAdded(c, want)
	}
}

// selected returns the ids that a Selection selects.
func (s *subscriptions) selected(spec events.Selection) ([]watchset.Selection, error) {
	if spec.ResyncInterval < 0 {
		return nil, &OptionError{Field: "ResyncInterval", Err: errors.New("negative")}
	}
	if spec.Watch && len(spec.Kinds)+len(spec.Narrowed) == 0 {
		return nil, &OptionError{Field: "Watch", Err: errors.New("needs Kinds or Narrowed")}
	}
	for i, p := range spec.Predicates {
		if p == nil {
			return nil, &OptionError{Field: fmt.Sprintf("Predicates[%d]", i), Err: errNilCallback}
		}
	}
	var ids []watchset.Selection
	add := func(field string, kind client.Object, options []client.ListOption) error {
		id, err := newSelection(s.fleet.options.Scheme, kind, options)
		if err != nil {
			return &OptionError{Field: field, Err: err}
		}
		if !spec.Watch && !local(id.FieldSelector) {
			return &OptionError{
				Field: field,
				Err:   fmt.Errorf("field selector %q without Watch: %w", id.FieldSelector, ErrUnsupported),
			}
		}
		ids = append(ids, id)
		return nil
	}
	for i, kind := range spec.Kinds {
		if err := add(fmt.Sprintf("Kinds[%d]", i), kind, spec.Options); err != nil {
			return nil, err
		}
	}
	for i, s := range spec.Narrowed {
		if err := add(fmt.Sprintf("Narrowed[%d].Kind", i), s.Kind, s.Options); err != nil {
			return nil, err
		}
	}
	if len(ids) == 0 {
		if err := add("Options", Kind(schema.GroupVersionKind{Version: "v1", Kind: "Any"}), spec.Options); err != nil {
			return nil, err
		}
		ids[0].GVK = schema.GroupVersionKind{}
	}

	return ids, nil
}

// subscribe returns a subscription, which start begins and stop ends. It calls
// handle with one event at a time. The subscription counts a
// panic in handle or in a predicate.
func (s *subscriptions) subscribe(
	spec events.Selection, handle func(events.Object),
) (*objectSubscription, error) {
	if spec.Representation > events.Metadata {
		return nil, &OptionError{Field: "Representation", Err: ErrUnsupported}
	}
	wanted, err := s.selected(spec)
	if err != nil {
		return nil, err
	}
	if s.fleet.ctx.Err() != nil {
		return nil, ErrClosed
	}
	o := &objectSubscription{
		fleet:   s.fleet,
		others:  s,
		spec:    spec,
		wanted:  wanted,
		given:   s.given(spec),
		watches: map[*cluster]map[watchset.Selection]*Watch{},
	}
	o.pool = s.fleet.pool.Subscribe(informerpool.HandlerFunc(func(e informerpool.Event) { o.handle(e, handle) }))
	o.resync = timetable.NewTimer(o.resyncDue)

	return o, nil
}

// given returns the representation in which each kind was named,
// and Typed for a kind named in several representations.
func (s *subscriptions) given(spec events.Selection) map[schema.GroupVersionKind]events.Representation {
	kinds := slices.Clone(spec.Kinds)
	for _, s := range spec.Narrowed {
		kinds = append(kinds, s.Kind)
	}
	given := map[schema.GroupVersionKind]events.Representation{}
	for _, kind := range kinds {
		gvk, err := apiutil.GVKForObject(kind, s.fleet.options.Scheme)
		if r := givenRepresentation(kind); err == nil && given[gvk] != events.Typed {
			given[gvk] = r
		}
	}

	return given
}
