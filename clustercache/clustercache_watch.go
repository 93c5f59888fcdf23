// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// Subscribe returns a subscription to the events of the objects that a
// selection selects; the first are those of the objects that exist.
// [events.Subscription] says how subscriptions deliver. The error is that of an
// invalid kind or selector, an [*OptionError], or [ErrClosed].
func (cc *ClusterCache) Subscribe(
	selection events.Selection, handler func(events.Object),
) (events.Subscription, error) {
	if handler == nil {
		return nil, &OptionError{Field: "handler", Err: errNilCallback}
	}
	s, err := cc.newObjectSubscription(selection, handler)
	if err != nil {
		return nil, err
	}
	return newSubscription(cc, "objects", s), nil
}

// SubscribeClusters returns a subscription to the events of clusters; the first
// are the states of the known ones. The error is an [*OptionError], or
// [ErrClosed].
//
// For each silentFor, which must be positive, there is also an event of type
// [events.Silent] when a cluster has left probes and attempts to connect
// unanswered for that long, once for each silence. The silence of a cluster
// that never answered begins with its first failure.
func (cc *ClusterCache) SubscribeClusters(
	handler func(events.Cluster), silentFor ...time.Duration,
) (events.Subscription, error) {
	if handler == nil {
		return nil, &OptionError{Field: "handler", Err: errNilCallback}
	}
	for _, d := range silentFor {
		if d <= 0 {
			return nil, &OptionError{Field: "silentFor", Err: errNotPositive}
		}
	}
	if cc.ctx.Err() != nil {
		return nil, ErrClosed
	}
	return newSubscription(cc, "clusters", newClusterSubscription(cc, handler, silentFor)), nil
}

// SubscribeWatches returns a subscription to the changes of watches, as
// [events.Watch] describes; the first events are the states of all watches. The
// error is an [*OptionError], or [ErrClosed].
func (cc *ClusterCache) SubscribeWatches(handler func(events.Watch)) (events.Subscription, error) {
	if handler == nil {
		return nil, &OptionError{Field: "handler", Err: errNilCallback}
	}
	if cc.ctx.Err() != nil {
		return nil, ErrClosed
	}
	return newSubscription(cc, "watches", newWatchSubscription(cc, handler)), nil
}

// SubscribeOwners returns a subscription to the owners of declarations whose
// reads may be answered differently now; the first events are all owners. An
// owner that runs for each event, declares what it needs and reads it, never
// stays behind what a read would return, without polling. docs/watching.md
// lists what calls an owner. The error is an [*OptionError], or [ErrClosed].
func (cc *ClusterCache) SubscribeOwners(handler func(OwnerEvent)) (events.Subscription, error) {
	if handler == nil {
		return nil, &OptionError{Field: "handler", Err: errNilCallback}
	}
	if cc.ctx.Err() != nil {
		return nil, ErrClosed
	}
	return newSubscription(cc, "owners", newOwnerSubscription(cc, handler)), nil
}

// ObjectEvents yields the events of [ClusterCache.Subscribe] until ctx ends,
// the loop is left, or the ClusterCache stops. Each range over the sequence is
// a separate subscription. The error is that of an invalid kind or selector, or
// an [*OptionError].
func (cc *ClusterCache) ObjectEvents(ctx context.Context, spec events.Selection) (iter.Seq[events.Object], error) {
	if _, err := cc.selected(spec); err != nil {
		return nil, err
	}
	return func(yield func(events.Object) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		received := make(chan events.Object)
		f, err := cc.newObjectSubscription(spec, func(e events.Object) {
			select {
			case received <- e:
			case <-ctx.Done():
			case <-cc.ctx.Done():
			}
		})
		if err != nil {
			return // it was checked before; only ErrClosed is left
		}
		defer f.stop()
		f.start()

		for {
			select {
			case e := <-received:
				if !yield(e) {
					return
				}
			case <-ctx.Done():
				return
			case <-cc.ctx.Done():
				return
			}
		}
	}, nil
}

// ClusterEvents yields the events of [ClusterCache.SubscribeClusters] until ctx
// ends, the loop is left, or the ClusterCache stops. Each range over it is a
// separate subscription.
func (cc *ClusterCache) ClusterEvents(ctx context.Context) iter.Seq[events.Cluster] {
	return func(yield func(events.Cluster) bool) {
		cc.used()
		s := cc.events.subscribe()
		defer cc.events.unsubscribe(s)
		for {
			e, ok := s.next(ctx)
			if !ok || !yield(e) {
				return
			}
		}
	}
}

// selected returns the ids that a Selection selects.
func (cc *ClusterCache) selected(spec events.Selection) ([]watchset.Selection, error) {
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
		id, err := newSelection(cc.options.Scheme, kind, options)
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

// newObjectSubscription returns a subscription, which start begins and stop
// ends. It calls handle with one event at a time. The subscription counts a
// panic in handle or in a predicate.
func (cc *ClusterCache) newObjectSubscription(
	spec events.Selection, handle func(events.Object),
) (*objectSubscription, error) {
	if spec.Representation > events.Metadata {
		return nil, &OptionError{Field: "Representation", Err: ErrUnsupported}
	}
	wanted, err := cc.selected(spec)
	if err != nil {
		return nil, err
	}
	if cc.ctx.Err() != nil {
		return nil, ErrClosed
	}
	s := &objectSubscription{
		cc:      cc,
		spec:    spec,
		wanted:  wanted,
		given:   cc.givenRepresentations(spec),
		watches: map[*cluster]map[watchset.Selection]*Watch{},
	}
	s.pool = cc.pool.Subscribe(informerpool.HandlerFunc(func(e informerpool.Event) { s.handle(e, handle) }))
	s.resync = timetable.NewTimer(s.resyncDue)

	return s, nil
}

// givenRepresentations returns the representation in which each kind was named,
// and Typed for a kind named in several representations.
func (cc *ClusterCache) givenRepresentations(spec events.Selection) map[schema.GroupVersionKind]events.Representation {
	kinds := slices.Clone(spec.Kinds)
	for _, s := range spec.Narrowed {
		kinds = append(kinds, s.Kind)
	}
	given := map[schema.GroupVersionKind]events.Representation{}
	for _, kind := range kinds {
		gvk, err := apiutil.GVKForObject(kind, cc.options.Scheme)
		if r := givenRepresentation(kind); err == nil && given[gvk] != events.Typed {
			given[gvk] = r
		}
	}

	return given
}

func (cc *ClusterCache) subscriptions() []*objectSubscription {
	cc.subscribed.mu.Lock()
	defer cc.subscribed.mu.Unlock()
	return slices.Collect(maps.Keys(cc.subscribed.all))
}
