// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package phase

import "time"

// Kind is what happened.
type Kind uint8

// Kinds of events.
const (
	// Asked: somebody wants the cluster.
	Asked Kind = iota
	// Changed: the way to reach the cluster, or who answers there, may have
	// changed.
	Changed
	// Tick: the deadline passed.
	Tick
	// Succeeded: the attempt Event.Gen ended well.
	Succeeded
	// Failed: the attempt Event.Gen ended badly.
	Failed
	// Unauthorized: an ordinary request made with Event.Revision was
	// answered 401.
	Unauthorized
	// Doubted: a request found that somebody else than expected may be
	// answering.
	Doubted
	// Unrecognized: again and again the server did not prove who it is,
	// whatever it answers to probes; Event.Err and Event.Reason say how.
	Unrecognized
	// Recognized: it has proven it since.
	Recognized
	// RolledBack: the cluster's history went backwards.
	RolledBack
	// Removed: the cluster is no more; Event.Reason says why.
	Removed

	// Kinds is the number of kinds.
	Kinds
)

// Class is what a failure means for the next step.
type Class uint8

// Classes of failures.
const (
	// Trouble is any failure that trying again may mend.
	Trouble Class = iota
	// NoAccess: the resolver does not know yet.
	NoAccess
	// Unknown: the resolver says there is no such cluster.
	Unknown
	// Policy: the way to the cluster is forbidden.
	Policy
	// Rejected: the server does not accept the credentials.
	Rejected
	// Busy: the server is there, and asks to come back soon.
	Busy

	// Classes is the number of classes.
	Classes
)

// Event is one thing that happened to a cluster.
type Event struct {
	Kind Kind
	// Gen is the generation of the attempt that ended (Succeeded, Failed).
	Gen uint64
	// Class, Err and Reason describe a failure.
	Class  Class
	Err    error
	Reason string
	// Revision is the access an attempt or request was made with, as far as it
	// got.
	Revision string
	// News is the State.News that the attempt's answer is known to be at least
	// as new as (Succeeded, Failed of a connect).
	News uint64
	// Unproven: the connect attempt found the access that is in use, and saw no
	// need to ask the server (Succeeded).
	Unproven bool
	// NewEpoch: the connect attempt found another history than the one known
	// (Succeeded).
	NewEpoch bool
	// Life is the last sign of life seen on the connection (Tick).
	Life time.Time
	// Jitter in [0,1) spreads deadlines. They are only ever shortened by it.
	Jitter float64
}

// Action is what the shell has to do, in order.
type Action uint8

// Actions.
const (
	// StartConnect starts a connect attempt tagged with the state's Gen.
	StartConnect Action = iota
	// StartProbe starts a probe tagged with the state's Gen.
	StartProbe
	// Cancel ends the running attempt early.
	Cancel
	// Tell tells the running connect attempt the state's News. It asks the
	// resolver again, once it is not asking, and goes on if the answer is the
	// one it works with.
	Tell
	// Up: the cluster can be used from now on.
	Up
	// Down: it cannot any more; cut what runs.
	Down
	// Renew: it is connected, with another history; everything known of it is
	// to be read again.
	Renew
	// Evict: it is gone; drop what is held of it.
	Evict
	// Silence: no question was answered for Config.SilentAfter. It comes once
	// for each silence.
	Silence
)
