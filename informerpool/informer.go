// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
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

// informer caches one key: its store, its state and its listeners. Only its
// reflector writes objects.
type informer struct {
	key    Key
	pool   *Pool
	ctx    context.Context //nolint:containedctx // the informer's lifetime, which is part of no call's ctx
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the reflector has ended
	wake   chan struct{} // one slot: cuts a wait between attempts short
	anew   atomic.Bool   // set before wake: the next wait is as short as the first

	// leases, heirs and linger are protected by the pool's lock, since they
	// decide whether the informer stays in the pool's map. heirs are leases
	// that this informer is going to serve once it has synced.
	leases map[*Lease]struct{}
	heirs  map[*Lease]struct{}
	linger *time.Timer
	// moving counts heirs, and leases that another informer is going to serve.
	// It is a hint that avoids taking the pool's lock for each event.
	moving atomic.Int32
	// auditAt is when the informer is to be audited; zero while it is being
	// audited. auditBy is its regular appointment, auditThen one that was
	// requested during an audit, and auditFailures counts audits in a row that
	// failed. The pool's lock protects them.
	auditAt, auditBy, auditThen time.Time
	auditFailures               int

	mu sync.RWMutex // protects the fields below

	standing

	trial     *trial // of the current stream; nil if it is followed, or there is none
	misled    bool   // a stream was accepted but proved to be none, since one was last followed
	charged   int64  // the informer's share of the cluster's budget
	store     *store
	staged    *store // objects of a list under way that store lacks
	synced    bool
	epoch     Epoch
	history   int // number of the resource's own history in the epoch
	rv        string
	partial   string // highest version that broken lists have brought since the last complete one
	taps      []*tap
	polling   bool                    // the resource can be listed, not watched
	unserved  bool                    // the resource was proven not to exist any more
	taken     int                     // lists that were committed
	touched   *touched                // the stream's changes since an audit began; nil without one
	finding   error                   // of an audit, for the reflector
	doubt     error                   // the store is known to be of another history than the server's
	evicted   bool                    // the reflector is to forget everything before its next attempt
	forgotten []func()                // called, with the lock held, after that
	attempt   context.CancelCauseFunc // ends the reflector's attempt; nil between attempts
	changed   chan struct{}           // made by a waiter; closed and set to nil on the next change

	refused refusals                       // objects whose state is not known
	seen    map[types.NamespacedName]*seen // by users, in other ways; not in the store yet
	// seenBytes is the memory that seen takes.
	seenBytes int64
	looks     int // lists and audits that have begun
	// seenAudit is when an audit was last requested because of a seen object.
	seenAudit time.Time

	account *account // of the cluster

	lastEvent, lastProof atomic.Int64          // instants of the pool's clock
	scope                atomic.Int32          // a scope: that of the store's objects
	listed               atomic.Pointer[Epoch] // the epoch of the objects that reads return; nil while they return none
	counters             counters
}

// newEntry returns a new informer. The pool's lock is held.
func newInformer(p *Pool, key Key) *informer {
	ctx, cancel := context.WithCancelCause(p.ctx)
	account := p.accountLocked(key.Cluster)
	return &informer{
		key:      key,
		pool:     p,
		ctx:      ctx,
		cancel:   cancel,
		done:     make(chan struct{}),
		wake:     make(chan struct{}, 1),
		account:  account,
		counters: newCounters(account),
		leases:   map[*Lease]struct{}{},
		heirs:    map[*Lease]struct{}{},
		standing: standing{state: StateStarting, since: time.Now()},
		store:    newStore(),
	}
}

// run is the informer's goroutine.
func (i *informer) run() { i.reflect(&reflector{informer: i, options: &i.pool.options}) }

// reflect runs a reflector to its end, on another goroutine if a user's
// function ends this one.
func (i *informer) reflect(r *reflector) {
	ended := false
	defer func() {
		if !ended {
			i.pool.running.Go(func() { i.reflect(r) })
		}
	}()
	r.run(i.ctx)
	ended = true
	i.ended()
}

func (i *informer) ended() {
	defer close(i.done)
	i.pool.forgetSource(i.key)
	i.mu.Lock()
	defer i.mu.Unlock()

	i.setStateLocked(StateGone)
	i.store, i.staged, i.taps, i.synced = newStore(), nil, nil, false
	i.listed.Store(nil)
	i.seen = nil
	i.weighSeenLocked(0)
	i.chargeLocked()
	i.broadcastLocked()
}

// stop ends the informer without waiting; done is closed when it has ended.
func (i *informer) stop(cause error) {
	i.mu.Lock()
	if i.state != StateGone {
		i.setStateLocked(StateDying)
	}
	i.broadcastLocked()
	i.mu.Unlock()

	i.cancel(cause)
}

func (i *informer) setStateLocked(s State) {
	if i.state != s {
		i.state, i.since = s, time.Now()
	}
}

// broadcastLocked wakes all goroutines that wait for the informer to change.
func (i *informer) broadcastLocked() {
	if i.changed != nil {
		close(i.changed)
		i.changed = nil
	}
}

// await calls check until it returns anything but errWait, and returns that
// result. It also returns when ctx or the lease ends. check is called with the
// lock of the informer that serves the lease.
func (l *Lease) await(ctx context.Context, check func(*informer) error) error {
	for {
		if err := l.gone(); err != nil {
			return fmt.Errorf("%s: %w", l.Key(), err)
		}
		i := l.lock().informer
		err := check(i)
		if err != errWait { //nolint:errorlint // an identity, never wrapped
			i.mu.Unlock()
			return err
		}
		if i.changed == nil {
			i.changed = make(chan struct{})
		}
		changed := i.changed
		i.mu.Unlock()

		select {
		case <-changed:
		case <-l.released:
		case <-i.ctx.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// kick makes a reflector that waits between attempts try at once, and resets
// its back-off.
func (i *informer) kick() {
	i.anew.Store(true)
	i.nudge()
}

// nudge makes a reflector that waits between attempts try at once.
func (i *informer) nudge() {
	select {
	case i.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// proof records a sign of life of the server.
func (i *informer) proof() { i.lastProof.Store(i.pool.clock.now()) }

// sizeLocked returns the approximate memory of the informer, without a list
// under way.
func (i *informer) sizeLocked() int64 { return i.store.size() + i.seenBytes }

// chargeLocked updates the cluster's account and the scope of the store's
// objects.
func (i *informer) chargeLocked() {
	i.scope.Store(int32(i.store.scope()))
	bytes := i.store.size()
	if i.staged != nil {
		bytes += i.staged.bytes // memory that its objects share is counted in the store
	}
	i.account.bytes.Add(bytes - i.charged)
	i.charged = bytes
}

// begin starts an attempt of the reflector: one connection, from waiting for
// the cluster to the end of a watch. If an eviction was requested, it first
// forgets everything.
func (i *informer) begin(ctx context.Context) (_ context.Context, forgot bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()

	if forgot = i.evicted; forgot {
		i.forgetLocked()
	}
	i.evicted, i.attempt = false, cancel

	return ctx, forgot
}

// end ends the attempt. It reports whether the server accepted a stream in it
// that proved to be none.
func (i *informer) end() (misled bool) {
	i.mu.Lock()
	cancel := i.attempt
	i.attempt = nil
	misled = i.endTrialLocked()
	i.detachLocked()
	i.mu.Unlock()

	cancel(errAttemptOver)

	return misled
}

// evict makes the reflector abandon its attempt and forget everything. The
// reflector does so itself: if another goroutine did, a running attempt could
// fill the store again behind its back.
func (i *informer) evict() {
	i.mu.Lock()
	i.evicted = true
	cancel := i.attempt
	i.mu.Unlock()

	if cancel != nil {
		cancel(errEvicted)
	}
	i.kick()
}

func (i *informer) forgetLocked() {
	i.forgetSeenLocked()
	old := i.store
	i.store, i.staged = old.emptyCopy(), nil
	i.refused = refusals{}
	for o := range old.all() {
		i.emitLocked(evicted(o))
	}
	for _, t := range i.taps {
		t.disinheritLocked()
	}
	i.chargeLocked()
	i.synced, i.unserved, i.rv, i.partial, i.epoch, i.doubt = false, false, "", "", "", nil
	i.listed.Store(nil)
	i.attachLocked()
	i.setStateLocked(StateStarting)
	i.broadcastLocked()
	for _, f := range i.forgotten {
		f()
	}
	i.forgotten = nil
}

func (i *informer) syncedLocked(rv string) {
	i.chargeLocked()
	first := !i.synced
	i.synced, i.unserved, i.rv, i.partial, i.doubt = true, false, rv, "", nil
	i.taken++
	i.attachLocked()
	i.setStateLocked(StateSynced)
	if first {
		for _, t := range i.taps {
			t.catchUpLocked(i.store)
		}
	}
	i.broadcastLocked()
}

// advance records the resourceVersion that the stream has reached; on reports
// whether it is a new one. A stream on trial that repeats a version does not
// count as a stream yet.
func (i *informer) advance(rv string, on bool) {
	i.mu.Lock()
	if i.trial != nil && !on {
		i.mu.Unlock()
		return
	}
	ask := i.advanceLocked(rv)
	i.mu.Unlock()

	i.advanced(ask)
}

// advanceLocked must be followed by advanced, without the lock.
func (i *informer) advanceLocked(rv string) (ask bool) {
	i.rv, i.polling = rv, false
	i.setStateLocked(StateSynced)
	i.attachLocked()
	ask = i.settleSeenLocked()
	i.broadcastLocked()

	return ask
}

func (i *informer) advanced(ask bool) {
	if ask {
		i.pool.auditSeen(i)
	}
	i.pool.takeOver(i)
}

// note records an error that does not end the attempt.
func (i *informer) note(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lastErr = err
	i.broadcastLocked()
}

// fail records a failed attempt, and reports whether its error differs from the
// last one.
func (i *informer) fail(err error) (news bool) {
	i.mu.Lock()
	defer i.mu.Unlock()

	if i.state == StateDying {
		return false
	}
	news = i.lastErr == nil || i.lastErr.Error() != err.Error()
	i.suspectLocked(err)
	if i.synced {
		i.setStateLocked(StateDegraded)
	}
	i.broadcastLocked()

	return news
}
