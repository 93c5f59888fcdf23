// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"iter"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/events"
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
	s, err := cc.subscribed.subscribe(selection, handler)
	if err != nil {
		return nil, err
	}
	return newSubscription(cc.shared, "objects", s), nil
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
	return newSubscription(cc.shared, "clusters", newClusterSubscription(cc.clusters, handler, silentFor)), nil
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
	return newSubscription(cc.shared, "watches", newWatchSubscription(cc.clusters, handler)), nil
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
	return newSubscription(cc.shared, "owners", newOwnerSubscription(cc.declared, handler)), nil
}

// ObjectEvents yields the events of [ClusterCache.Subscribe] until ctx ends,
// the loop is left, or the ClusterCache stops. Each range over the sequence is
// a separate subscription. The error is that of an invalid kind or selector, or
// an [*OptionError].
func (cc *ClusterCache) ObjectEvents(ctx context.Context, spec events.Selection) (iter.Seq[events.Object], error) {
	if _, err := cc.subscribed.selected(spec); err != nil {
		return nil, err
	}
	return func(yield func(events.Object) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(cc.ctx, cancel)()
		received := make(chan events.Object)
		f, err := cc.subscribed.subscribe(spec, func(e events.Object) {
			select {
			case received <- e:
			case <-ctx.Done():
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
		s := newClusterSubscriber()
		cc.events.subscribe(s)
		defer cc.events.unsubscribe(s)
		for {
			e, ok := next(ctx, s.changed, s.take)
			if !ok || !yield(e) {
				return
			}
		}
	}
}
