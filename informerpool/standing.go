// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
)

// settling is how long a stream that has carried nothing has to last to count
// as followed. A server that owes changes, or refuses the version by a 410 in
// the stream, sends them at once; a stream of a resource that does not change
// may carry nothing for hours.
const settling = 5 * time.Second

// granting is the same for the first stream after a refusal: until it has shown
// something, or was silent for that long, the refusal stands. A stream that
// begins with a 410 has not brought the store up to date, and live reads may
// have shown a newer state.
const granting = 100 * time.Millisecond

// trial is a stream that was accepted and has not proved itself yet: it has
// carried nothing new, and is younger than settling. If every accepted stream
// counted, a server or proxy that ends them all at once would keep an informer
// followed for ever, and the changes it misses would go unnoticed.
//
// The first stream after an interruption is trusted during its trial, since
// nearly all of them last: cached reads are available at once. If it ends
// early, the informer's standing reverts. From then on no stream is trusted
// before it has shown something.
type trial struct {
	before   standing
	accepted time.Time
	settle   *time.Timer // nil if the stream is trusted
}

// pending reports whether a stream is on trial and may still prove to be none.
func (t *trial) pending() bool {
	return t != nil && (t.settle != nil || time.Since(t.accepted) < settling)
}

// trust is what the informer's relation to its server says about the objects.
// informer.mu protects it.
type trust struct {
	standing

	trial   *trial // of the current stream; nil if it is followed, or there is none
	misled  bool   // a stream was accepted but proved to be none, since one was last followed
	polling bool   // the resource can be listed, not watched
	doubt   error  // the store is known to be of another history than the server's
}

// standing is the relation of an informer to its server.
type standing struct {
	state    State
	since    time.Time
	verdict  verdict   // what the server has said of the informer's requests; lifted once it accepts one
	lastErr  error     // what interrupted it; nil once it makes progress
	detached time.Time // since when no live watch is followed; zero while one is
	lastSign time.Time // the server's last sign of life before that
}

// fault returns what keeps the informer from its server: what is known to be
// wrong with the store, if anything, or else what the last attempt failed with.
// It quotes the latter without wrapping it: an error that was both would be
// taken for either.
func (t *trust) fault() error {
	stands := cmp.Or(t.doubt, t.verdict.stands())
	if stands == nil || t.lastErr == nil || errors.Is(t.lastErr, stands) {
		return t.lastErr
	}
	return fmt.Errorf("%w; the last attempt failed: %s", stands, t.lastErr.Error())
}

// setState changes the state.
func (s *standing) setState(to State) {
	if s.state != to {
		s.state, s.since = to, time.Now()
	}
}

// follows reports whether the informer is synced and follows its server.
func (s *standing) follows() bool { return s.state == StateSynced && s.detached.IsZero() }

// detach records that no live watch is followed from now on; lastSign is the
// server's last sign of life. A watch that has carried nothing for as long as
// the stall time-out may have been dead since then. Responses from now on, such
// as refusals, bring the store no nearer to the server's state.
func (t *trust) detach(lastSign time.Time, stall time.Duration) {
	if !t.detached.IsZero() {
		return
	}
	t.detached, t.lastSign = time.Now(), lastSign
	if t.detached.Sub(lastSign) >= stall {
		t.detached = lastSign
	}
}

// attach records that a live watch is followed, or that a list or a poll
// succeeded: earlier faults are over.
func (t *trust) attach() {
	if t.trial != nil && t.trial.settle != nil {
		t.trial.settle.Stop()
	}
	t.trial, t.misled = nil, false
	t.detached, t.verdict, t.lastErr = time.Time{}, verdict{}, nil
}

// newTrial returns the trial of a stream that was accepted. If the stream is
// not trusted meanwhile, settled is called once it has lasted.
func (t *trust) newTrial(settled func(*trial)) *trial {
	of := &trial{before: t.standing, accepted: time.Now()}
	switch {
	case t.misled:
		of.settle = time.AfterFunc(settling, func() { settled(of) })
	case t.verdict.stands() != nil:
		of.settle = time.AfterFunc(granting, func() { settled(of) })
	}
	return of
}

// suspect records what a failed attempt reveals about the store.
func (t *trust) suspect(err error) {
	t.lastErr = err
	t.verdict = t.verdict.after(err)
	if errors.Is(err, ErrHistory) || errors.Is(err, ErrEpochChanged) {
		t.doubt = err
	}
}

// endTrial is called when an attempt ends. It reports whether a stream was
// still on trial: that stream does not count.
func (t *trust) endTrial() (misled bool) {
	trial := t.trial
	t.trial = nil
	switch {
	case trial == nil:
		return false
	case trial.settle != nil:
		trial.settle.Stop()
		return true
	case time.Since(trial.accepted) >= settling:
		return false
	}

	t.misled = true
	if t.state == StateSynced { // it may be dying
		t.standing = trial.before
	}

	return true
}

// era is one history of a resource.
type era struct {
	epoch  Epoch
	number int
}

// position is the Position as the reflector writes it. informer.mu protects it.
type position struct {
	epoch   Epoch
	history int // number of the resource's own history in the epoch
	rv      string
	partial string      // highest version that broken lists have brought since the last complete one
	taken   int         // lists that were committed
	listed  time.Time   // when the last complete list was made
	defined *definition // of the resource, no later than that list; nil if it is not known
	vague   bool        // the informer has followed a stream without a version
	dubious bool        // something was found that only the next complete list settles

	unversioned bool // the resource has no versions
}

// era returns the history that the store shows.
func (p position) era() era { return era{p.epoch, p.history} }

// shownAt returns the highest version that reads may return.
func (p *position) shownAt() string {
	if ordering.Behind(p.rv, p.partial) {
		return p.partial
	}
	return p.rv
}

// relation is what an informer shows, and how that relates to its server.
type relation struct {
	trust
	position

	synced bool
}

// certain reports whether reads are served, and nothing has been found that
// contradicts the history that they show.
func (r relation) certain() bool { return r.synced && r.doubt == nil }
