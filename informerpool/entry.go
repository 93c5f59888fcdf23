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

	// leases and linger are protected by the pool's lock, since they decide whether the entry stays in its map.
	leases map[*Lease]struct{}
	linger *time.Timer

	mu        sync.RWMutex // protects the fields below
	state     State
	since     time.Time
	charged   int64 // what of the cluster's budget is the informer's
	store     *store
	next      *store // filled while a new epoch is listed, then put in the place of store
	synced    bool
	epoch     Epoch
	rv        string
	cause     error // why waiting does not help; nil once an attempt got further
	lastErr   error
	taps      []*tap
	evicted   bool                    // the feed is to forget everything before its next attempt
	forgotten []func()                // called, with the lock held, when it has
	attempt   context.CancelCauseFunc // ends what the feed is at; nil between attempts
	changed   chan struct{}           // made by a waiter; closed and forgotten on the next change

	account *account // of the cluster

	lastEvent, lastProof atomic.Int64 // Unix nanoseconds
	counters             counters
}

// newEntry returns a new informer. The pool's lock is held.
func newEntry(p *Pool, key Key) *entry {
	ctx, cancel := context.WithCancelCause(p.ctx)
	account := p.accountLocked(key.Cluster)
	return &entry{
		key: key, pool: p, ctx: ctx, cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1),
		account: account, counters: newCounters(account), leases: map[*Lease]struct{}{}, state: StateStarting, since: time.Now(), store: newStore(),
	}
}

// run is the informer's goroutine.
func (e *entry) run() {
	defer close(e.done)
	(&feed{entry: e, options: &e.pool.options}).run(e.ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setStateLocked(StateGone)
	e.store, e.next, e.taps, e.synced = newStore(), nil, nil, false
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

// await returns when check does not answer errWait any more, with what it answered, or when ctx or the lease ends.
func (e *entry) await(ctx context.Context, l *Lease, check func() error) error {
	for {
		if err := l.gone(); err != nil {
			return fmt.Errorf("%s: %w", l.key, err)
		}
		e.mu.Lock()
		err := check()
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

// kick makes a feed that waits between attempts try at once.
func (e *entry) kick() {
	select {
	case e.wake <- struct{}{}:
	default: // it is going to wake anyhow
	}
}

// proof notes that the server gave a sign of life.
func (e *entry) proof() { e.lastProof.Store(time.Now().UnixNano()) }

// chargeLocked brings the cluster's account up to date.
func (e *entry) chargeLocked() {
	bytes := e.store.bytes
	if e.next != nil {
		bytes += e.next.bytes
	}
	e.account.bytes.Add(bytes - e.charged)
	e.charged = bytes
}

// marks are the objects seen in a re-sync; nil where the store was empty at its start, so that all in it are.
type marks map[*Object]struct{}

// put stores a state of an object unless it is older than or the same as what is there, and tells the taps.
func (e *entry) put(o *Object, seen marks) {
	values := e.lockWith(e.store, o) // only the feed replaces e.store, and this is the feed's goroutine
	defer e.mu.Unlock()
	old := e.store.get(o.GetNamespace(), o.GetName())
	if old != nil && !newer(o, old) {
		if seen != nil {
			seen[old] = struct{}{}
		}
		return
	}
	e.store.put(old, o, values)
	e.chargeLocked()
	if seen != nil {
		seen[o] = struct{}{}
	}
	e.emitLocked(change{old: old, new: o})
}

// remove takes an object out of the store; final is the state it had at the end.
func (e *entry) remove(final *Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.store.get(final.GetNamespace(), final.GetName())
	if old == nil || older(final, old) {
		return
	}
	e.store.remove(old)
	e.chargeLocked()
	e.emitLocked(change{old: old, final: final})
}

// putNext and removeNext are put and remove on the store of the epoch that is being listed. Nobody is told before it is whole.
func (e *entry) putNext(o *Object) {
	values := e.lockWith(e.next, o)
	defer e.mu.Unlock()
	old := e.next.get(o.GetNamespace(), o.GetName())
	if old == nil || newer(o, old) {
		e.next.put(old, o, values)
		e.chargeLocked()
	}
}

func (e *entry) removeNext(final *Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if old := e.next.get(final.GetNamespace(), final.GetName()); old != nil && !older(final, old) {
		e.next.remove(old)
	}
}

// vanish takes all objects away: the resource does not exist any more.
func (e *entry) vanish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range slices.Collect(e.store.all()) {
		e.store.remove(o)
		e.emitLocked(change{old: o, final: o, unknown: true})
	}
	e.chargeLocked()
}

// sweep ends a list: what was not seen in it is gone. The first list makes the store readable.
func (e *entry) sweep(seen marks, rv string, epoch Epoch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if seen != nil {
		for _, o := range slices.Collect(e.store.all()) {
			if _, ok := seen[o]; !ok {
				e.store.remove(o)
				e.emitLocked(change{old: o, final: o, unknown: true})
			}
		}
	}
	e.epoch = epoch
	e.syncedLocked(rv)
}

// swap ends the list of a new epoch: its objects take the place of all old ones at once.
func (e *entry) swap(rv string, epoch Epoch) {
	e.lockComplete()
	defer e.mu.Unlock()
	old := e.store
	e.store, e.next, e.epoch = e.next, nil, epoch
	for o := range old.all() {
		if e.store.get(o.GetNamespace(), o.GetName()) == nil {
			e.emitLocked(change{old: o, final: o, unknown: true})
		}
	}
	for o := range e.store.all() {
		was := old.get(o.GetNamespace(), o.GetName())
		if was == nil || was.GetUID() != o.GetUID() || was.GetResourceVersion() != o.GetResourceVersion() || !was.SameContent(o) {
			e.emitLocked(change{old: was, new: o})
		}
	}
	e.syncedLocked(rv)
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
	e.store, e.next = old.emptyCopy(), nil
	for o := range old.all() {
		e.emitLocked(change{old: o, final: o, unknown: true})
	}
	e.chargeLocked()
	e.synced, e.rv, e.epoch, e.cause, e.lastErr = false, "", "", nil, nil
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
	e.synced, e.rv, e.cause, e.lastErr = true, rv, nil, nil
	e.setStateLocked(StateSynced)
	if first {
		for _, t := range e.taps {
			t.replayLocked(e.store)
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
	defer e.mu.Unlock()
	e.rv = rv
	e.setStateLocked(StateSynced)
	e.cause, e.lastErr = nil, nil
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
	e.lastErr, e.cause = err, nil
	if permanent(err) {
		e.cause = err
	}
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
