// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// Sharding is one replica of a group. Its methods are safe for concurrent use.
//
//	watcher ───► inbox ◄─── results of writes, drains
//	               │
//	               ▼
//	           Start: the only goroutine that uses the protocol's Replica
//	               │
//	     ┌─────────┼───────────┐
//	     ▼         ▼           ▼
//	   table     notifier     writes, a goroutine each
//	     ▲         │
//	   Owns …      ▼
//	           subscribers
type Sharding struct {
	options Options
	log     logr.Logger
	leases  coordinationclient.LeaseInterface
	reviews authorizationclient.SelfSubjectAccessReviewInterface

	replica  *protocol.Replica // owned by Start, as the three below
	refused  *NameError        // the name of the group's Lease is taken
	existed  map[string]bool   // names of Leases that could not be created, since there is one
	told     map[string]bool   // those that are taken, as was logged
	table    atomic.Pointer[table]
	inbox    chan func(now time.Time)
	notifier *notifier
	watcher  watcher
	permits  chan struct{}
	work     sync.WaitGroup // goroutines of Start
	counts   atomic.Pointer[[]int]
	loads    atomic.Pointer[[]int] // by slot, by ClusterWeight
	clusters atomic.Pointer[[]client.ObjectKey]
	found    chan struct{}        // capacity 1: clusters has changed
	drain    atomic.Pointer[bool] // of SetDraining; nil once the loop has it
	share    atomic.Pointer[protocol.Share]

	closing chan struct{} // closed by Close
	joining chan struct{} // closed once the inbox is received from
	ended   chan struct{} // closed when nothing is received from inbox any more
	done    chan struct{} // closed when Start returns

	mu struct {
		sync.Mutex
		started, closed bool
	}
}

var _ ownership.Sharding = (*Sharding)(nil)

// table is what this replica owns, as Start published it last.
type table struct {
	until time.Time // of all slots
	slots []holding
}

// holding is the state of a slot.
type holding struct {
	token    int64 // 0 if the slot is not owned
	draining bool
	standsBy bool
	// onLoss calls a function once the token is lost, as context.AfterFunc
	// does.
	onLoss func(func()) (stop func() bool)
	lose   context.CancelFunc
}

// New returns a Sharding for the hub that config describes. It does no I/O. The
// error is an [*OptionError], or that of a config without a client.
//
// The config's limits of requests do not apply. The replica needs the
// permissions to list, watch, create, update, patch and delete Leases in
// Options.Namespace; see [PermissionError].
func New(config *rest.Config, o Options) (*Sharding, error) {
	if config == nil {
		return nil, &OptionError{Field: "config", Err: errors.New("required")}
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter = -1, nil
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	authorization, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}

	s := &Sharding{
		options: o,
		log:     o.Logger.WithName("sharding").WithValues("group", o.Name, "replica", o.Identity),
		leases:  client.Leases(o.Namespace),
		reviews: authorization.SelfSubjectAccessReviews(),
		replica: protocol.New(o.config()),
		inbox:   make(chan func(time.Time)),
		existed: map[string]bool{},
		told:    map[string]bool{},
		permits: make(chan struct{}, writers),
		found:   make(chan struct{}, 1),
		closing: make(chan struct{}),
		joining: make(chan struct{}),
		ended:   make(chan struct{}),
		done:    make(chan struct{}),
	}
	s.watcher = watcher{Sharding: s, refresh: make(chan struct{}, 1)}
	s.notifier = newNotifier(s)
	s.table.Store(&table{slots: make([]holding, o.Slots)})
	s.loads.Store(new([]int))
	s.SetClusters(nil)
	s.share.Store(&protocol.Share{})

	return s, nil
}

// NeedLeaderElection implements controller-runtime's LeaderElectionRunnable:
// every replica of a manager takes part.
func (s *Sharding) NeedLeaderElection() bool { return false }

// Slot returns the slot of a cluster.
func (s *Sharding) Slot(cluster client.ObjectKey) int {
	return protocol.SlotOf(cluster.String(), s.options.Slots)
}

// Lease is the ownership of a cluster.
type Lease struct {
	// Slot is the cluster's slot.
	Slot int
	// Token is the fencing token: it grows with each change of the cluster's
	// owner.
	Token int64
	// Until is when the ownership ends, unless a renewal succeeds before.
	Until time.Time
	// Draining: the slot is about to go to another replica, so nothing new
	// should be begun.
	Draining bool
}

// Lease returns the replica's ownership of a cluster, and whether there is one.
func (s *Sharding) Lease(cluster client.ObjectKey) (Lease, bool) {
	lease, _, ok := s.lookUp(cluster)
	return lease, ok
}

// lookUp compares with the clock of now, not with that of Start's last turn.
func (s *Sharding) lookUp(cluster client.ObjectKey) (lease Lease, owned holding, ok bool) {
	t := s.table.Load()
	n := s.Slot(cluster)
	owned = t.slots[n]
	lease = Lease{
		Slot:     n,
		Token:    owned.token,
		Until:    t.until,
		Draining: owned.draining,
	}
	return lease, owned, owned.token != 0 && before(time.Now(), t.until)
}

// before reports whether now is before t by both the monotonic and the wall
// clock. The monotonic clock stands still while a machine is suspended.
func before(now, t time.Time) bool { return now.Before(t) && now.Round(0).Before(t.Round(0)) }

// Owns reports whether the replica owns a cluster, and may begin work on it. It
// does no I/O.
func (s *Sharding) Owns(cluster client.ObjectKey) bool {
	lease, ok := s.Lease(cluster)
	return ok && !lease.Draining
}

// StandsBy reports whether the replica should be prepared to take over a
// cluster, which it does not own now.
func (s *Sharding) StandsBy(cluster client.ObjectKey) bool {
	return s.table.Load().slots[s.Slot(cluster)].standsBy
}

// Context returns a context for a write to a cluster. It ends with the
// ownership as known now, also if that is renewed later, and at once if the
// ownership is lost; the cause is [ErrNotOwner] in both cases. If the replica
// does not own the cluster, the error is a [*NotOwnerError]. Writes are allowed
// while the cluster drains.
func (s *Sharding) Context(ctx context.Context, cluster client.ObjectKey) (context.Context, context.CancelFunc, error) {
	lease, owned, ok := s.lookUp(cluster)
	if !ok {
		return nil, nil, &NotOwnerError{Cluster: cluster, Slot: lease.Slot}
	}

	ctx, cancel := context.WithDeadlineCause(ctx, lease.Until, ErrNotOwner)
	ctx, abort := context.WithCancelCause(ctx)
	stop := owned.onLoss(func() { abort(ErrNotOwner) })
	return ctx, func() {
		stop()
		abort(nil)
		cancel()
	}, nil
}

// SetClusters sets which clusters this replica knows of, so that slots are
// spread by the number of clusters. It takes effect with the next renewal. What
// other replicas know may differ.
func (s *Sharding) SetClusters(clusters []client.ObjectKey) {
	counts := make([]int, s.options.Slots)
	for _, c := range clusters {
		counts[s.Slot(c)]++
	}
	s.counts.Store(&counts)
	clusters = slices.Clone(clusters)
	s.clusters.Store(&clusters)
	select {
	case s.found <- struct{}{}:
	default:
	}
}
