// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// State is where an informer is in its life.
type State string

// An informer goes from starting to synced, back and forth between synced and degraded, and ends as gone. It is dying
// from when the pool has let go of it to when its goroutine has ended; nobody is given a dying informer.
const (
	StateStarting State = "Starting"
	StateSynced   State = "Synced"
	StateDegraded State = "Degraded"
	StateDying    State = "Dying"
	StateGone     State = "Gone"
)

// entry is one informer: its store, its state and who listens to it. Its feed alone writes objects.
type entry struct {
	key    Key
	pool   *Pool
	ctx    context.Context //nolint:containedctx // the informer's life, which no call's ctx is a part of
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the feed has ended
	wake   chan struct{} // one slot: cuts a wait between attempts short
	anew   atomic.Bool   // set before wake: the next wait is as short as the first

	// leases, heirs and linger are protected by the pool's lock, since they decide
	// whether the entry stays in its map. heirs are leases that are to be served
	// by this entry once it has synced.
	leases map[*Lease]struct{}
	heirs  map[*Lease]struct{}
	linger *time.Timer
	// moving counts heirs, and leases that are to be served by another entry: a
	// hint, kept so that the pool's lock is not taken for each event.
	moving atomic.Int32
	// auditAt is when it is to be audited; zero while it is. auditBy is its regular
	// appointment, auditThen one that was asked for while it was audited, and
	// auditFailures counts audits in a row that failed. The pool's lock protects
	// them.
	auditAt, auditBy, auditThen time.Time
	auditFailures               int

	mu         sync.RWMutex // protects the fields below
	state      State
	since      time.Time
	charged    int64 // what of the cluster's budget is the informer's
	store      *store
	staged     *store // what a list under way has brought that store lacks
	synced     bool
	epoch      Epoch
	history    int // number of the resource's own history in the epoch
	rv         string
	partial    string // highest version that lists that broke have brought since the last whole one
	cause      error  // why waiting does not help; nil once an attempt got further
	lastErr    error
	taps       []*tap
	polling    bool                            // the resource can be listed, not watched
	unserved   bool                            // the resource was proven not to exist any more
	taken      int                             // lists that were taken over
	touched    map[types.NamespacedName]string // the last version the stream brought since an audit began; nil without one
	finding    error                           // of an audit, for the feed
	doubt      error                           // the store is known to be of another history than the server's
	rejections int                             // attempts in a row that were answered with 401
	detached   time.Time                       // since when no live watch is followed; zero while one is
	evicted    bool                            // the feed is to forget everything before its next attempt
	forgotten  []func()                        // called, with the lock held, when it has
	attempt    context.CancelCauseFunc         // ends what the feed is at; nil between attempts
	changed    chan struct{}                   // made by a waiter; closed and forgotten on the next change

	refused refusals                       // objects whose state is not known
	seen    map[types.NamespacedName]*seen // by users, in other ways; not in the store yet
	looks   int                            // lists and audits that have begun
	// seenAudit is when an audit was last asked for because of what was seen.
	seenAudit time.Time

	account *account // of the cluster

	lastEvent, lastProof atomic.Int64 // instants of the pool's clock
	scope                atomic.Int32 // a scope: that of the store's objects
	counters             counters
}

// newEntry returns a new informer. The pool's lock is held.
func newEntry(p *Pool, key Key) *entry {
	ctx, cancel := context.WithCancelCause(p.ctx)
	account := p.accountLocked(key.Cluster)
	return &entry{
		key: key, pool: p, ctx: ctx, cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1),
		account: account, counters: newCounters(account), leases: map[*Lease]struct{}{}, heirs: map[*Lease]struct{}{}, state: StateStarting, since: time.Now(), store: newStore(),
	}
}

// run is the informer's goroutine.
func (e *entry) run() {
	defer close(e.done)
	(&feed{entry: e, options: &e.pool.options}).run(e.ctx)
	e.pool.forgetSource(e.key)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setStateLocked(StateGone)
	e.store, e.staged, e.taps, e.synced = newStore(), nil, nil, false
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

// await returns when check does not answer errWait any more, with its answer, or
// when ctx or the lease ends. check is called with the lock of the entry that
// serves the lease.
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

// kick makes a feed that waits between attempts try at once, and begin anew with
// its waits.
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

// put stores a state of an object unless it is older than or the same as what is there, and tells the taps.
func (e *entry) put(o *Object) {
	values := e.lockWith(one(o)) // only the feed replaces e.store, and this is the feed's goroutine
	defer e.mu.Unlock()
	e.refused.forget(nameOf(o))
	e.touchLocked(o)
	old := e.store.get(o.GetNamespace(), o.GetName())
	if old != nil && !newer(o, old) {
		return
	}
	e.store.put(old, o, values.of(o))
	e.chargeLocked()
	e.emitLocked(change{old: old, new: o})
	e.broughtLocked(o, false)
}

// remove takes an object out of the store; final is the state it had at the end.
func (e *entry) remove(final *Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refused.forget(nameOf(final))
	e.touchLocked(final)
	old := e.store.get(final.GetNamespace(), final.GetName())
	if old == nil {
		e.broughtLocked(final, true)
	}
	if old == nil || older(final, old) {
		return
	}
	e.store.remove(old)
	e.chargeLocked()
	e.emitLocked(change{old: old, final: final})
	e.broughtLocked(final, false)
}

// touchLocked notes a change that a stream brought. The store and the version it
// has reached change in one step, so that an audit finds them in agreement.
func (e *entry) touchLocked(o *Object) {
	e.rv = o.GetResourceVersion()
	if e.touched != nil {
		e.touched[nameOf(o)] = o.GetResourceVersion()
	}
}

// stage keeps an object of a list under way, in place of an earlier state that
// the same list brought.
func (e *entry) stage(earlier, o *Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.staged.put(earlier, o, nil)
	e.chargeLocked()
}

// unstage forgets an object of a list under way.
func (e *entry) unstage(o *Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.staged.remove(o)
	e.chargeLocked()
}

// discard forgets a list under way.
func (e *entry) discard() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.staged != nil {
		for o := range e.staged.all() {
			e.store.shared.Release(o)
		}
	}
	e.staged = nil
	e.chargeLocked()
}

// commit makes a complete list the informer's: what was staged is put, and what
// was not seen is gone. It is one step for readers and handlers. The first list
// makes the store readable.
// What the list refused is there, or may be, and stays as it was last known. It
// reports whether an object that was seen asks for an audit.
func (e *entry) commit(l *listing, rv string, epoch Epoch) (ask bool) {
	values := e.lockWith(e.staged.all())
	defer e.mu.Unlock()
	e.refused = l.refused
	for _, o := range slices.Collect(e.store.all()) {
		_, kept := l.seen[o]
		if kept || e.refused.has(nameOf(o)) || e.staged.get(o.GetNamespace(), o.GetName()) != nil {
			continue
		}
		e.store.remove(o)
		e.emitLocked(change{old: o, final: o, unknown: true})
	}
	e.mergeLocked(values)
	e.epoch, e.history = epoch, l.history
	first := !e.synced
	e.syncedLocked(rv)
	e.missedLocked(l.look, rv, first)
	return e.settleSeenLocked()
}

func (e *entry) mergeLocked(values indexed) {
	for o := range e.staged.all() {
		old := e.store.get(o.GetNamespace(), o.GetName())
		e.store.put(old, o, values.of(o))
		e.store.shared.Release(o) // the hold of the staged one
		e.refused.forget(nameOf(o))
		e.emitLocked(change{old: old, new: o})
	}
	e.staged = nil
}

// vanish takes all objects away: the resource does not exist any more.
func (e *entry) vanish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range slices.Collect(e.store.all()) {
		e.store.remove(o)
		e.emitLocked(change{old: o, final: o, unknown: true})
	}
	e.unserved = true
	e.chargeLocked()
}

// begin starts an attempt of the feed: one connection, from waiting for the cluster to the end of a watch. It forgets
// everything first if that was asked for.
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

// end ends the attempt.
func (e *entry) end() {
	e.mu.Lock()
	cancel := e.attempt
	e.attempt = nil
	e.detachLocked()
	e.mu.Unlock()
	cancel(errAttemptOver)
}

// evict makes the feed give up what it is at and forget everything. The feed does it itself, since an attempt under way
// could fill the store again behind the back of anybody else.
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
	old := e.store
	e.store, e.staged = old.emptyCopy(), nil
	e.refused = refusals{}
	for o := range old.all() {
		e.emitLocked(evicted(o))
	}
	for _, t := range e.taps {
		t.disinheritLocked()
	}
	e.forgetSeenLocked()
	e.chargeLocked()
	e.synced, e.unserved, e.rv, e.partial, e.epoch, e.doubt = false, false, "", "", "", nil
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

// emitLocked tells every tap. Nothing is told before the first list is complete: it is replayed as a whole then, so
// that a handler that reads the store finds what it is told of.
func (e *entry) emitLocked(c change) {
	if !e.synced {
		return
	}
	for _, t := range e.taps {
		t.offer(c)
	}
}

// advance notes the resourceVersion the store has reached.
func (e *entry) advance(rv string) {
	e.mu.Lock()
	e.rv, e.polling = rv, false
	e.setStateLocked(StateSynced)
	e.attachLocked()
	ask := e.settleSeenLocked()
	e.broadcastLocked()
	e.mu.Unlock()
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

// fail notes a failed attempt, and tells whether that is news.
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

// newer tells whether a is a later state than b. Versions that are no numbers are only told apart.
func newer(a, b *Object) bool {
	va, oka := a.Version()
	vb, okb := b.Version()
	if oka && okb {
		return va > vb
	}
	return a.GetResourceVersion() != b.GetResourceVersion()
}

// older tells whether a is an earlier state than b.
func older(a, b *Object) bool {
	va, oka := a.Version()
	vb, okb := b.Version()
	return oka && okb && va < vb
}
