// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package ownership has what a ClusterCache needs to know about the replicas of
// an operator that share a fleet of clusters: which clusters this replica owns,
// and until when. clustercache/sharding implements [Sharding] with Leases on
// the hub.
//
//	sharding.Sharding ──implements──► ownership.Sharding ◄──uses── ClusterCache
package ownership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/clustername"
)

// Sharding assigns clusters to replicas, of which this process is one. Clusters
// are hashed into slots, and a slot has one owner at a time. All methods are
// safe for concurrent use, and none does I/O or blocks.
type Sharding interface {
	// Slot returns the slot of a cluster, which is always the same.
	Slot(cluster client.ObjectKey) int
	// Context returns a context for a write to a cluster. It ends with the
	// ownership as known now, at the latest at the deadline that the lease sets;
	// the cause is ErrNotOwner. If the replica does not own the cluster, by the
	// clock of this moment, the error is a *NotOwnerError. Writes are allowed
	// while the cluster drains. It is also asked whether the replica owns a
	// cluster, so it has to be cheap.
	Context(ctx context.Context, cluster client.ObjectKey) (context.Context, context.CancelFunc, error)
	// SetClusters sets which clusters this replica knows of, so that slots are
	// spread by the number of clusters.
	SetClusters(clusters []client.ObjectKey)
	// Subscribe has handler called with each event, in their order, one at a
	// time. handler must not block. It begins with events that lead to the
	// present state. The returned function ends the subscription; it does not
	// wait for a call that runs at that moment. Slots no longer wait for an
	// ended subscription.
	Subscribe(handler func(Event)) (unsubscribe func())
}

// EventType is what happened to a slot.
type EventType uint8

// Types of events.
const (
	// Warm: the replica owns the slot soon, or stands by for it. Fill the caches
	// of its clusters, and call [Event.Done] then. It precedes Gained, but does
	// not delay it if the slot has no owner.
	Warm EventType = iota
	// Gained: the replica owns the slot.
	Gained
	// Draining: the slot is about to go to another replica. Begin nothing new
	// on its clusters, and call [Event.Done] once all work on them has ended.
	Draining
	// Lost: the replica no longer owns the slot. Contexts of Sharding.Context
	// have ended. It may follow Gained directly.
	Lost
	// Cool: the replica neither owns the slot nor stands by for it.
	Cool
)

// String returns the type's name.
func (t EventType) String() string {
	return [...]string{"Warm", "Gained", "Draining", "Lost", "Cool"}[t]
}

// Event is a change of a slot.
type Event struct {
	Type EventType
	Slot int
	// Token is that of the ownership. It is 0 for Warm and Cool.
	Token int64
	// Until is when the slot is given up in any case (Draining).
	Until time.Time

	done func()
}

// WithDone returns the event with a function that Done calls. It is for
// implementations of [Sharding].
func (e Event) WithDone(done func()) Event {
	e.done = done
	return e
}

// Done reports that the subscriber has filled its caches (Warm), or that its
// work on the slot has ended (Draining). A slot that drains goes to its new
// owner once all subscribers have called it. Before the drain, an owner that
// stays waits for the caches of the new one, for a bounded time. Done does
// nothing for other events, and if it is called again.
func (e Event) Done() {
	if e.done != nil {
		e.done()
	}
}

// State is what a replica has to do with a cluster.
type State struct {
	// Owned reports whether the replica owns the cluster and may begin work on
	// it. Draining reports whether it owns the cluster, and is about to hand it
	// over. StandsBy reports whether it keeps caches warm without owning it.
	Owned    bool `json:"owned"`
	Draining bool `json:"draining,omitempty"`
	StandsBy bool `json:"standsBy,omitempty"`
	// Slot is the cluster's slot.
	Slot int `json:"slot"`
	// Token is the fencing token of the ownership: it grows with each change of
	// the owner. It is 0 if the replica does not own the cluster.
	Token int64 `json:"token,omitempty"`
	// Since is when this state began. It is zero if the replica never had to do
	// with the cluster.
	Since time.Time `json:"since,omitzero"`
}

// ErrNotOwner indicates that this replica does not own the cluster, or no
// longer does. It is also the cause of contexts that end with the ownership.
var ErrNotOwner = errors.New("this replica does not own the cluster")

// NotOwnerError is an [ErrNotOwner] that names the cluster.
type NotOwnerError struct {
	Cluster client.ObjectKey
	Slot    int
}

// Error implements error.
func (e *NotOwnerError) Error() string {
	return fmt.Sprintf("cluster %s: slot %d: %v", clustername.Of(e.Cluster), e.Slot, ErrNotOwner)
}

// Is reports whether target is [ErrNotOwner].
func (e *NotOwnerError) Is(target error) bool { return target == ErrNotOwner }
