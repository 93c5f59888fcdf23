// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"

	"github.com/fleetcache/fleetcache/informerpool/internal/delta"
	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/informerpool/internal/refusals"
)

// progress records in an informer how its reflector fares: its attempts, and
// the streams that it follows.
//
// INVARIANT: only the reflector's goroutine calls its methods, apart from
// settled.
type progress struct{ informer *informer }

// begin starts an attempt of the reflector. If an eviction was requested, it
// first forgets everything.
func (p *progress) begin(ctx context.Context) (_ context.Context, forgot bool) {
	i := p.informer
	ctx, cancel := context.WithCancelCause(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()

	if forgot = i.mu.attempt.evicted; forgot {
		p.forgetLocked()
	}
	i.mu.attempt.evicted, i.mu.attempt.cancel = false, cancel

	return ctx, forgot
}

func (p *progress) forgetLocked() {
	i := p.informer
	i.mu.seen.forget()
	old := i.mu.store
	i.mu.store, i.mu.staged = old.EmptyCopy(), nil
	i.mu.refused = refusals.Set{}
	for o := range old.All() {
		i.emitLocked(delta.Evicted(o))
	}
	for _, ln := range i.mu.listeners {
		ln.disinheritLocked()
	}
	i.chargeLocked()
	i.mu.synced, i.mu.unserved, i.mu.rv, i.mu.partial, i.mu.epoch, i.mu.doubt = false, false, "", "", "", nil
	i.mu.dubious, i.mu.unversioned = false, false
	i.published.listed.Store(nil)
	i.mu.attach()
	i.mu.setState(StateStarting)
	i.changedLocked()
	for _, f := range i.mu.attempt.forgotten {
		f()
	}
	i.mu.attempt.forgotten = nil
}

// takeFinding returns, once, what an audit has found since the last attempt.
func (p *progress) takeFinding() (found error) {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	found, i.mu.attempt.finding = i.mu.attempt.finding, nil
	i.mu.dubious = i.mu.dubious || found != nil
	return found
}

// end ends the attempt. It reports whether the server accepted a stream in it
// that proved to be none.
func (p *progress) end() (misled bool) {
	i := p.informer
	i.mu.Lock()
	cancel := i.mu.attempt.cancel
	i.mu.attempt.cancel = nil
	misled = i.mu.endTrial()
	i.mu.detach(i.pool.clock.At(i.signs.proof.Load()), i.pool.options.StallTimeout)
	i.changedLocked()
	i.mu.Unlock()

	cancel(errAttemptOver)

	return misled
}

// note records an error that does not end the attempt.
func (p *progress) note(err error) {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.lastErr = err
	i.changedLocked()
}

// fail records a failed attempt, and reports whether its error differs from the
// last one.
func (p *progress) fail(err error) (changed bool) {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()

	if i.mu.state == StateDying {
		return false
	}
	changed = i.mu.lastErr == nil || i.mu.lastErr.Error() != err.Error()
	i.mu.suspect(err)
	if i.mu.synced {
		i.mu.setState(StateDegraded)
	}
	i.changedLocked()

	return changed
}

// polled records a successful poll: until the next one is due, the list is as
// good as a watch.
func (p *progress) polled() {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()

	i.mu.polling = true
	i.mu.attach()
	i.unexpireLocked()
	i.changedLocked()
}

// accepted records that the server has accepted a watch from a version.
func (p *progress) accepted(rv string) {
	i := p.informer
	p.step(func() (ask bool) {
		i.mu.vague = i.mu.vague || ordering.Versionless(rv)
		t := i.mu.newTrial(p.settled)
		if t.settle == nil {
			ask = p.advanceLocked(rv)
		}
		i.mu.trial = t
		return ask
	})
}

// settled records that a stream has lasted.
func (p *progress) settled(t *trial) {
	i := p.informer
	p.step(func() bool { return i.mu.trial == t && i.mu.state != StateDying && p.advanceLocked(i.mu.rv) })
}

// advance records the resourceVersion that the stream has reached; on reports
// whether it is a new one. A stream on trial that repeats a version does not
// count as a stream yet.
func (p *progress) advance(rv string, on bool) {
	i := p.informer
	p.step(func() bool { return (i.mu.trial == nil || on) && p.advanceLocked(rv) })
}

// step calls f with the lock. It requests an audit because of seen objects if f
// asks for one.
func (p *progress) step(f func() (ask bool)) {
	i := p.informer
	i.mu.Lock()
	ask := f()
	i.mu.Unlock()

	if ask {
		i.pool.audits.seen(i)
	}
}

// advanceLocked is part of a step.
func (p *progress) advanceLocked(rv string) (ask bool) {
	i := p.informer
	if !ordering.Behind(rv, i.mu.rv) { // as after a list behind the beginning of the stream
		i.mu.rv = rv
	}
	i.mu.polling = false
	i.mu.setState(StateSynced)
	i.mu.attach()
	i.unexpireLocked()
	ask = i.mu.seen.settle()
	i.changedLocked()

	return ask
}
