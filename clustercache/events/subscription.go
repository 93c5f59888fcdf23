// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Subscription delivers events to one handler, one at a time, from Start until
// Stop. Nothing is delivered before Start of the ClusterCache. The first events
// are what exists, marked as Initial. While the handler is busy, or the
// subscription is paused, the events of an object, cluster, watch or owner are
// merged, and the last state is always delivered: the handler delays no other
// subscriber. A panic of the handler or of a predicate is logged, counted by
// Failures, and loses only the event. The sources of clustercache/controller
// are built on it. All methods may be called from many goroutines, and none but
// Close waits.
//
//	             +----------- Trigger, TriggerAll ------------+
//	             v                                            |
//	Start --> deliver --- Pause ---> merge --- Continue ------+
//	             |
//	           Stop, end of the ClusterCache
type Subscription interface {
	// Start begins the delivery. Starting a subscription again has no effect,
	// and neither has a start after Stop, which is logged; so is a subscription
	// that waits for its start for some seconds.
	Start()
	// Stop ends the delivery, and releases the watches that a [Selection] asked
	// for. A call of the handler that has begun continues. It is idempotent.
	Stop()
	// Close is Stop, and then waits until the handler and the predicates are
	// not being called, or until ctx ends. A Close called by one of them does
	// not wait for that call.
	Close(ctx context.Context) error

	// Pause stops the delivery after the event that is being handled. Caches
	// stay up to date, and events are merged. It can be called before Start.
	Pause()
	// Continue ends a pause: it delivers the merged events.
	Continue()

	// Trigger delivers an object once more, marked as Resync, if it is cached
	// and selected. A subscription to clusters delivers the events that make up
	// the state of the cluster once more, marked as Initial, unless they are
	// about to be delivered. One to watches delivers the state of those of the
	// kind in the cluster, and one to owners the owner of that kind and name,
	// whatever the cluster.
	Trigger(cluster client.ObjectKey, gvk schema.GroupVersionKind, object client.ObjectKey)
	// TriggerAll delivers every object, or the state of every cluster, once
	// more.
	TriggerAll()

	// Failures returns how many events could not be handled: the handler or a
	// predicate panicked, or an object did not fit the [Representation]. Each
	// is logged.
	Failures() int64
}
