// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
)

const (
	// testimonyAge is how long an answer to the history question serves further
	// informers, from when the question was sent.
	testimonyAge = 5 * time.Second
	// testimonyWait is how long an informer that resumes waits for the answer to
	// another informer, which may ask a server, or a storage, that hangs.
	testimonyWait = time.Second
)

// testimony is what one storage of a cluster has answered to the history
// question. The informers of its resources that resume at about the same time
// rely on one answer:
//
//	pods     ── stream ends ──► asks ──────── at 900 ──► watch from 870
//	services ──── stream ends ────► waits ─── at 900 ──► watch from 850
//	nodes    ─ stream ends ─────────► waits ─ at 900, and was at 910: asks itself
//
// An answer only ever confirms. Who finds none that does asks for itself, and
// only its own answer shows it another history. An answer confirms nothing to an
// informer whose attempt ended after the question was sent. It confirms nothing
// to any once an attempt has ended whose last request was sent after the
// question: the storage may have been restored since.
//
// The zero value has no answer.
type testimony struct {
	mu    sync.Mutex // protects all that follows; no other lock is taken under it
	said  *inquiry   // the latest that was answered
	asked *inquiry   // the latest that is under way
	over  time.Time  // when the last request of attempts that have ended was sent
}

// inquiry is one history question. testimony.mu protects its version.
type inquiry struct {
	epoch   Epoch
	sent    time.Time
	done    chan struct{} // closed when it is over
	version string        // the answer; empty if there is none
}

// younger reports whether an inquiry is younger than an age by both clocks: the
// monotonic one stands still while a machine sleeps, in which time the storage
// may be restored.
func (q *inquiry) younger(than time.Duration, now time.Time) bool {
	return now.Sub(q.sent) < than && now.Round(0).Sub(q.sent.Round(0)) < than
}

// claim is what an informer that resumes needs to be confirmed.
type claim struct {
	epoch   Epoch
	version string    // that the history has to reach
	ended   time.Time // when the informer's last attempt ended
}

// storedApart reports whether a resource may have another storage than its
// cluster's: an API server that is not Kubernetes' own may have its own, and
// installations commonly keep events apart.
func storedApart(r schema.GroupResource) bool { return definable(r.Group) || r.Resource == "events" }

// consult returns the inquiry whose answer confirms a claim. If there is none,
// it returns a new one, which the caller is to make and to conclude. It waits for
// the answer to another informer, if that may confirm the claim, and not for
// long.
func (t *testimony) consult(ctx context.Context, c claim) (confirms, mine *inquiry) {
	ctx, cancel := context.WithTimeout(ctx, testimonyWait)
	defer cancel()
	for {
		confirms, pending, mine := t.look(c, time.Now(), ctx.Err() == nil)
		if pending == nil {
			return confirms, mine
		}
		select {
		case <-pending.done:
		case <-ctx.Done():
		}
	}
}

// look returns one inquiry: the one that confirms a claim, or else, to a caller
// that is patient, one that is under way and may confirm it, or else a new one.
func (t *testimony) look(c claim, now time.Time, patient bool) (confirms, pending, mine *inquiry) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.concernsLocked(t.said, c) && t.said.younger(testimonyAge, now) {
		if ordering.Reaches(t.said.version, c.version) {
			return t.said, nil, nil
		}
		patient = false // the history is most likely another one, which each finds for itself
	}
	if patient && t.concernsLocked(t.asked, c) && t.asked.younger(testimonyWait, now) {
		return nil, t.asked, nil
	}
	t.asked = &inquiry{epoch: c.epoch, sent: now, done: make(chan struct{})}

	return nil, nil, t.asked
}

// concernsLocked reports whether the answer to an inquiry is one about the
// history that a claim is about.
func (t *testimony) concernsLocked(q *inquiry, c claim) bool {
	return q != nil && q.epoch == c.epoch && q.sent.After(c.ended) && q.sent.After(t.over)
}

// conclude ends an inquiry that the caller has made. An empty version is no
// answer.
func (t *testimony) conclude(q *inquiry, version string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if q.version = version; version != "" && (t.said == nil || q.sent.After(t.said.sent)) {
		t.said = q
	}
	if t.asked == q {
		t.asked = nil
	}
	close(q.done)
}

// ended records that an attempt has ended whose last request was sent at a time:
// what was asked before then says nothing about the storage of now.
func (t *testimony) ended(sent time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sent.After(t.over) {
		t.over = sent
	}
}
