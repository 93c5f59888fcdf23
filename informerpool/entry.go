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

// entry is one informer: its store, its state and its listeners. Only its feed
// writes objects.
type entry struct {
	key    Key
	pool   *Pool
	ctx    context.Context //nolint:containedctx // the informer's lifetime, which is part of no call's ctx
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the feed has ended
	wake   chan struct{} // one slot: cuts a wait between attempts short
	anew   atomic.Bool   // set before wake: the next wait is as short as the first

	// leases, heirs and linger are protected by the pool's lock, since they
	// decide whether the entry stays in the pool's map. heirs are leases that
	// this entry is going to serve once it has synced.
	leases map[*Lease]struct{}
	heirs  map[*Lease]struct{}
	linger *time.Timer
	// moving counts heirs, and leases that another entry is going to serve. It
	// is a hint that avoids taking the pool's lock for each event.
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
	finding   error                   // of an audit, for the feed
	doubt     error                   // the store is known to be of another history than the server's
	evicted   bool                    // the feed is to forget everything before its next attempt
	forgotten []func()                // called, with the lock held, after that
	attempt   context.CancelCauseFunc // ends the feed's attempt; nil between attempts
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
func newEntry(p *Pool, key Key) *entry {
	ctx, cancel := context.WithCancelCause(p.ctx)
	account := p.accountLocked(key.Cluster)
	return &entry{
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
func (e *entry) run() { e.feed(&feed{entry: e, options: &e.pool.options}) }

// feed runs a feed to its end, on another goroutine if a user's function ends
// this one.
func (e *entry) feed(f *feed) {
	ended := false
	defer func() {
		if !ended {
			e.pool.running.Go(func() { e.feed(f) })
		}
	}()
	f.run(e.ctx)
	ended = true
	e.ended()
}

func (e *entry) ended() {
	defer close(e.done)
	e.pool.forgetSource(e.key)
	e.mu.Lock()
	defer e.mu.Unlock()

	e.setStateLocked(StateGone)
	e.store, e.staged, e.taps, e.synced = newStore(), nil, nil, false
	e.listed.Store(nil)
	e.seen = nil
	e.weighSeenLocked(0)
	e.chargeLocked()
	e.broadcastLocked()
}

// stop ends the informer without waiting; done is closed when it has ended.
func (e *entry) stop(cause error) {
	e.mu.Lock()
	if e.state != StateGone {
		e.setStateLocked(StateDying)
	}
	e.broadcastLocked()
	e.mu.Unlock()

	e.cancel(cause)
}

func (e *entry) setStateLocked(s State) {
	if e.state != s {
		e.state, e.since = s, time.Now()
	}
}

// broadcastLocked wakes all goroutines that wait for the entry to change.
func (e *entry) broadcastLocked() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// await calls check until it returns anything but errWait, and returns that
// result. It also returns when ctx or the lease ends. check is called with the
// lock of the entry that serves the lease.
func (l *Lease) await(ctx context.Context, check func(*entry) error) error {
	for {
		if err := l.gone(); err != nil {
			return fmt.Errorf("%s: %w", l.Key(), err)
		}
		e := l.lock().entry
		err := check(e)
		if err != errWait { //nolint:errorlint // an identity, never wrapped
			e.mu.Unlock()
			return err
		}
		if e.changed == nil {
			e.changed = make(chan struct{})
		}
		changed := e.changed
		e.mu.Unlock()

		select {
		case <-changed:
		case <-l.released:
		case <-e.ctx.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// kick makes a feed that waits between attempts try at once, and resets its
// back-off.
func (e *entry) kick() {
	e.anew.Store(true)
	e.nudge()
}

// nudge makes a feed that waits between attempts try at once.
func (e *entry) nudge() {
	select {
	case e.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// proof records a sign of life of the server.
func (e *entry) proof() { e.lastProof.Store(e.pool.clock.now()) }

// sizeLocked returns the approximate memory of the informer, without a list
// under way.
func (e *entry) sizeLocked() int64 { return e.store.size() + e.seenBytes }

// chargeLocked updates the cluster's account and the scope of the store's
// objects.
func (e *entry) chargeLocked() {
	e.scope.Store(int32(e.store.scope()))
	bytes := e.store.size()
	if e.staged != nil {
		bytes += e.staged.bytes // memory that its objects share is counted in the store
	}
	e.account.bytes.Add(bytes - e.charged)
	e.charged = bytes
}

// begin starts an attempt of the feed: one connection, from waiting for the
// cluster to the end of a watch. If an eviction was requested, it first forgets
// everything.
func (e *entry) begin(ctx context.Context) (_ context.Context, forgot bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()

	if forgot = e.evicted; forgot {
		e.forgetLocked()
	}
	e.evicted, e.attempt = false, cancel

	return ctx, forgot
}

// end ends the attempt. It reports whether the server accepted a stream in it
// that proved to be none.
func (e *entry) end() (misled bool) {
	e.mu.Lock()
	cancel := e.attempt
	e.attempt = nil
	misled = e.endTrialLocked()
	e.detachLocked()
	e.mu.Unlock()

	cancel(errAttemptOver)

	return misled
}

// evict makes the feed abandon its attempt and forget everything. The feed does
// so itself: if another goroutine did, a running attempt could fill the store
// again behind its back.
func (e *entry) evict() {
	e.mu.Lock()
	e.evicted = true
	cancel := e.attempt
	e.mu.Unlock()

	if cancel != nil {
		cancel(errEvicted)
	}
	e.kick()
}

func (e *entry) forgetLocked() {
	e.forgetSeenLocked()
	old := e.store
	e.store, e.staged = old.emptyCopy(), nil
	e.refused = refusals{}
	for o := range old.all() {
		e.emitLocked(evicted(o))
	}
	for _, t := range e.taps {
		t.disinheritLocked()
	}
	e.chargeLocked()
	e.synced, e.unserved, e.rv, e.partial, e.epoch, e.doubt = false, false, "", "", "", nil
	e.listed.Store(nil)
	e.attachLocked()
	e.setStateLocked(StateStarting)
	e.broadcastLocked()
	for _, f := range e.forgotten {
		f()
	}
	e.forgotten = nil
}

func (e *entry) syncedLocked(rv string) {
	e.chargeLocked()
	first := !e.synced
	e.synced, e.unserved, e.rv, e.partial, e.doubt = true, false, rv, "", nil
	e.taken++
	e.attachLocked()
	e.setStateLocked(StateSynced)
	if first {
		for _, t := range e.taps {
			t.catchUpLocked(e.store)
		}
	}
	e.broadcastLocked()
}

// advance records the resourceVersion that the stream has reached; on reports
// whether it is a new one. A stream on trial that repeats a version does not
// count as a stream yet.
func (e *entry) advance(rv string, on bool) {
	e.mu.Lock()
	if e.trial != nil && !on {
		e.mu.Unlock()
		return
	}
	ask := e.advanceLocked(rv)
	e.mu.Unlock()

	e.advanced(ask)
}

// advanceLocked must be followed by advanced, without the lock.
func (e *entry) advanceLocked(rv string) (ask bool) {
	e.rv, e.polling = rv, false
	e.setStateLocked(StateSynced)
	e.attachLocked()
	ask = e.settleSeenLocked()
	e.broadcastLocked()

	return ask
}

func (e *entry) advanced(ask bool) {
	if ask {
		e.pool.auditSeen(e)
	}
	e.pool.takeOver(e)
}

// note records an error that does not end the attempt.
func (e *entry) note(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastErr = err
	e.broadcastLocked()
}

// fail records a failed attempt, and reports whether its error differs from the
// last one.
func (e *entry) fail(err error) (news bool) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.state == StateDying {
		return false
	}
	news = e.lastErr == nil || e.lastErr.Error() != err.Error()
	e.suspectLocked(err)
	if e.synced {
		e.setStateLocked(StateDegraded)
	}
	e.broadcastLocked()

	return news
}
