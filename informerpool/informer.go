// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetcache/fleetcache/informerpool/internal/backoff"
	"github.com/fleetcache/fleetcache/informerpool/internal/comparison"
	"github.com/fleetcache/fleetcache/informerpool/internal/selector"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/traits"
)

// State is a phase in the lifetime of an informer.
type State string

// An informer starts, becomes synced, alternates between synced and degraded,
// and ends as gone:
//
//	Starting ──► Synced ◄──► Degraded
//	    └──────────┴────────────┴──► Dying ──► Gone
//
// [Pool.Evict] takes it back to starting. It is dying from the time the pool
// has removed it until its goroutine has ended; Acquire never returns a lease
// on a dying informer.
const (
	StateStarting State = "Starting"
	StateSynced   State = "Synced"
	StateDegraded State = "Degraded"
	StateDying    State = "Dying"
	StateGone     State = "Gone"
)

// informer caches one key: it holds the objects and what is known about them,
// and delivers their changes. Its reflector follows the server.
//
//	Source ──frames──► reflector ──put, remove, commit──► mu.store ◄── Lease
//	                       ▲                                 │ change
//	  kick, evict,         │                                 ▼
//	  an audit's finding ──┘                           mu.listeners ──► Subscription
//
// INVARIANT: only the reflector's goroutine changes the objects, so that it
// reads mu.store and mu.staged without the lock. All others hold the lock.
type informer struct {
	key     Key
	pool    *Pool
	cluster *clusterStats // of the key's cluster
	counts  counts

	ctx    context.Context //nolint:containedctx // the informer's lifetime, which is part of no call's ctx
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the reflector has ended
	wake   backoff.Waker // of the reflector, while it waits between attempts
	right  right

	// INVARIANT: the pool's lock protects holders and plan, since they decide
	// whether, and how, the informer is part of the pool.
	holders holders
	plan    auditPlan

	signs     signs
	published published
	progress  progress

	siblings *siblings         // it, and the other informers of its resource
	lead     lead              // protected by the lock of siblings
	name     string            // of its objects, if all have the same
	label    label             // of its objects, if all have the same and other names
	selects  selector.Selector // what it selects, as far as that can be evaluated here
	part     bool              // it selects by labels, or by other fields than one name

	testimony *testimony // of the storage of its resource

	// mu is taken after the pool's lock, and before that of a subscription. No
	// I/O happens and no user's function is called while it is held.
	mu struct {
		sync.RWMutex

		trust
		contents
		position

		seen      seenObjects
		touched   *comparison.Changes // the stream's changes since an audit began; nil without one
		attempt   attempt
		listeners []*listener
		waiters   waiters
		outlook   outlook // as it was last noticed
	}
}

// signs are the last signs of life, as instants of the pool's clock. expired
// reports that the user found their age to be too great: the next one is
// noticed.
type signs struct {
	event, proof atomic.Int64
	expired      atomic.Bool
}

// published is the part of the contents that is read without the lock.
type published struct {
	scope  atomic.Int32          // a scope: that of the store's objects
	listed atomic.Pointer[Epoch] // the epoch of the objects that reads return; nil while they return none

	definition atomic.Pointer[definition] // of the resource, as of when it was served
}

// newInformer returns a new informer. The pool's lock is held.
func newInformer(p *Pool, key Key) *informer {
	ctx, cancel := context.WithCancelCause(p.ctx)
	i := &informer{
		key:     key,
		pool:    p,
		cluster: p.mu.records.open(key.Cluster),
		ctx:     ctx,
		cancel:  cancel,
		done:    make(chan struct{}),
		wake:    backoff.NewWaker(),
		holders: holders{leases: map[*Lease]struct{}{}},
	}
	i.siblings = i.cluster.siblingsLocked(key.Resource.GroupResource())
	if i.testimony = &i.cluster.testimony; storedApart(key.Resource.GroupResource()) {
		i.testimony = &i.siblings.testimony
	}
	i.name, _ = newSelector(Key{}, key).Name()
	if i.part, i.selects = key.part(), selects(key); i.name == "" {
		i.label.key, i.label.value = traits.Label(key.LabelSelector)
	}
	i.mu.standing = standing{state: StateStarting, since: time.Now()}
	i.mu.store, i.mu.seen.informer = store.New(), i
	i.right.informer, i.right.round.Value, i.progress.informer = i, &i.right, i

	return i
}

// run is the informer's goroutine. It runs the reflector to its end.
func (i *informer) run(r *reflector) {
	defer i.runOn(r)
	r.run(i.ctx)
	r.refusal.End()
	i.ended()
}

// runOn continues on another goroutine if a user's function has ended that of
// run.
func (i *informer) runOn(r *reflector) {
	select {
	case <-i.done:
	default:
		i.pool.running.Go(func() { i.run(r) })
	}
}

func (i *informer) ended() {
	defer close(i.done)
	i.pool.forgetSource(i.key)
	i.mu.Lock()
	defer i.mu.Unlock()

	i.mu.setState(StateGone)
	i.mu.store, i.mu.staged, i.mu.listeners, i.mu.synced = store.New(), nil, nil, false
	i.published.listed.Store(nil)
	i.mu.seen.forget()
	i.chargeLocked()
	i.changedLocked()
}

// forgetSource lets the source drop its state for a key, unless the pool has
// another informer for that key by now.
func (p *Pool) forgetSource(key Key) {
	source, keeps := p.options.Source.(interface{ forget(key Key) })
	p.mu.Lock() // so that no informer for the key starts meanwhile
	defer p.mu.Unlock()
	if keeps && p.mu.informers[key] == nil {
		source.forget(key)
	}
}

// stop ends the informer without waiting; done is closed when it has ended.
func (i *informer) stop(cause error) {
	i.mu.Lock()
	if i.mu.state != StateGone {
		i.mu.setState(StateDying)
	}
	i.changedLocked()
	i.mu.Unlock()

	i.cancel(cause)
}

// count adds one to the counts of the informer and of its cluster.
func (i *informer) count(what counted) {
	i.counts[what].Add(1)
	i.cluster.counts[what].Add(1)
}

// proof records that the server's last sign of life was at an instant.
func (i *informer) proof(instant int64) {
	i.signs.proof.Store(instant)
	if i.signs.expired.Load() {
		i.mu.Lock()
		i.unexpireLocked()
		i.mu.Unlock()
	}
}

// unexpireLocked records a notice if the informer is trusted again by its signs
// of life alone, which is part of no outlook.
func (i *informer) unexpireLocked() {
	if i.mu.detached.IsZero() && i.signs.expired.Swap(false) {
		i.mu.waiters.wake()
		i.pool.notices.add(i.key, false)
	}
}

// outlook is what an informer offers to its users, apart from its objects: if
// it changes, they are notified (Options.OnChanged).
type outlook struct {
	reads   readOutlook
	state   State
	lastErr string
}

// readOutlook is the part of it that decides whether, and how, reads are
// answered.
type readOutlook struct {
	synced, unserved, polling bool

	epoch    Epoch
	history  int
	refuted  string // why the cache answers no read
	rejected int64  // objects, whose states became unknown
	unknown  int
}

// changedLocked records what the informer shows, wakes those that wait for a
// change of it, and records a notice of it if there is one.
func (i *informer) changedLocked() {
	i.siblings.reachLocked(i)
	i.mu.waiters.wake()
	if i.pool.options.OnChanged == nil || i.mu.state == StateDying || i.mu.state == StateGone {
		return
	}
	now := outlook{
		reads: readOutlook{
			synced:   i.mu.synced,
			unserved: i.mu.unserved,
			polling:  i.mu.polling,
			epoch:    i.mu.epoch,
			history:  i.mu.history,
			refuted:  errorText(i.refutedLocked()),
			rejected: i.counts[countRejected].Load(),
			unknown:  i.mu.refused.Len(),
		},
		state:   i.mu.state,
		lastErr: errorText(i.mu.fault()),
	}
	if now == i.mu.outlook {
		return
	}
	reads := now.reads != i.mu.outlook.reads
	i.mu.outlook = now
	i.pool.notices.add(i.key, reads) // the reflector is running: only it makes the state Gone
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
