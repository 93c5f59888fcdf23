// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package phase

import "time"

// Phase is where the connection of a cluster stands.
type Phase uint8

// Phases.
const (
	// Pending clusters wait for access: the resolver does not know yet how to
	// reach them. Nothing is dialled.
	Pending Phase = iota
	// Connecting clusters have their first attempt under way.
	Connecting
	// Ready clusters answer.
	Ready
	// Degraded clusters are connected, and their last probes failed, fewer than
	// the threshold in a row.
	Degraded
	// Disconnected clusters cannot be reached, or refuse our credentials.
	// Attempts go on.
	Disconnected
	// Refused clusters are reachable only in a way that policy forbids.
	Refused
	// Gone clusters do not exist any more.
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

// Attempt is what runs for a cluster: nothing or one of the two kinds of work
// that touch the network.
type Attempt uint8

// Attempts.
const (
	// None runs.
	None Attempt = iota
	// Connect resolves, proves and identifies. While connected, it is a
	// refresh: what serves now stays until the new way is proven.
	Connect
	// Probe asks the server whether it is well.
	Probe
)

// Config are the numbers the decisions depend on. All but the last two are
// positive.
type Config struct {
	// ProbeInterval is the time between the starts of two probes, and how long
	// a sign of life spares one.
	ProbeInterval time.Duration
	// FailureThreshold probes in a row fail before a cluster is Disconnected.
	FailureThreshold int
	// SuccessThreshold probes in a row succeed before a Degraded cluster is
	// Ready.
	SuccessThreshold int
	// Grace is how long a connected cluster may be without access before it is
	// dropped.
	Grace time.Duration
	// RetryBase and RetryMax bound the back-off between attempts to connect.
	RetryBase, RetryMax time.Duration
	// ResolveRetry is the time between two questions to a resolver that
	// answered "not yet". It does not grow.
	ResolveRetry time.Duration
	// ResolveInterval is the time between two questions to the resolver about a
	// connected cluster; zero is never.
	ResolveInterval time.Duration
	// SilentAfter is how long no question is answered before that is reported;
	// zero is never.
	SilentAfter time.Duration
}

// State is all that is remembered of one cluster. The zero State is a cluster
// nobody asked for.
type State struct {
	Phase Phase
	// Since is when Phase was entered.
	Since time.Time
	// Err is the last failure that was not made good; Reason is its short form.
	Err    error
	Reason string
	// Gen numbers the attempts; Running is the current one's kind.
	Gen     uint64
	Running Attempt
	// News counts what was heard of the way to the cluster. A connect attempt
	// whose answer may be older than the last of it is followed by another at
	// once.
	News uint64
	// Prove: the next connect attempt has to ask the server, even if its access
	// is the one in use.
	Prove bool
	// Unrecognized: the server does not prove who it is. Probes alone do not
	// make the cluster Ready then.
	Unrecognized bool
	// Connected: the last of Up and Down was Up.
	Connected bool
	// Known: there was an Up since the cluster was last evicted.
	Known bool
	// Revision is the access that serves now; Rejected is the one a re-resolve
	// after a 401 was already made for.
	Revision, Rejected string
	// Failures and Successes count probes in a row; Tries counts failed
	// attempts to connect in a row.
	Failures, Successes, Tries int
	// Missed counts the questions that the server did not answer since it last
	// answered one, probes and attempts to connect alike.
	Missed int
	// LastProbe is when a question last ended, and LastSuccess when one was
	// last answered, or when a sign of life last spared one.
	LastProbe, LastSuccess time.Time
	// SilentAt is when the silence has lasted for Config.SilentAfter; zero if
	// it never will, or was reported.
	SilentAt time.Time
	// Silent: the silence was reported.
	Silent bool
	// ProbeStart is when the last probe, or connect, began; ProbeEnd when it
	// ended.
	ProbeStart, ProbeEnd time.Time
	// ProbeAt, RetryAt, ResolveAt and GraceUntil are due times; zero is never.
	ProbeAt, RetryAt, ResolveAt, GraceUntil time.Time
	// GraceGone: the end of the grace means Gone instead of Pending.
	GraceGone bool
}

// Deadline is when a Tick is due; zero is never. While an attempt runs, its
// result is the next event, unless a silence is to be reported before.
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
