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
	// auditSilence is how long a stream may owe a change that a list has shown
	// before the change counts as lost. auditLag is the same for a stream that
	// keeps progressing, and so is merely late.
	auditSilence = 5 * time.Second
	auditLag     = 30 * time.Second
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
// pool's lock protects the fields but pool.
type audits struct {
	pool    *Pool
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

	c := p.mu.records.of[cluster]
	if c == nil || p.options.AuditInterval < 0 {
		return
	}
	for i := range c.informers {
		p.audits.bringForwardLocked(i, soon())
	}
}

// soon returns when an audit begins that is brought forward.
func soon() time.Time { return time.Now().Add(auditSoon + rand.N(auditSpread)) }

// by schedules an informer's audit for a time, unless it is due earlier or the
// informer has left the pool.
func (a *audits) by(i *informer, at time.Time) {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	if a.pool.mu.informers[i.key] == i {
		a.bringForwardLocked(i, at)
	}
}

// bringForwardLocked schedules the informer's audit for a time, unless it is
// due earlier.
func (a *audits) bringForwardLocked(i *informer, at time.Time) {
	switch {
	case i.plan.next.Listed():
		if at.Before(i.plan.next.At()) {
			a.appointLocked(i, at)
		}
	case i.plan.then.IsZero() || at.Before(i.plan.then):
		i.plan.then = at // the running audit may have compared the state before
	}
}

// seen schedules an immediate audit of an informer that lacks an object which
// was seen elsewhere and which it should have by now: the object was deleted
// unseen, or the informer is of another history. If audits are disabled, the
// informer lists.
func (a *audits) seen(i *informer) {
	if a.pool.options.AuditInterval < 0 {
		i.doubtful(fmt.Errorf("%s: %w", i.key, errUndelivered))
		return
	}
	a.by(i, time.Now())
}

// resumed schedules an audit of an informer that resumes after its server was
// not available. since is when it was last followed.
//
// An aggregated API server that keeps its objects in memory begins a new
// history when it restarts. If that history has reached the informer's version,
// the informer is resumed, and nothing in its stream shows that the objects are
// others. The only hint comes from the kube-apiserver in front of it, which
// reports meanwhile that the server is not available. The resource of a CRD
// cannot be distinguished from an aggregated one, nor is every restart of this
// kind. The informer is therefore audited, which costs little, instead of
// listing.
func (a *audits) resumed(i *informer, since time.Time) {
	if a.pool.options.AuditInterval <= 0 || builtIn(i.key.Resource.Group) {
		return
	}
	at := soon() // as if the whole cluster had been away
	if a.awayAlone(i, since) {
		at = time.Now().Add(rand.N(auditPromptly))
	}
	a.by(i, at)
}

// awayAlone reports whether only the informer's own server was away: an
// informer of a resource of Kubernetes itself has followed its server all the
// time.
func (a *audits) awayAlone(i *informer, since time.Time) bool {
	for _, other := range a.pool.of(i.key.Cluster) {
		now := other.relation()
		if builtIn(other.key.Resource.Group) && now.follows() && now.since.Before(since) {
			return true
		}
	}
	return false
}

// scheduleLocked gives an informer its regular appointment.
func (a *audits) scheduleLocked(i *informer) {
	if a.pool.options.AuditInterval <= 0 {
		return
	}
	at := time.Now().Add(a.pool.options.nextAudit())
	i.plan.by, i.plan.failures = at, 0
	a.appointLocked(i, at)
}

// likeLocked schedules the audit of an informer that continues another one for
// when that of the other one is due: nothing is compared later because of it.
func (a *audits) likeLocked(i, other *informer) {
	if a.pool.options.AuditInterval <= 0 {
		return
	}
	at := time.Now() // it is being audited
	if next := &other.plan.next; next.Listed() {
		at = next.At()
	}
	i.plan.by = other.plan.by
	a.bringForwardLocked(i, at)
}

// appointLocked sets when an informer is audited next, if that was not requested
// for an earlier time while it was being audited.
func (a *audits) appointLocked(i *informer, at time.Time) {
	if then := i.plan.then; !then.IsZero() && then.Before(at) {
		at = then
	}
	i.plan.then = time.Time{}
	i.plan.next.Value = i
	a.due.Set(&i.plan.next, at)
	if a.due.First() == &i.plan.next {
		a.wakeLocked()
	}
}

// wakeLocked sets the timer to the next appointment.
func (a *audits) wakeLocked() {
	first := a.due.First()
	if first == nil || a.pool.mu.closed || a.running >= maxAudits {
		a.timer.Stop()
		return
	}
	at := first.At()
	if paced := a.last.Add(auditPace); at.Before(paced) {
		at = paced
	}
	a.timer.Reset(time.Until(at))
}

// next runs the audit that is due. A list never waits for an audit: audits hold
// no permit, and wait a while for permits to be free, and for the cluster to
// have room.
func (a *audits) next() {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()

	now := time.Now()
	var due *timetable.Entry[*informer]
	if !a.pool.mu.closed && a.running < maxAudits {
		due = a.due.PopDue(now)
	}
	if due == nil {
		a.wakeLocked() // the timer fired while it was being reset
		return
	}
	i := due.Value
	busy := a.pool.lists.Waiting() || i.cluster.width.Narrow()
	if margin := a.pool.options.margin(); busy && now.Before(i.plan.by.Add(margin)) {
		a.appointLocked(i, now.Add(min(auditYield, margin/2)+rand.N(min(auditYield, margin/2))))
		a.wakeLocked()
		return
	}
	a.last = now
	a.running++
	a.pool.running.Go(func() { a.run(i) }) // under the lock and after the check of closed, as for informers
	a.wakeLocked()
}

// run audits one informer and schedules its next audit.
func (a *audits) run(i *informer) {
	release := sync.OnceFunc(a.done)
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
		a.pool.options.Logger.V(1).Info("Audit failed", "informer", i.key.String(), "error", err.Error())
	}

	if a.audited(i, err, failed) {
		i.doubtful(fmt.Errorf("%s: %w: %w", i.key, errUnaudited, err))
	}
	release()
}

// audited schedules the next audit of an informer. It reports whether the
// informer has to list because its regular audit failed repeatedly: the result
// of that list then decides the state of the cache.
func (a *audits) audited(i *informer, err error, failed bool) (list bool) {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()

	if failed {
		i.plan.failures++
	} else {
		i.plan.failures = 0
	}
	late := time.Since(i.plan.by)
	list = failed && late >= 0 && (i.plan.failures >= maxFailures || late > 2*a.pool.options.margin()) &&
		!a.spares(i, err, late)
	switch {
	case a.pool.mu.informers[i.key] != i || i.plan.next.Listed():
	case list || err == nil || errors.Is(err, ErrHistory):
		a.scheduleLocked(i)
	default:
		a.appointLocked(i, time.Now().Add(jitter(min(auditAgain, a.pool.options.margin()))))
	}

	return list
}

// spares reports whether an informer keeps its watch although its regular audit
// fails. A server over its limit refuses lists, but serves watches. If the
// informer lists in pages, its own list would be refused as the audit's was,
// and meanwhile it would follow nothing. A streamed list is a watch, and so is
// not affected.
func (a *audits) spares(i *informer, err error, late time.Duration) bool {
	pages := a.pool.options.PagedLists || i.cluster.pages(i.key.Resource.Group)
	return pages && late < auditBusy && apierrors.IsTooManyRequests(err)
}

// done lets the next audit begin.
func (a *audits) done() {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	a.running--
	a.wakeLocked()
}
