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

// State is where an informer is in its life.
type State string

// An informer goes from starting to synced, back and forth between synced and
// degraded, and ends as gone. It is dying from when the pool has let go of it
// to when its goroutine has ended; nobody is given a dying informer.
const (
	StateStarting State = "Starting"
	StateSynced   State = "Synced"
	StateDegraded State = "Degraded"
	StateDying    State = "Dying"
	StateGone     State = "Gone"
)

// entry is one informer: its store, its state and who listens to it. Its feed
// alone writes objects.
type entry struct {
	key    Key
	pool   *Pool
	ctx    context.Context //nolint:containedctx // the informer's life, which no call's ctx is a part of
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the feed has ended
	wake   chan struct{} // one slot: cuts a wait between attempts short
	anew   atomic.Bool   // set before wake: the next wait is as short as the first

	// leases, heirs and linger are protected by the pool's lock, since they
	// decide whether the entry stays in its map. heirs are leases that are to
	// be served by this entry once it has synced.
	leases map[*Lease]struct{}
	heirs  map[*Lease]struct{}
	linger *time.Timer
	// moving counts heirs, and leases that are to be served by another entry: a
	// hint, kept so that the pool's lock is not taken for each event.
	moving atomic.Int32
	// auditAt is when it is to be audited; zero while it is. auditBy is its
	// regular appointment, auditThen one that was asked for while it was
	// audited, and auditFailures counts audits in a row that failed. The pool's
	// lock protects them.
	auditAt, auditBy, auditThen time.Time
	auditFailures               int

	mu sync.RWMutex // protects the fields below

	standing

	trial     *trial // of the stream at hand; nil if it is followed, or there is none
	misled    bool   // a stream was accepted and was none, since one was followed
	charged   int64  // what of the cluster's budget is the informer's
	store     *store
	staged    *store // what a list under way has brought that store lacks
	synced    bool
	epoch     Epoch
	history   int // number of the resource's own history in the epoch
	rv        string
	partial   string // highest version that lists that broke have brought since the last whole one
	taps      []*tap
	polling   bool                    // the resource can be listed, not watched
	unserved  bool                    // the resource was proven not to exist any more
	taken     int                     // lists that were taken over
	touched   *touched                // what the stream brought since an audit began; nil without one
	finding   error                   // of an audit, for the feed
	doubt     error                   // the store is known to be of another history than the server's
	evicted   bool                    // the feed is to forget everything before its next attempt
	forgotten []func()                // called, with the lock held, when it has
	attempt   context.CancelCauseFunc // ends what the feed is at; nil between attempts
	changed   chan struct{}           // made by a waiter; closed and forgotten on the next change

	refused refusals                       // objects whose state is not known
	seen    map[types.NamespacedName]*seen // by users, in other ways; not in the store yet
	// seenBytes is what that takes.
	seenBytes int64
	looks     int // lists and audits that have begun
	// seenAudit is when an audit was last asked for because of what was seen.
	seenAudit time.Time

	account *account // of the cluster

	lastEvent, lastProof atomic.Int64          // instants of the pool's clock
	scope                atomic.Int32          // a scope: that of the store's objects
	listed               atomic.Pointer[Epoch] // the epoch of what reads return; nil while they return nothing
	counters             counters
}

// newEntry returns a new informer. The pool's lock is held.
func newEntry(p *Pool, key Key) *entry {
	ctx, cancel := context.WithCancelCause(p.ctx)
	account := p.accountLocked(key.Cluster)
	return &entry{
		key: key, pool: p, ctx: ctx, cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1),
		account: account, counters: newCounters(account), leases: map[*Lease]struct{}{}, heirs: map[*Lease]struct{}{}, standing: standing{state: StateStarting, since: time.Now()}, store: newStore(),
	}
}

// run is the informer's goroutine.
func (e *entry) run() { e.feed(&feed{entry: e, options: &e.pool.options}) }

// feed runs a feed to its end, on another goroutine if a function of the user
// ends this one.
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

// stop ends the informer. It does not wait; done does.
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

// broadcastLocked wakes everybody who waits for the entry to change.
func (e *entry) broadcastLocked() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// await returns when check does not answer errWait any more, with its answer,
// or when ctx or the lease ends. check is called with the lock of the entry
// that serves the lease.
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

// kick makes a feed that waits between attempts try at once, and begin anew
// with its waits.
func (e *entry) kick() {
	e.anew.Store(true)
	e.nudge()
}

// nudge makes a feed that waits between attempts try at once.
func (e *entry) nudge() {
	select {
	case e.wake <- struct{}{}:
	default: // it is going to wake anyhow
	}
}

// proof notes that the server gave a sign of life.
func (e *entry) proof() { e.lastProof.Store(e.pool.clock.now()) }

// sizeLocked is about what the informer takes in memory, but for a list under
// way.
func (e *entry) sizeLocked() int64 { return e.store.size() + e.seenBytes }

// chargeLocked brings the cluster's account up to date, and what the store says
// of the kind's scope.
func (e *entry) chargeLocked() {
	e.scope.Store(int32(e.store.scope()))
	bytes := e.store.size()
	if e.staged != nil {
		bytes += e.staged.bytes // what its objects share counts in the store
	}
	e.account.bytes.Add(bytes - e.charged)
	e.charged = bytes
}

// begin starts an attempt of the feed: one connection, from waiting for the
// cluster to the end of a watch. It forgets everything first if that was asked
// for.
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
// that was none.
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

// evict makes the feed give up what it is at and forget everything. The feed
// does it itself, since an attempt under way could fill the store again behind
// the back of anybody else.
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

// advance notes the resourceVersion that the stream has reached, and whether it
// had not reached it before. A stream on trial that shows what has been shown
// is none yet.
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

// advanceLocked is followed by advanced, without the lock.
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

// note shows an error that does not end the attempt.
func (e *entry) note(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastErr = err
	e.broadcastLocked()
}

// fail notes a failed attempt, and reports whether that is news.
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
