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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/listopts"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

func (cc *ClusterCache) watch(key client.ObjectKey, id wants.Selection) (*Watch, error) {
	c, w, err := cc.acquire(key, id, false)
	if err != nil {
		return nil, err
	}
	return &Watch{c: c, want: w, released: make(chan struct{})}, nil
}

// acquire takes a reference to a selection of a cluster; auto makes it that of
// reads in mode AutoWatch. It creates a cluster that is being forgotten at this
// moment again.
func (cc *ClusterCache) acquire(
	key client.ObjectKey, id wants.Selection, auto bool,
) (*cluster, *wants.Want, error) {
	for {
		c, err := cc.engage(key, false)
		if err != nil {
			return nil, nil, &ClusterError{
				Cluster: key,
				GVK:     id.GVK,
				Op:      "watch",
				Err:     ErrClosed,
			}
		}

		var w *wants.Want
		if auto {
			w = c.wants.Keep(id)
		} else {
			w = c.wants.Acquire(id)
		}

		if w != nil {
			// The cluster may have been forgotten between the two calls: now
			// that it is wanted it must return.
			if c.conn.View().Phase == phase.Gone {
				c.conn.Ask()
			}
			return c, w, nil
		}
	}
}

// selection returns what an object and options select.
func (cc *ClusterCache) selection(obj client.Object, opts []client.ListOption) (wants.Selection, error) {
	if isNil(obj) {
		return wants.Selection{}, errNilObject
	}
	gvk, err := apiutil.GVKForObject(obj, cc.options.Scheme)
	if err != nil {
		return wants.Selection{}, err
	}
	o := client.ListOptions{}
	for _, opt := range opts {
		if _, ofRead := opt.(readOption); ofRead {
			return wants.Selection{GVK: gvk}, &OptionError{Field: fmt.Sprintf("%T", opt), Err: errOfReads}
		}
		if opt != nil {
			opt.ApplyToList(&o)
		}
	}
	if o.Limit != 0 || o.Continue != "" {
		return wants.Selection{GVK: gvk}, &OptionError{Field: "Limit", Err: errNoPages}
	}

	if err := listopts.Resolve(&o); err != nil {
		return wants.Selection{GVK: gvk}, err
	}
	id, err := wants.Select(gvk, &o)
	if invalid, ok := errors.AsType[*informerpool.KeyError](err); ok { // whose key names no resource yet
		err = &OptionError{Field: invalid.Field, Err: invalid.Err}
	}

	return id, err
}

var (
	errOfReads = errors.New("is an option of reads, and selects no objects to watch")
	errNoPages = errors.New("a watch has no pages; it has all objects that it selects")
)

// informerFailed is called with the failed attempts of informers.
func (cc *ClusterCache) informerFailed(key informerpool.Key, err error) {
	if misdirected(err) || apierrors.IsNotFound(err) {
		if c := cc.find(key.Cluster); c != nil {
			c.wants.Kinds.RemapSoon()
		}
	}
	if notify := cc.options.Informers.OnFailed; notify != nil {
		notify(key, err)
	}
}

// tookList is called by an informer with the duration of a list.
func (cc *ClusterCache) tookList(key informerpool.Key, took time.Duration) {
	cc.metrics.listTook.Observe(took.Seconds())
	if c := cc.find(key.Cluster); c != nil {
		c.wants.Kinds.Relisted(key)
	}
	if notify := cc.options.Informers.OnListed; notify != nil {
		notify(key, took)
	}
}

// rolledBack is called by an informer whose server's history went backwards.
func (cc *ClusterCache) rolledBack(key informerpool.Key) {
	if c := cc.find(key.Cluster); c != nil {
		c.conn.RolledBack(key.Resource.Group)
	}
}

// informerChanged is called with the changes of informers.
func (cc *ClusterCache) informerChanged(key informerpool.Key, reads bool) {
	if c := cc.find(key.Cluster); c != nil {
		c.wants.InformerChanged(key, reads)
	}
	if notify := cc.options.Informers.OnChanged; notify != nil {
		notify(key, reads)
	}
}

// observed reports whether changes of watches are of interest.
func (cc *ClusterCache) observed() bool {
	return cc.subscribed.watches.any() || cc.declared.events.any()
}

// watchChanged is called with every change of a watch. It does not block.
func (c *cluster) watchChanged(id wants.Selection, reads bool) {
	c.cc.subscribed.watches.publish(keyOf(c.key, id))
	if d := c.cc.declared; reads && d.events.any() {
		d.events.publish(d.changed(c, id)...)
	}
}

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
func (cc *ClusterCache) selected(spec events.Selection) ([]wants.Selection, error) {
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
	var ids []wants.Selection
	add := func(field string, kind client.Object, options []client.ListOption) error {
		id, err := cc.selection(kind, options)
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
		watches: map[*cluster]map[wants.Selection]*Watch{},
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
