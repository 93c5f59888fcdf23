// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/timetable"
)

const (
	// maxAudits is how many audits of the pool begin at once, and auditPace the
	// time between the starts of two audits. An audit that takes longer than
	// auditHold, for example because its server hangs, does not hold up others.
	maxAudits = 4
	auditPace = 50 * time.Millisecond
	auditHold = time.Second
	// auditSoon is the earliest time at which an audit that is brought forward
	// begins, and auditSpread the longest additional delay: a fleet that
	// reconnects has more urgent requests first.
	auditSoon   = 2 * time.Minute
	auditSpread = 3*time.Minute - 2*auditSilence
	// auditPromptly is the latest start of the audit of an informer whose own
	// server was away, not counting the wait for earlier audits.
	auditPromptly = 5 * time.Second
	// auditAgain is about when an audit that could not be made is tried again.
	// maxFailures is how many regular audits in a row may fail, if there is
	// time for more than one, before the informer lists instead.
	auditAgain  = 5 * time.Minute
	maxFailures = 2
	// auditBusy is how much later a regular audit may be while the server is
	// too busy for lists. It is short, as overloads are.
	auditBusy = 5 * time.Minute
	// auditYield is how long audits wait while lists take all permits.
	auditYield = 5 * time.Second
	// auditTimeout bounds one list of an audit.
	auditTimeout = 5 * time.Minute
)

// errUnaudited indicates that audits fail, so that the informer lists instead.
var errUnaudited = errors.New("audits fail")

// elsewhereError is that the history which an informer shows is over, as another
// informer of the resource has found.
type elsewhereError struct {
	informer Key
	over     era
	found    error
}

func (e *elsewhereError) Error() string {
	return fmt.Sprintf("%s: found by another informer: %s", e.informer, e.found)
}

// Unwrap returns what was found.
func (e *elsewhereError) Unwrap() error { return e.found }

// errEarlier indicates that another informer of the resource shows a later
// history.
var errEarlier = fmt.Errorf("%w: another one was entered", ErrHistory)

// errLacked indicates that the list of another informer of the resource has a
// state that its watch had not brought.
var errLacked = errors.New("another informer lacked an object")

// errUndelivered indicates that a read returned an object which the stream has
// not delivered.
var errUndelivered = errors.New("an object was read that the watch has not delivered")

// margin is the part of the interval reserved for delays between an audit's
// appointment and its end: waits for lists and further tries, one margin each.
func (o *Options) margin() time.Duration { return max(o.AuditInterval/40, 100*time.Millisecond) }

// auditSilence is how long a stream may owe a change that a list has shown.
func (o *Options) auditSilence() time.Duration {
	return min(auditSilence, max(o.AuditInterval/4, time.Second))
}

// auditTimeout bounds one list of an audit.
func (o *Options) auditTimeout() time.Duration {
	return min(auditTimeout, max(o.AuditInterval/40, 10*time.Second))
}

// nextAudit returns how long after a comparison the next one begins, such that
// it ends, and its findings are mended, within the interval. Intervals of a few
// seconds are too short for that, by about a second.
func (o *Options) nextAudit() time.Duration {
	least := o.AuditInterval / 2
	return least + rand.N(max(o.AuditInterval-4*o.margin()-o.auditSilence()-least, 1))
}

// audits is the pool's timetable of audits. It has one timer, whatever the
// number of informers, and no goroutines except those of running audits. The
// pool's lock protects it.
type audits struct {
	due     timetable.Table[*informer]
	timer   *time.Timer
	running int
	last    time.Time // when the last one began
}

// auditPlan is when one informer is to be audited. The pool's lock protects it.
type auditPlan struct {
	next     timetable.Entry[*informer] // not listed while it is being audited
	by       time.Time                  // its regular appointment
	then     time.Time                  // an appointment that was requested during an audit
	failures int                        // audits in a row that failed
}

// AuditSoon brings the audits of a cluster's informers forward: they are
// compared with the server within five minutes. Call it for a cluster that was
// away, or whose server was replaced. It does not wait.
func (p *Pool) AuditSoon(cluster types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()

	c := p.mu.stats[cluster]
	if c == nil || p.options.AuditInterval < 0 {
		return
	}
	for i := range c.informers {
		p.bringForwardLocked(i, soon())
	}
}

// soon returns when an audit begins that is brought forward.
func soon() time.Time { return time.Now().Add(auditSoon + rand.N(auditSpread)) }

// auditBy schedules an informer's audit for a time, unless it is due earlier or
// the informer has left the pool.
func (p *Pool) auditBy(i *informer, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.informers[i.key] == i {
		p.bringForwardLocked(i, at)
	}
}

// bringForwardLocked schedules the informer's audit for a time, unless it is
// due earlier.
func (p *Pool) bringForwardLocked(i *informer, at time.Time) {
	switch {
	case i.audits.next.Listed():
		if at.Before(i.audits.next.At()) {
			p.appointLocked(i, at)
		}
	case i.audits.then.IsZero() || at.Before(i.audits.then):
		i.audits.then = at // the running audit may have compared the state before
	}
}

// auditSeen schedules an immediate audit of an informer that lacks an object
// which was seen elsewhere and which it should have by now: the object was
// deleted unseen, or the informer is of another history. If audits are
// disabled, the informer lists.
func (p *Pool) auditSeen(i *informer) {
	if p.options.AuditInterval < 0 {
		i.doubtful(fmt.Errorf("%s: %w", i.key, errUndelivered))
		return
	}
	p.auditBy(i, time.Now())
}

// auditResumed schedules an audit of an informer that resumes after its server
// was not available. since is when it was last followed.
//
// An aggregated API server that keeps its objects in memory begins a new
// history when it restarts. If that history has reached the informer's version,
// the informer is resumed, and nothing in its stream shows that the objects are
// others. The only hint comes from the kube-apiserver in front of it, which
// reports meanwhile that the server is not available. The resource of a CRD
// cannot be distinguished from an aggregated one, nor is every restart of this
// kind. The informer is therefore audited, which costs little, instead of
// listing.
func (p *Pool) auditResumed(i *informer, since time.Time) {
	if p.options.AuditInterval <= 0 || builtIn(i.key.Resource.Group) {
		return
	}
	at := soon() // as if the whole cluster had been away
	if p.awayAlone(i, since) {
		at = time.Now().Add(rand.N(auditPromptly))
	}
	p.auditBy(i, at)
}

// awayAlone reports whether only the informer's own server was away: an
// informer of a resource of Kubernetes itself has followed its server all the
// time.
func (p *Pool) awayAlone(i *informer, since time.Time) bool {
	for _, other := range p.of(i.key.Cluster) {
		if builtIn(other.key.Resource.Group) && other.followedSince(since) {
			return true
		}
	}
	return false
}

// scheduleAuditLocked gives an informer its regular appointment.
func (p *Pool) scheduleAuditLocked(i *informer) {
	if p.options.AuditInterval <= 0 {
		return
	}
	at := time.Now().Add(p.options.nextAudit())
	i.audits.by, i.audits.failures = at, 0
	p.appointLocked(i, at)
}

// auditLikeLocked schedules the audit of an informer that continues another one
// for when that of the other one is due: nothing is compared later because of
// it.
func (p *Pool) auditLikeLocked(i, other *informer) {
	if p.options.AuditInterval <= 0 {
		return
	}
	at := time.Now() // it is being audited
	if next := &other.audits.next; next.Listed() {
		at = next.At()
	}
	i.audits.by = other.audits.by
	p.bringForwardLocked(i, at)
}

// appointLocked sets when an informer is audited next, if that was not requested
// for an earlier time while it was being audited.
func (p *Pool) appointLocked(i *informer, at time.Time) {
	if then := i.audits.then; !then.IsZero() && then.Before(at) {
		at = then
	}
	i.audits.then = time.Time{}
	i.audits.next.Value = i
	p.mu.audits.due.Set(&i.audits.next, at)
	if p.mu.audits.due.First() == &i.audits.next {
		p.wakeAuditsLocked()
	}
}

// wakeAuditsLocked sets the timer to the next appointment.
func (p *Pool) wakeAuditsLocked() {
	first := p.mu.audits.due.First()
	if first == nil || p.mu.closed || p.mu.audits.running >= maxAudits {
		p.mu.audits.timer.Stop()
		return
	}
	at := first.At()
	if paced := p.mu.audits.last.Add(auditPace); at.Before(paced) {
		at = paced
	}
	p.mu.audits.timer.Reset(time.Until(at))
}

// auditNext runs the audit that is due. A list never waits for an audit: audits
// hold no permit, and wait a while for permits to be free, and for the cluster
// to have room.
func (p *Pool) auditNext() {
	p.mu.Lock()
	defer p.mu.Unlock()

	now := time.Now()
	var due *timetable.Entry[*informer]
	if !p.mu.closed && p.mu.audits.running < maxAudits {
		due = p.mu.audits.due.PopDue(now)
	}
	if due == nil {
		p.wakeAuditsLocked() // the timer fired while it was being reset
		return
	}
	i := due.Value
	busy := p.lists.Waiting() || i.cluster.width.Narrow()
	if margin := p.options.margin(); busy && now.Before(i.audits.by.Add(margin)) {
		p.appointLocked(i, now.Add(min(auditYield, margin/2)+rand.N(min(auditYield, margin/2))))
		p.wakeAuditsLocked()
		return
	}
	p.mu.audits.last = now
	p.mu.audits.running++
	p.running.Go(func() { p.runAudit(i) }) // under the lock and after the check of closed, as for informers
	p.wakeAuditsLocked()
}

// runAudit audits one informer and schedules its next audit.
func (p *Pool) runAudit(i *informer) {
	release := sync.OnceFunc(p.auditDone)
	hold := time.AfterFunc(auditHold, release)
	err := (&audit{informer: i}).run(i.ctx)
	hold.Stop()
	failed := false
	switch {
	case err == nil:
		i.count(countAudits)
	case errors.Is(err, ErrHistory):
		i.count(countAuditDifferences)
		i.distrust(err)
	case errors.Is(err, errUnsettled), errors.Is(err, ErrEpochChanged), i.ctx.Err() != nil:
	default:
		failed = true
		i.count(countAuditFailures)
		p.options.Logger.V(1).Info("Audit failed", "informer", i.key.String(), "error", err.Error())
	}

	if p.audited(i, err, failed) {
		i.doubtful(fmt.Errorf("%s: %w: %w", i.key, errUnaudited, err))
	}
	release()
}

// distrustSiblings makes the other informers of an informer's resource list
// that show the history that the informer has found to be over. Their audits
// may not see it: an object can have got the version of its undone state again.
func (p *Pool) distrustSiblings(i *informer, over era, found error) {
	for _, other := range p.siblings(i) {
		if other.follows(over) {
			other.distrust(&elsewhereError{other.key, over, found})
		}
	}
}

// relistEarlier makes those informers list that show an earlier history than the
// newest one after a list of i: all of them if that list has entered it, and
// otherwise i, whose list may have ended while another one entered it. Who shows
// an earlier history answers no reads, and may not find that out by itself.
func (p *Pool) relistEarlier(i *informer, entered bool) {
	for other, over := range i.siblings.earlier(i, entered) {
		if other.follows(over) {
			other.distrust(&elsewhereError{other.key, over, errEarlier})
		}
	}
}

// doubtSiblings makes the other informers of an informer's resource list, after
// a list has shown that the informer lacked what its stream should have
// brought. Either its stream dropped that, or the server has another history,
// in which the objects of the others may have the versions of their undone
// states.
func (p *Pool) doubtSiblings(i *informer) {
	for _, other := range p.siblings(i) {
		other.doubtful(fmt.Errorf("%s: %w", other.key, errLacked))
	}
}

// audited schedules the next audit of an informer. It reports whether the
// informer has to list because its regular audit failed repeatedly: the result
// of that list then decides the state of the cache.
func (p *Pool) audited(i *informer, err error, failed bool) (list bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if failed {
		i.audits.failures++
	} else {
		i.audits.failures = 0
	}
	late := time.Since(i.audits.by)
	list = failed && late >= 0 && (i.audits.failures >= maxFailures || late > 2*p.options.margin()) &&
		!p.spares(i, err, late)
	switch {
	case p.mu.informers[i.key] != i || i.audits.next.Listed():
	case list || err == nil || errors.Is(err, ErrHistory):
		p.scheduleAuditLocked(i)
	default:
		p.appointLocked(i, time.Now().Add(jitter(min(auditAgain, p.options.margin()))))
	}

	return list
}

// spares reports whether an informer keeps its watch although its regular audit
// fails. A server over its limit refuses lists, but serves watches. If the
// informer lists in pages, its own list would be refused as the audit's was,
// and meanwhile it would follow nothing. A streamed list is a watch, and so is
// not affected.
func (p *Pool) spares(i *informer, err error, late time.Duration) bool {
	pages := p.options.PagedLists || i.cluster.paged.Has(i.key.Resource.Group)
	return pages && late < auditBusy && apierrors.IsTooManyRequests(err)
}

// auditDone lets the next audit begin.
func (p *Pool) auditDone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.audits.running--
	p.wakeAuditsLocked()
}
