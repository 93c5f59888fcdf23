// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package identity

import "time"

const (
	// Age is how old the last proof may be for a read or a write to rely on it. A
	// connected cluster is queried that often: at any time, there may be another
	// cluster behind a proxy that keeps our connections.
	Age = time.Minute
	// Soon is Age for a list, and for a watch that continues where another ended.
	Soon = 5 * time.Second
	// Retry is the time between two queries that were not answered.
	Retry = 5 * time.Second
	// BusyAge is how old the last proof may be for informers to continue while the
	// server answers 429 to the identity query. It is as short as overloads are,
	// and bounds how long a server is read that may be another one by now, where
	// its silence is the only evidence for that.
	BusyAge = 5 * time.Minute
	// withheldAge is the time between two identity queries to a server that
	// forbids them. Each is a refusal in its audit log.
	withheldAge = 5 * time.Minute
	// versionAge is the time between two queries of the API server's version.
	versionAge = 5 * time.Minute
	// versionRetry is versionAge if the last query was not answered, and one
	// before was: the server may have been starting, as another version.
	versionRetry = 30 * time.Second
)

// Ledger records what was dialed, queried, answered and ended, in that order,
// and decides what is proven by it. It is not safe for concurrent use. Its zero
// value is empty; C identifies a connection.
type Ledger[C comparable] struct {
	seq      uint64       // numbers connections, queries and ends in their order
	unproven map[C]dialed // open connections without a proof
	shared   map[C]stream // open connections that watches share
	last     Proof
	current  *Access
	way      uint64 // when the address of the access in use was adopted
	ended    uint64 // the last end of a watch
	early    uint64 // the last one before its time

	failing  time.Time // since when queries fail; zero: the last one did not
	withheld time.Time // when the server last forbade the query

	version struct {
		asked          time.Time
		upgraded       bool // another process may have replaced the server since
		lastUnanswered bool // the version was not returned then
		everAnswered   bool // the version was returned once
	}
}

// dialed is a connection without a proof.
type dialed struct {
	number uint64
	access *Access
	query  *Query
	shared bool
}

// stream is a connection that watches share.
type stream struct {
	carried   uint64 // when it first answered a watch; zero: it has not
	confirmed bool   // a query over it was answered since
}

// Access is the configuration that connections belong to. It is protected as
// the Ledger.
type Access struct {
	way uint64 // the Ledger's when it was adopted; zero: it was not
}

// Query is one identity query, or several that belong together. It is protected
// as the Ledger.
type Query struct {
	concluded bool
}

// Dial is what a connection was made for.
type Dial struct {
	Access *Access
	Query  *Query // which decides whether it stays open; nil: none
	Shared bool   // for GET requests and watches, which share it
}

// Proof is an answer with the expected UID to an identity query.
type Proof struct {
	UID    string
	Sent   time.Time // when the query was sent; zero: there was none
	Number uint64    // of the query
}

// Need is what has to be proven for a request.
type Need[C comparable] struct {
	Age time.Duration // how old the proof may be; 0: any
	// Anew means that the proof must be newer than the last end of a watch.
	Anew bool
	// All means that every connection in use must be proven, and Over that this
	// one must be.
	All  bool
	Over C
	// After is the number that the query must be later than.
	After uint64
}

// Number returns the number of a query that is about to be sent, or of a
// connection that is about to be made.
func (l *Ledger[C]) Number() uint64 {
	l.seq++
	return l.seq
}

// Dialed records a connection, and reports whether its access is in use: before
// that, only the attempt that proves the access uses its connections.
func (l *Ledger[C]) Dialed(c C, d Dial) (inUse bool) {
	if l.unproven == nil {
		l.unproven, l.shared = map[C]dialed{}, map[C]stream{}
	}
	l.unproven[c] = dialed{number: l.Number(), access: d.Access, query: d.Query, shared: d.Shared}
	if d.Shared {
		l.shared[c] = stream{}
	}
	return l.inUse(d.Access)
}

// inUse reports whether an access is used, or was used at the same address.
func (l *Ledger[C]) inUse(a *Access) bool { return a.way != 0 && a.way == l.way }

// Closed forgets a connection.
func (l *Ledger[C]) Closed(c C) {
	delete(l.unproven, c)
	delete(l.shared, c)
}

// Adopted records the proof of an access that is used from now on, or of the one
// in use if a is nil. moved means that it has another address: nothing that
// answers there proves a connection to the former one.
func (l *Ledger[C]) Adopted(a *Access, moved bool, p Proof, over C, made uint64) {
	if a != nil {
		if moved || l.way == 0 {
			l.way = l.Number()
		}
		a.way, l.current = l.way, a
	}
	l.last.UID, l.failing = p.UID, time.Time{}
	l.proven(p.Number, p.Sent, over, made)
}

// Proven records an answer of the expected cluster to a query over a connection.
// It proves that connection, and those in use that were made before it: another
// cluster may replace the one behind an address at some time, but connections
// made before still lead to the old one. made is a number from before the
// connection was made. That the query was to use a new one does not count.
func (l *Ledger[C]) Proven(number uint64, sent time.Time, over C, made uint64) {
	if number < l.way { // it may have been sent to the former address
		made = 0
	}
	l.proven(number, sent, over, made)
}

func (l *Ledger[C]) proven(number uint64, sent time.Time, over C, made uint64) {
	l.last.Sent, l.last.Number = sent, number
	if l.version.asked.IsZero() {
		l.version.asked = sent
	}
	for c, d := range l.unproven {
		if c == over || l.inUse(d.access) && d.number < made {
			delete(l.unproven, c)
		}
	}
	if s, ok := l.shared[over]; ok && s.carried > 0 && s.carried < number {
		l.Confirmed(over)
	}
}

// Concluded records that a query has ended. Connections that were made for it
// are like any other from now on.
func (l *Ledger[C]) Concluded(q *Query) { q.concluded = true }

// Ended records that a watch ended, at its time or early. Later requests need a
// newer proof: a proxy that switches to another cluster and keeps its clients'
// connections ends the watches at the same moment.
func (l *Ledger[C]) Ended(early bool) {
	l.ended = l.Number()
	if early {
		l.early = l.ended
	}
}

// Last returns the last proof.
func (l *Ledger[C]) Last() Proof { return l.last }

// Contradicts reports whether another UID is proven: an attempt found another
// cluster, whose epoch is about to begin.
func (l *Ledger[C]) Contradicts(uid string) bool { return l.last.UID != "" && l.last.UID != uid }

// Satisfies reports whether what a request needs is proven.
func (l *Ledger[C]) Satisfies(n Need[C], now time.Time) bool {
	return (n.Age == 0 || l.young(n.Age, now)) &&
		(!n.Anew || l.last.Number >= l.ended) &&
		(!n.All || l.Pending() == 0) &&
		!l.Unproven(n.Over) &&
		l.last.Number >= n.After
}

// Tolerates reports whether informers may continue for a while without the proof
// that they requested, since the server is too busy to give it. There must be no
// other reason to doubt the identity: no connection without a proof, and no
// watch that ended early.
func (l *Ledger[C]) Tolerates(now time.Time) bool {
	return l.young(BusyAge, now) && l.Pending() == 0 && l.last.Number >= l.early
}

// young reports whether the last proof is at most as old as age, by both clocks:
// the monotonic clock stands still while a machine sleeps, and the wall clock
// may be set.
func (l *Ledger[C]) young(age time.Duration, now time.Time) bool {
	sent := l.last.Sent
	return !sent.IsZero() && now.Sub(sent) <= age && now.Round(0).Sub(sent.Round(0)) <= age
}

// Pending returns how many connections in use have no proof.
func (l *Ledger[C]) Pending() int {
	n := 0
	for _, d := range l.unproven {
		if l.inUse(d.access) {
			n++
		}
	}
	return n
}

// Unproven reports whether a connection has no proof.
func (l *Ledger[C]) Unproven(c C) bool {
	_, unproven := l.unproven[c]
	return unproven
}

// Way is how an identity query is sent.
type Way string

const (
	// Anywhere means over any connection.
	Anywhere Way = "anywhere"
	// Anew means over a connection of its own, which is newer than all those
	// without a proof.
	Anew Way = "anew"
	// Over means over one connection without a proof.
	Over Way = "over"
)

// Way returns how the next query is sent, so that it proves all connections in
// use. If those without a proof are all shared, and of the current access, the
// query needs no connection of its own: it is sent over the newest of them.
func (l *Ledger[C]) Way(multiplexed bool) (Way, C) {
	var newest C
	way, latest := Anywhere, uint64(0)
	for c, d := range l.unproven {
		switch {
		case !l.inUse(d.access):
		case !d.shared || !multiplexed || d.access != l.current:
			return Anew, *new(C)
		case d.number > latest:
			way, newest, latest = Over, c, d.number
		}
	}
	return way, newest
}

// Doubtful returns the connections to close since another cluster has answered
// over one of them: if the address leads back to the former cluster, a query
// over a newer connection would prove them all. One that a query was made for is
// left to that query until it has ended.
func (l *Ledger[C]) Doubtful(over C) []C {
	var all []C
	for c, d := range l.unproven {
		if c == over || l.inUse(d.access) && (d.query == nil || d.query.concluded) {
			all = append(all, c)
		}
	}
	return all
}

// First reports whether no connection that watches share is proven. The next
// watch is sent over a new one, and a query over that, once the watch is
// answered, proves both: its content is believed by then, and not before.
func (l *Ledger[C]) First() bool {
	for c := range l.shared {
		if !l.Unproven(c) {
			return false
		}
	}
	return true
}

// Carried records that a connection has answered a watch.
func (l *Ledger[C]) Carried(c C) {
	if s, ok := l.shared[c]; ok && s.carried == 0 {
		s.carried = l.Number()
		l.shared[c] = s
	}
}

// Unconfirmed returns the connections of watches that were not queried over
// since they answered the first of them.
func (l *Ledger[C]) Unconfirmed() []C {
	var all []C
	for c, s := range l.shared {
		if !s.confirmed {
			all = append(all, c)
		}
	}
	return all
}

// Confirmed records that a connection of watches was queried over since it
// answered the first of them.
func (l *Ledger[C]) Confirmed(c C) {
	if s, ok := l.shared[c]; ok {
		s.confirmed = true
		l.shared[c] = s
	}
}

// IsConfirmed reports whether a connection of watches was queried over since it
// answered the first of them.
func (l *Ledger[C]) IsConfirmed(c C) bool { return l.shared[c].confirmed }

// Due returns when the next query is due; presumed means that the server
// withholds its identity, so that no query proves a connection.
func (l *Ledger[C]) Due(presumed bool, now time.Time) time.Time {
	switch at := l.last.Sent.Add(Age); {
	case at.Before(now):
		return now
	case !presumed && l.Pending() > 0:
		return now
	default:
		return at
	}
}

// Verdict is what follows for the cluster from the answers to its queries.
type Verdict string

const (
	// None means that nothing follows.
	None Verdict = ""
	// Recognized means that the cluster identifies itself again.
	Recognized Verdict = "recognized"
	// Unrecognized means that it has not done so for a while.
	Unrecognized Verdict = "unrecognized"
)

// Answered records that the expected cluster has answered a query.
func (l *Ledger[C]) Answered() Verdict {
	if l.failing.IsZero() {
		return None
	}
	l.failing = time.Time{}
	return Recognized
}

// Failed records that a query was not answered. A server may answer probes, and
// everything else, with successes without content.
func (l *Ledger[C]) Failed(now time.Time) Verdict {
	if l.failing.IsZero() {
		l.failing = now
	}
	if now.Sub(l.failing) < Retry {
		return None
	}
	return Unrecognized
}

// Withheld records that the server forbids the query.
func (l *Ledger[C]) Withheld(now time.Time) { l.withheld = now }

// AsksWithheld reports whether a server that forbids the query is to be queried
// again.
func (l *Ledger[C]) AsksWithheld(now time.Time) bool { return now.Sub(l.withheld) >= withheldAge }

// Replaced reports whether the version is wanted early since another process may
// have answered: servers are upgraded in place. fresh means that a query went
// over a new connection. Over HTTP/1.1 a query of the version may cost a
// connection, which is a reason for an identity query, and that must not cause
// another query of the version.
func (l *Ledger[C]) Replaced(fresh bool, now time.Time) bool {
	v := &l.version
	v.upgraded = v.upgraded || fresh
	return v.upgraded && now.Sub(v.asked) >= Soon
}

// AsksVersion reports whether the version is to be queried now, and records that
// it is. A query that is not answered is not repeated early for any reason: over
// HTTP/1.1 each one that hangs costs a connection, and the new connection would
// be a reason to query again.
func (l *Ledger[C]) AsksVersion(wanted bool, now time.Time) bool {
	v := &l.version
	age := versionAge
	if v.lastUnanswered && v.everAnswered {
		age = versionRetry
	}
	due := wanted && !v.lastUnanswered || now.Sub(v.asked) >= age
	if due {
		v.asked, v.upgraded = now, false
	}
	return due
}

// VersionAnswered records whether the server returned its version.
func (l *Ledger[C]) VersionAnswered(answered bool) {
	l.version.lastUnanswered = !answered
	l.version.everAnswered = l.version.everAnswered || answered
}
