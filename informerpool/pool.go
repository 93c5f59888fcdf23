// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/calls"
	"github.com/fleetcache/fleetcache/informerpool/internal/decoded"
	"github.com/fleetcache/fleetcache/informerpool/internal/rounds"
	"github.com/fleetcache/fleetcache/internal/packed"
	"github.com/fleetcache/fleetcache/internal/workpool"
)

// Pool shares informers between their users: one informer for each [Key],
// however many leases are held on it. All methods may be called from many
// goroutines, and none but Close waits.
type Pool struct {
	options Options
	codec   *packed.Codec
	calls   calls.Caller
	lists   *workpool.Queue // gives those that run their permits
	burst   burst           // of lists and interruptions
	decoded *decoded.Cache
	clock   clock

	ctx     context.Context //nolint:containedctx // the pool's lifetime, parent of its informers' contexts
	cancel  context.CancelCauseFunc
	running sync.WaitGroup // reflectors, their questions, and deliveries of subscriptions and notices
	notices notices
	kept    kept
	rights  *rounds.Rounds[*right]
	audits  audits

	undefined atomic.Bool // it was logged that definitions may not be listed

	// mu also protects audits, and holders and plan of every informer. It is
	// taken before an informer's lock.
	mu struct {
		sync.Mutex

		// INVARIANT: informers are removed from the map before they are
		// stopped, so that the ones in it are alive.
		informers     map[Key]*informer
		records       records
		subscriptions map[*Subscription]struct{}
		closed        bool
	}
}

// New returns a pool. It does no I/O and starts nothing: informers start when
// they are acquired. The error joins an [*OptionError] for each invalid option.
func New(o Options) (*Pool, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	codec := packed.NewCodec()
	codec.DropManagedFields = o.DropManagedFields

	p := &Pool{
		options: o,
		codec:   codec,
		calls:   calls.Caller{Logger: o.Logger, OnPanic: o.OnPanic},
		lists:   workpool.NewLearning(o.ListConcurrency, o.PermitTimeout),
		burst:   burst{percent: o.BurstGCPercent, size: o.ListConcurrency},
		decoded: decoded.New(o.DecodedBytes),
		clock:   clock{zero: time.Now()},
		ctx:     ctx,
		cancel:  cancel,
		notices: notices{ctx: ctx, changed: o.OnChanged},
		kept:    kept{snapshots: o.Snapshots},
	}
	p.notices.calls, p.notices.spawn, p.kept.calls = &p.calls, p.running.Go, &p.calls
	p.rights = rounds.New(ctx, o.PermissionInterval, p.running.Go, (*right).check)
	p.audits.pool, p.audits.timer = p, time.AfterFunc(time.Hour, p.audits.next)
	p.audits.timer.Stop() // until an audit is due
	p.mu.informers = map[Key]*informer{}
	p.mu.records.of = map[types.NamespacedName]*clusterStats{}
	p.mu.subscriptions = map[*Subscription]struct{}{}

	return p, nil
}

// Acquire returns a lease on the informer for key. It starts that informer
// unless there is one already, for key or for a wider key that covers it and
// has synced. Acquire returns at once; the informer connects in the background.
// ctx is checked only at the call: canceling it later changes nothing. The
// error is a [*KeyError], [ErrClosed], or ctx's.
func (p *Pool) Acquire(ctx context.Context, key Key) (*Lease, error) {
	return p.AcquireAs(ctx, "", key)
}

// AcquireAs is Acquire for a named owner. Status lists the name.
func (p *Pool) AcquireAs(ctx context.Context, owner string, key Key) (*Lease, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	key, err := key.Canonical()
	if err != nil {
		return nil, err
	}
	l, started, err := p.lease(owner, key)
	if started {
		p.options.Logger.V(1).Info("Informer started", "informer", key.String())
	}

	return l, err
}

// lease takes a lease on the informer for key, and reports whether it had to
// start the informer.
func (p *Pool) lease(owner string, key Key) (_ *Lease, started bool, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.mu.closed {
		return nil, false, ErrClosed
	}
	i := p.findLocked(key, nil)
	if i == nil {
		i, started = p.startLocked(key), true
	}
	i.holders.stay()
	l := &Lease{pool: p, owner: owner, released: make(chan struct{})}
	l.at.Store(newPlace(key, i))
	i.holders.leases[l] = struct{}{}

	return l, started, nil
}

// Wake makes the cluster's informers that wait between two attempts try at
// once, for example after a reconnect, and resets their back-off.
func (p *Pool) Wake(cluster types.NamespacedName) {
	p.mu.Lock()
	c := p.mu.records.of[cluster]
	p.mu.Unlock()

	if c != nil {
		c.streamAgain()
	}
	for _, i := range p.of(cluster) {
		i.wake.Kick()
	}
}

// Nudge makes the cluster's informers that wait between two attempts try at
// once, as Wake does, but without a reason to expect success: if the attempt
// fails, the next wait is as long as it would have been.
func (p *Pool) Nudge(cluster types.NamespacedName) {
	for _, i := range p.of(cluster) {
		i.wake.Nudge()
	}
}

// Recheck has every [Lease.WaitFor] of a cluster call its function again, for
// one that looks at more than the lease.
func (p *Pool) Recheck(cluster types.NamespacedName) {
	for _, i := range p.of(cluster) {
		i.mu.Lock()
		i.mu.waiters.wake()
		i.mu.Unlock()
	}
}

// Serves returns the key of an informer, and those of all leases that it serves
// (see [Lease.ServedBy]).
func (p *Pool) Serves(key Key) map[Key]bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	keys := map[Key]bool{key: true}
	if i := p.mu.informers[key]; i != nil {
		for l := range i.holders.leases {
			keys[l.Key()] = true
		}
	}
	return keys
}

// nudgeRefused is Nudge for the other informers of an informer's cluster that
// the server refuses.
func (p *Pool) nudgeRefused(except *informer) {
	for _, i := range p.of(except.key.Cluster) {
		if i != except && apierrors.IsForbidden(i.relation().verdict.refusal) {
			i.wake.Nudge()
		}
	}
}

// Evict empties the cluster's informers, for a cluster that is gone: handlers
// receive deletes, reads fail with [ErrNotSynced], and leases remain. The
// informers list again when the source's Ready returns. Evict does not wait.
func (p *Pool) Evict(cluster types.NamespacedName) {
	p.kept.dropCluster(cluster, errEvicted)
	for _, i := range p.of(cluster) {
		i.interrupt(errEvicted, func() { i.mu.attempt.evicted = true })
	}
}

func (p *Pool) of(cluster types.NamespacedName) []*informer {
	p.mu.Lock()
	defer p.mu.Unlock()

	c := p.mu.records.of[cluster]
	if c == nil {
		return nil
	}
	return slices.Collect(maps.Keys(c.informers))
}

// Close stops every informer and subscription and waits until all their
// goroutines have ended, or for ctx. Leases fail with [ErrClosed] from then on.
// Close may be called more than once.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.mu.closed = true
	p.audits.timer.Stop()
	p.rights.Stop()
	informers := p.mu.informers
	p.mu.informers = map[Key]*informer{}
	for _, c := range p.mu.records.of {
		clear(c.informers)
	}
	subs := slices.Collect(maps.Keys(p.mu.subscriptions))
	for _, i := range informers {
		i.holders.stay()
	}
	p.mu.Unlock()

	for _, s := range subs {
		s.Stop()
	}
	for _, i := range informers {
		i.stop(ErrClosed)
	}
	p.cancel(ErrClosed)
	p.burst.close()

	done := make(chan struct{})
	go func() { // ends with the last reflector: reflectors end with their ctx
		p.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Keys returns the keys of all informers, lingering ones included, sorted.
func (p *Pool) Keys() []Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedFunc(maps.Keys(p.mu.informers), compareKeys)
}
