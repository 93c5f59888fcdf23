// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"fmt"
	"time"
)

// Phase is the state of a cluster's connection.
type Phase uint8

// Phases.
const (
	// Pending clusters wait for access: the resolver does not know yet how to
	// reach them. Nothing is dialed.
	Pending Phase = iota
	// Connecting clusters have their first attempt under way.
	Connecting
	// Ready clusters answer.
	Ready
	// Degraded clusters are connected, but their last probes failed, fewer than
	// the threshold in a row; or their servers report that checks of their own
	// health fail, however often.
	Degraded
	// Disconnected clusters cannot be reached, or reject the credentials.
	// Attempts to connect continue.
	Disconnected
	// Refused clusters cannot be reached in a way that policy allows.
	Refused
	// Gone clusters no longer exist.
	Gone
)

var phaseNames = [...]string{"Pending", "Connecting", "Ready", "Degraded", "Disconnected", "Refused", "Gone"}

// String returns the phase's name.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "Unknown"
}

// Attempt is the network operation that runs for a cluster, if any.
type Attempt uint8

// Attempts.
const (
	// None: nothing runs.
	None Attempt = iota
	// Connect resolves the access, proves it and identifies the server. For a
	// connected cluster it is a refresh: the access in use stays until the new
	// one is proven.
	Connect
	// Probe asks the server whether it is healthy.
	Probe
)

// Config holds the numbers that decisions depend on. All but the last two are
// positive.
type Config struct {
	// ProbeInterval is the time between the starts of two probes. A sign of
	// life makes a probe unnecessary for that long.
	ProbeInterval time.Duration
	// BrokenPause is the time between the starts of two probes while the server
	// is Unreachable, the shortest time between two probes because of broken
	// streams, and the time within which a sign of life makes such a probe
	// unnecessary. It is at most ProbeInterval.
	BrokenPause time.Duration
	// FailureThreshold is the number of probes in a row that must fail before a
	// cluster is Disconnected.
	FailureThreshold int
	// SuccessThreshold is the number of probes in a row that must succeed
	// before a Degraded cluster is Ready.
	SuccessThreshold int
	// Grace is how long a connected cluster may be without access before it is
	// dropped.
	Grace time.Duration
	// RetryBase and RetryMax bound the back-off between attempts to connect.
	RetryBase, RetryMax time.Duration
	// ResolveRetry is how long to wait before querying the resolver again after
	// "not yet". It does not grow.
	ResolveRetry time.Duration
	// ResolveInterval is the time between two resolver queries about a
	// connected cluster; zero means never.
	ResolveInterval time.Duration
	// SilentAfter is how long requests must go unanswered before the silence is
	// reported; zero means never.
	SilentAfter time.Duration
}

// State is everything remembered about one cluster. The zero State is that of a
// cluster that was never requested.
type State struct {
	Phase Phase
	// Since is the time at which Phase was entered.
	Since time.Time
	// LostSince is when the connection was lost that has not been made again
	// since; zero while connected, and for clusters that are not known.
	LostSince time.Time
	Failure
	Faults
	// Connected: the last of Up and Down was Up.
	Connected bool
	// Known: there was an Up since the cluster was last evicted.
	Known bool
	// Unrecognized: the server does not prove its identity. Successful probes
	// alone do not make the cluster Ready then.
	Unrecognized bool
	Attempts
	Access
	Probes
	Answers
	Grace
}

// Failure is why a cluster is not as it should be. That of State is the one of
// Faults that counts.
type Failure struct {
	Err    error
	Reason string // the short form of Err
}

// Faults are the failures that stand. Each has a success of its own that ends
// it, and no success or failure of another kind does:
//
//	                 ended by
//	Probing          SuccessThreshold probes in a row, a proof of the access
//	Identity         Recognized, a proof of the access
//	Refusal          a proof of the access; the answer that nothing has changed,
//	                 or that there is no access; of a policy, also that the
//	                 server was queried
//	Attempt          a proof of the access; the answer that nothing has changed
//
// While the cluster is connected, the first of them that stands counts, in this
// order. While it is not, Refusal counts before Attempt. A Refusal followed by
// another failure says so.
type Faults struct {
	// Probing is what the probes of a connected cluster failed with, or what its
	// server reports about its own health.
	Probing Failure
	// Identity: the server does not prove its identity.
	Identity Failure
	// Refusal: the server rejects the credentials, or policy forbids the
	// access. RefusedBy is which of both, Trouble if there is none.
	Refusal   Failure
	RefusedBy Class
	// Attempt is what the last attempt to connect, or the probe that ended the
	// connection, failed with if that was not the Refusal.
	Attempt Failure
}

// counts returns the failure that counts.
func (f *Faults) counts(connected bool) Failure {
	switch none := (Failure{}); {
	case connected && f.Probing != none:
		return f.Probing
	case connected && f.Identity != none:
		return f.Identity
	case f.RefusedBy == Trouble:
		return f.Attempt
	case f.Attempt == none:
		return f.Refusal
	}
	last := fmt.Sprint(f.Attempt.Err) // an error that was both would be taken for either
	return Failure{fmt.Errorf("%w; the last attempt failed: %s", f.Refusal.Err, last), f.Refusal.Reason}
}

// Attempts are the probes and the attempts to connect.
type Attempts struct {
	// Gen numbers the attempts; Running is the kind of the current one.
	Gen     uint64
	Running Attempt
	// Changes counts the reported changes of the access to the cluster. A
	// connect attempt whose result may be older than the last change is
	// followed by another at once.
	Changes uint64
	// Prove: the next connect attempt has to query the server, even if its
	// access is the one in use.
	Prove bool
	// Replaces: a connect attempt canceled a probe, and no attempt has queried
	// the server of the access in use since: the next one has to, too.
	Replaces bool
	// Tries counts failed attempts to connect in a row.
	Tries int
	// RetryAt is when the next attempt to connect is due; zero means never.
	RetryAt time.Time
	// Tried is the revision of the access with which the last attempt failed;
	// empty if it had none. Held is the RetryAt of before the running attempt,
	// if that began earlier since something was reported: until then, the
	// server must not be queried with Tried.
	Tried string
	Held  time.Time
}

// Access is the access in use.
type Access struct {
	// Revision identifies the access in use; Rejected identifies the access for
	// which the resolver was already queried after a 401.
	Revision, Rejected string
	// ResolveAt is when the resolver is to be queried again; zero means never.
	ResolveAt time.Time
}

// Probes are the requests for the server's health.
type Probes struct {
	// Failures and Successes count probes in a row. What the server answers
	// about its own health is no Failure.
	Failures, Successes int
	// ProbeStart is when the last probe or connect began; ProbeEnd is when it
	// ended.
	ProbeStart, ProbeEnd time.Time
	// ProbeAt is when the next probe is due; zero means never.
	ProbeAt time.Time
	// TornAt is when a stream last broke; zero if a request was answered since,
	// or a probe began.
	TornAt time.Time
	// Spurious counts the probes in a row that broken streams caused, and that
	// did not fail.
	Spurious int
}

// Answers are those of the server to probes and attempts to connect.
type Answers struct {
	// Missed counts the probes and attempts to connect that the server did not
	// answer since its last answer. Failed also counts the attempts that ended
	// before the server was queried, but for those that were Early, those that
	// another followed because of a change, and, after the first, those that a
	// report began before they were due. FailedSince is when the first of Failed
	// ended.
	Missed, Failed int
	FailedSince    time.Time
	// LastProbe is when a request to the server last ended. LastSuccess is when
	// one was last answered, or when a sign of life last replaced a probe.
	LastProbe, LastSuccess time.Time
	// SilentAt is when the silence will have lasted for Config.SilentAfter;
	// zero if it never will, or was reported.
	SilentAt time.Time
	// Silent: the silence was reported.
	Silent bool
}

// Grace is the time for which a connected cluster may be without access.
type Grace struct {
	// GraceUntil is its end; zero means that there is access.
	GraceUntil time.Time
	// GraceGone: the end of the grace leads to Gone instead of Pending.
	GraceGone bool
}

// NextAttempt returns when the next attempt to connect is due, or else the next
// probe of a cluster whose probes fail; zero means that none is due, or that an
// attempt runs.
func (s State) NextAttempt() time.Time {
	if s.RetryAt.IsZero() && s.Phase == Degraded {
		return s.ProbeAt
	}
	return s.RetryAt
}

// Deadline returns the time at which a Tick is due; zero means never. While an
// attempt runs, its result is the next event, unless a silence must be reported
// before.
func (s State) Deadline() time.Time {
	if s.Running == Connect {
		return s.SilentAt
	}
	due := earliest(s.RetryAt, s.SilentAt)
	if s.Connected {
		due = earliest(earliest(due, s.GraceUntil), s.ProbeAt)
		if s.Running == None { // a probe ends soon
			due = earliest(due, s.ResolveAt)
		}
	}

	return due
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
