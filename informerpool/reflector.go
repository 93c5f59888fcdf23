// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool/internal/backoff"
	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
)

// reflector keeps one informer's store equal to the server: it lists, watches
// and resumes on one goroutine. It is not built on client-go's Reflector
// because a Reflector cannot be stopped while it waits for a server that
// refuses connections, starts over when a connection breaks, and never notices
// a stream that stalls or a history that was rolled back.
//
//	       ┌────────────── backoff ◄──────────────────────────────┐
//	       ▼                                                       │ conclude
//	attemptOnce ──► connect ──► relist ──► watch ──► follow ───────┤
//	                   │  streamed, or in pages  ▲                 │
//	                   └──────── at.resume ──────┘                 │
//	                            relist ──► listen, without versions┘
//
// INVARIANT: only the reflector's goroutine uses its fields.
type reflector struct {
	informer *informer

	options    *Options
	backoff    backoff.Backoff
	refusal    backoff.Refusal
	at         cursor
	kind       kindCheck
	listing    *listing // the list under way; nil between lists
	absent     absence  // what lists reported about the resource itself
	failures   failures
	log        interruptions
	rollback   backoff.Relapse // the history went back
	beginnings backoff.Relapse // a stream began with the objects that exist, and a list was due
	bell       bell
	suspected  time.Time // when a stream made a list due by an object without a version
	server     server
	session    session
	ended      time.Time // when the last attempt ended, or else when this reflector began
	restores   int       // attempts to continue a kept state
}

func newReflector(i *informer, b backoff.Backoff) reflector {
	return reflector{
		informer: i,
		options:  &i.pool.options,
		backoff:  b,
		refusal:  backoff.Refusal{Refused: &i.cluster.refused},
		server:   server{informer: i},
		kind:     kindCheck{informer: i},
		log:      interruptions{informer: i},
		bell:     bell{informer: i},
		ended:    time.Now(),
	}
}

// session is what the current attempt has to know about the stream.
type session struct {
	relisted bool // the attempt began with a list
	behind   bool // a list has to follow, since the stream began with some of the objects that exist
	quieted  bool // the previous attempt ended for the sake of proof, not because of a fault, or there is none
	proven   bool // the stream of another informer has just shown that the server's history reaches at.resume
	listens  bool // it has waited for the next list of a resource without versions, which is due after pause
	pause    time.Duration
	lasts    time.Duration // how long the server was asked to keep the watch
}

// run makes one attempt after another until ctx ends. The goroutines of idle
// informers block below it, in the follow at the end of an attempt, so the
// stack below is kept shallow: a fleet has 100,000 of these stacks.
//
// A source that ends its goroutine ends this one, in the middle of an attempt.
// The attempt has then failed, and run is called again.
func (r *reflector) run(ctx context.Context) {
	for ctx.Err() == nil {
		if r.backoff.Wait > 0 && r.informer.wake.Sleep(ctx, r.backoff.Wait) {
			r.backoff.Reset()
		}
		if ctx.Err() == nil {
			r.attemptOnce(ctx)
		}
	}
}

// attemptOnce makes one attempt: it waits for the cluster, lists or resumes,
// and follows the changes until the stream ends.
func (r *reflector) attemptOnce(ctx context.Context) {
	ctx, forgot := r.informer.progress.begin(ctx)
	if forgot {
		r.forget()
	}
	r.session.relisted, r.session.listens, r.server.answers = false, false, false
	r.heedAudit(r.informer.progress.takeFinding())
	began := time.Now()
	r.server.sent = began
	err := errUnreturned
	defer func() { r.backoff.Wait = r.conclude(ctx, began, err) }()

	var s *stream
	s, err = r.connect(ctx)
	began = time.Now()
	if err == nil {
		r.permitted()
		err = errUnreturned
		defer s.close()
		if err = r.follow(ctx, s); err == nil && time.Since(began) < backoff.Healthy {
			err = r.endedAt(r.at.resume)
		}
	}
}

// forget makes r a new reflector, which continues no kept state. Inlined, it
// would add a whole reflector to the frame below which idle informers block.
//
//go:noinline
func (r *reflector) forget() {
	r.refusal.End()
	*r = newReflector(r.informer, r.backoff)
	r.restores = maxRestores
	r.informer.published.definition.Store(nil)
}

// heedAudit acts on the finding of an audit.
func (r *reflector) heedAudit(found error) {
	if found != nil {
		r.informer.pool.kept.drop(r.informer.key, found)
	}
	elsewhere, is := errors.AsType[*elsewhereError](found)
	switch {
	case is:
		r.at.replaces(elsewhere.over)
		r.backoff.Reset()
		r.informer.progress.fail(found)
	case errors.Is(found, ErrHistory):
		_ = r.checkHistory(found)
		r.informer.progress.fail(found)
	case found != nil:
		r.at.distrust = found
		r.informer.progress.note(found)
	}
}

// endedAt returns why a watch that ended soon could not last, or nil.
func (r *reflector) endedAt(rv string) error {
	switch t := r.informer.relation().trial; {
	case r.session.relisted && ordering.Opaque(rv):
		return r.untaken(io.ErrUnexpectedEOF)
	case t != nil && t.settle != nil: // one stream after another has ended so
		return fmt.Errorf("%s: %w: the server ends each as soon as it has begun", r.informer.key, ErrDetached)
	}
	return nil
}

// conclude records how an attempt ended, and returns the wait before the next
// one. A nil error is the regular end of a watch.
func (r *reflector) conclude(ctx context.Context, began time.Time, err error) time.Duration {
	cause := context.Cause(ctx)
	r.ended = time.Now()
	if !apierrors.IsTooManyRequests(err) { // a busy server is asked no more than necessary
		r.informer.testimony.ended(r.server.sent)
	}
	quieted := r.session.quieted
	r.session.quieted, r.session.proven = false, false
	misled := r.informer.progress.end()
	r.server.repeats = r.server.repeats || r.at.opening.repeated
	r.session.behind = r.at.end(r.informer.mu.store.Count)
	if time.Since(began) >= settling {
		r.followed()
	}
	if errors.Is(cause, errAudited) || errors.Is(cause, errForbidden) {
		return 0
	}
	if errors.Is(cause, errEvicted) {
		r.backoff.Reset()
		return 0
	}
	err = r.checkHistory(err)
	if r.server.recounts() && (err != nil || time.Since(began) < r.session.lasts) {
		r.at.relist()
	}
	if misled && !r.session.relisted && r.failures.refused.lists() {
		r.at.relist() // treat it as if each had been refused
	}
	r.failures.away = r.failures.away || unavailable(err)
	if !r.absent.proven && !apierrors.IsNotFound(err) {
		r.absent = absence{} // proofs have to come in a row
	}
	if cause != nil {
		return 0 // the informer has ended
	}

	switch {
	case errors.Is(err, errPolled):
		r.polled()
		if r.session.listens {
			return r.session.pause
		}
		return jitter(r.options.PollInterval)
	case errors.Is(err, errUnversioned):
		r.at.relist()
		return r.bell.rung()
	case errors.Is(err, errQuiet):
		r.session.quieted = true
		return 0 // a new watch gives the proof that the silent one did not
	case errors.Is(err, errBegun):
		return r.relapsed(nil) // a list is due
	case quieted && !r.session.relisted && forgotten(err):
		return 0 // nothing broke: without bookmarks, compaction overtakes an idle watch
	}

	if err != nil {
		r.failed(err)
		r.informer.pool.burst.grows()
	}
	if errors.Is(err, ErrEpochChanged) {
		return 0 // Ready knows the new epoch, or waits for it
	}
	wait := max(r.backoff.After(time.Since(began), err), r.relapsed(err))
	if apierrors.IsForbidden(err) {
		return r.refusal.After(r.options.MaxBackoff)
	}
	if soon, pending := r.absent.due(); pending && apierrors.IsNotFound(err) {
		wait = min(wait, soon) // deletes wait for it
	}

	return wait
}

// relapsed returns the least wait after an attempt, successful or not, that
// caused a list and may do so again and again.
func (r *reflector) relapsed(err error) (wait time.Duration) {
	if r.session.behind {
		wait = r.beginnings.After(time.Now(), r.options.MaxBackoff)
	}
	if errors.Is(err, ErrHistory) {
		wait = max(wait, r.rollback.After(time.Now(), maxUnresumed))
	}
	return wait
}

// permitted records that the server has accepted a watch, or a poll. If it had
// refused the informer, the other informers of the cluster that are refused try
// at once: rights to several kinds are often granted together.
func (r *reflector) permitted() {
	if r.refusal.Lift() {
		r.informer.pool.nudgeRefused(r.informer)
	}
	r.server.learnDefinition()
	if r.session.relisted {
		r.refusal.End() // a stream that was merely accepted may report a refusal
	}
}

// polled records that a list has succeeded, and that no watch shows what
// changes from now on.
func (r *reflector) polled() {
	r.permitted()
	r.informer.progress.polled()
	r.backoff.Reset()
}

// followed records that a stream was followed.
func (r *reflector) followed() {
	r.failures.followed()
	r.log.last = ""
	r.refusal.End()
}

// failed records a failed attempt, and reports it to the log and to
// Options.OnFailed.
func (r *reflector) failed(err error) {
	if r.informer.progress.fail(err) {
		r.log.add(err)
	}
	r.informer.pool.forsake(r.informer, err, r.server.answers)
	if r.options.OnFailed != nil {
		r.informer.pool.calls.Tell("OnFailed", &r.informer.key, func() { r.options.OnFailed(r.informer.key, err) })
	}
}

// checkHistory makes the next attempt a list if an error shows that resuming is
// not possible any more.
func (r *reflector) checkHistory(err error) error {
	_, list := errors.AsType[listError](err)
	switch {
	case err == nil:
	case errors.Is(err, ErrHistory):
		over := r.informer.relation().era()
		r.at.replaces(over)
		r.backoff.Reset()
		r.informer.doubtState() // before what is kept of it is dropped
		r.rolledBack(err, over)
	case errors.Is(err, ErrEpochChanged):
		r.at.relist() // also if the epoch comes back: only a list ends the doubt
	case errors.Is(err, ErrKind):
		r.at.relist() // the rest of the response cannot be trusted either
		r.kind.forget()
	case list: // the next attempt lists anyhow, or resumes where it can
	case errors.Is(err, ErrBudget):
		// A watch would bring the same objects in the same order, including
		// those that have been deleted meanwhile, and so never get past them.
		r.at.relist()
	case forgotten(err):
		r.at.relist()
		if !r.session.relisted { // a server that does so right after a list must not be sent one list after the other
			r.backoff.Reset()
		}
	case apierrors.IsBadRequest(err), apierrors.IsInvalid(err),
		r.failures.failsResuming(err), r.failures.refusesResuming(err):
		r.at.relist() // the server may never accept what it refuses now
	case apierrors.IsNotFound(err):
		r.at.relist() // a list shows whether the resource itself is gone
	}

	return err
}

// rolledBack reports that the server's history is not the one that the store
// showed.
func (r *reflector) rolledBack(cause error, over era) {
	r.informer.siblings.distrust(r.informer, over, cause)
	r.informer.siblings.dropKept(r.informer, cause)
	r.informer.count(countRollbacks)
	log := r.log.loud("another history: " + cause.Error())
	if !r.log.first("another history: " + cause.Error()) {
		log = r.options.Logger.V(1)
	}
	log.Info("History of the server is another one",
		"informer", r.informer.key.String(), "error", cause.Error())
	if r.options.OnRollback != nil {
		r.informer.pool.calls.Tell("OnRollback", &r.informer.key, func() { r.options.OnRollback(r.informer.key) })
	}
}

// forgotten reports whether an error indicates that the server no longer knows
// the version to resume at.
func forgotten(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }
