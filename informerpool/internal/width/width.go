// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package width bounds how many requests are in flight to a cluster that has
// answered that it has too many (429).
//
// API Priority and Fairness gives a client some seats and a short queue, and
// refuses what does not fit. It does not say how many fit, so [Width] infers
// that: what is in flight when a request is refused did fit, and each answer
// frees a place for one more. A [Gate] makes the requests of one cluster wait
// for each other accordingly.
//
// # Tests
//
// The leading test is TestStories, which plays the files of testdata.
// TestRequestsWaitWithTheRefusalAsTheirReason covers [Gate].
package width

import (
	"maps"
	"time"
)

const (
	// pause is how long no request is sent after a refusal without Retry-After,
	// unless another one is answered.
	pause = time.Second
	// growth is how many answers widen the limit by one. It takes fewer while
	// that is less than four.
	growth = 8
	// calm is how long after the last refusal the limit ends.
	calm = time.Minute
	// hold is how long a request counts: one that hangs must not hold back
	// others for ever.
	hold = time.Minute
	// stubborn is how many refusals of a request, while no more were in flight
	// than the server had answered before, show that it is refused whatever
	// else is in flight; few is how many such requests of a server there may be.
	// If there are more, the server answers fewer than before.
	stubborn = 2
	few      = 3
)

// Subject is what a request is about.
type Subject struct {
	// Server is the same for all resources that certainly have one server, and
	// so share its limits.
	Server string
	// Resource is the resource with its group.
	Resource string
	// Selection tells requests for parts of one resource apart.
	Selection string
}

// scope is a server, or if Resource is set, one resource of it.
type scope struct{ Server, Resource string }

// Request is one request, from the moment it has to wait for its turn.
type Request struct {
	Subject

	sent  time.Time // zero while it only has a reservation
	level int       // how many were in flight then, with it
}

// strikes are the refusals of a subject since it was last answered.
type strikes struct {
	odd int       // those that the number in flight does not explain
	at  time.Time // of the last one
}

// Width is how many requests may be in flight to one cluster. The zero value
// has no limit. Refusals of two subjects narrow it, for the resource they have
// in common, or else for its server: one that is refused alone says nothing
// about others. It is a pure state machine: callers pass the time.
//
//	no limit ── a second subject is refused ──► limit: half of what was in flight
//	   ▲                                          │ refused: halved, once for what was sent
//	   │                                          │   before; at most what is left in flight;
//	   │                                          │   Retry-After begins, or the next answer
//	   └── as wide as at first, or a minute ◄─────┘ 2 to 8 answers: one wider
//	       without a refusal
type Width struct {
	limit    int                   // 0: none
	full     int                   // the limit at which it ends
	bound    map[scope]bool        // to which the limit applies
	requests map[*Request]struct{} // in flight, or with a reservation
	changed  time.Time             // when the limit last changed
	fits     int                   // the highest level of requests that were answered since it was last halved
	until    time.Time             // until when the number in flight does not grow
	grown    int                   // answers since the limit last grew, or a refusal
	refused  map[Subject]strikes
	last     time.Time // refusal that counted
}

// Narrow reports whether there is a limit.
func (w *Width) Narrow() bool { return w.limit > 0 }

// Limit returns the limit; 0 if there is none.
func (w *Width) Limit() int { return w.limit }

// Reserve reports whether a request may be sent, for which others leave room
// from then on, until it is sent or lost. If not, it may change at again
// without another call of w; the zero time if it does not.
func (w *Width) Reserve(r *Request, now time.Time) (ok bool, again time.Time) {
	w.expire(now)
	if ok, again = w.room(r, now); ok && w.bounds(r) {
		w.add(r)
	}
	return ok, again
}

// Send records that a request is sent. It reports false if that has to wait
// after all: then the request has no reservation any more.
func (w *Width) Send(r *Request, now time.Time) bool {
	delete(w.requests, r)
	if ok, _ := w.room(r, now); !ok {
		return false
	}
	r.sent, r.level = now, w.inFlight(w.Narrow())+1
	w.add(r)

	return true
}

// Lost records that a request has ended without an answer about the server's
// load, or is given up before it was sent.
func (w *Width) Lost(r *Request) { delete(w.requests, r) }

// Answered records that a request was served.
func (w *Width) Answered(r *Request, now time.Time) {
	delete(w.requests, r)
	delete(w.refused, r.Subject)
	if w.Narrow() && !w.bounds(r) {
		return
	}
	if !r.sent.Before(w.changed) {
		w.fits = max(w.fits, r.level)
	}
	if !w.Narrow() {
		return
	}
	w.until = time.Time{} // it has left a place
	if w.grown++; w.grown < min(2*w.limit, growth) {
		return
	}
	w.grown = 0
	if w.set(w.limit+1, now); w.limit >= w.full {
		w.end()
	}
}

// Refused records that the server had too many requests, and how long it asked
// to wait; zero if it did not.
func (w *Width) Refused(r *Request, now time.Time, retryAfter time.Duration) {
	delete(w.requests, r)
	w.strike(r, now)
	if !w.counts(r.Subject) {
		return
	}
	w.last = now
	if !w.Narrow() && !w.several() {
		return
	}
	for s := range w.refused {
		if w.counts(s) {
			w.bind(s)
		}
	}

	limit, left := w.limit, w.inFlight(true)
	switch {
	case !w.Narrow():
		w.full = w.inFlight(false) + 1
		limit = w.full / 2
	case r.sent.After(w.changed):
		limit = min(limit, left+1) / 2
	}
	w.set(max(min(limit, left), 1), now)
	w.grown = 0
	if retryAfter <= 0 {
		retryAfter = pause
	}
	if end := now.Add(retryAfter); end.After(w.until) {
		w.until = end
	}
}

// set changes the limit.
func (w *Width) set(limit int, now time.Time) {
	switch {
	case limit > w.limit && w.Narrow():
		w.fits = min(w.fits, w.limit) // what fitted still does
	case limit != w.limit:
		w.fits = 0
	default:
		return
	}
	w.limit, w.changed = limit, now
}

// inFlight returns the number of requests in flight, or of those to which the
// limit applies.
func (w *Width) inFlight(bound bool) (n int) {
	for r := range w.requests {
		if !r.sent.IsZero() && (!bound || w.bounds(r)) {
			n++
		}
	}
	return n
}

// strike counts a refusal.
func (w *Width) strike(r *Request, now time.Time) {
	if w.refused == nil {
		w.refused = map[Subject]strikes{}
	}
	maps.DeleteFunc(w.refused, func(_ Subject, s strikes) bool { return now.Sub(s.at) >= calm })
	s := w.refused[r.Subject]
	if s.at = now; r.level <= w.fits {
		s.odd++
	}
	w.refused[r.Subject] = s
}

// counts reports whether the refusals of a subject may be due to what else is in
// flight.
func (w *Width) counts(s Subject) bool {
	if w.refused[s].odd < stubborn {
		return true
	}
	n := 0
	for other, refusals := range w.refused {
		if other.Server == s.Server && refusals.odd >= stubborn {
			n++
		}
	}
	return n > few
}

// several reports whether the refusals of more than one subject count.
func (w *Width) several() bool {
	n := 0
	for s := range w.refused {
		if w.counts(s) {
			n++
		}
	}
	return n > 1
}

// bind applies the limit to the resource of a refused subject, and to its
// server, if that refused another resource, too.
func (w *Width) bind(s Subject) {
	if w.bound == nil {
		w.bound = map[scope]bool{}
	}
	w.bound[scope{s.Server, s.Resource}] = true
	for other := range w.refused {
		if other.Server == s.Server && other.Resource != s.Resource && w.counts(other) {
			w.bound[scope{Server: s.Server}] = true
		}
	}
}

// bounds reports whether the limit applies to a request.
func (w *Width) bounds(r *Request) bool {
	return w.bound[scope{Server: r.Server}] || w.bound[scope{r.Server, r.Resource}]
}

// room reports whether a request may be sent now, and otherwise when that may
// change by itself.
func (w *Width) room(r *Request, now time.Time) (ok bool, again time.Time) {
	if !w.bounds(r) {
		return true, time.Time{}
	}
	if now.Before(w.until) {
		return false, w.until
	}
	taken := 0
	for other := range w.requests {
		if !w.bounds(other) {
			continue
		}
		ends := other.sent.Add(hold)
		if !other.sent.IsZero() && !now.Before(ends) {
			continue
		}
		taken++
		if !other.sent.IsZero() && (again.IsZero() || ends.Before(again)) {
			again = ends
		}
	}

	return taken < w.limit, again
}

func (w *Width) add(r *Request) {
	if w.requests == nil {
		w.requests = map[*Request]struct{}{}
	}
	w.requests[r] = struct{}{}
}

// expire ends the limit, and forgets refusals, once they are old and nothing
// that they concern is in flight.
func (w *Width) expire(now time.Time) {
	if w.last.IsZero() || now.Sub(w.last) < calm {
		return
	}
	for r := range w.requests {
		if w.bounds(r) {
			return
		}
	}
	w.end()
}

// end makes the width what it was before the first refusal.
func (w *Width) end() { *w = Width{requests: w.requests} }
