// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package phase

import "time"

// Kind is the kind of an event.
type Kind uint8

// Kinds of events.
const (
	// Asked: a caller wants to use the cluster.
	Asked Kind = iota
	// Changed: the access to the cluster, or the server that answers there, may
	// have changed.
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
	// Doubted: a request found that a different server than expected may be
	// answering.
	Doubted
	// Unrecognized: the server repeatedly failed to prove its identity,
	// whatever it answers to probes. Event.Err and Event.Reason describe the
	// failure.
	Unrecognized
	// Recognized: the server has proven its identity since.
	Recognized
	// Broken: a request could not be sent, or was cut before its answer. The
	// server may be down.
	Broken
	// Torn: a stream broke. The server may be down, which the informer shows that
	// resumes the stream.
	Torn
	// RolledBack: the cluster's history went backwards.
	RolledBack
	// Removed: the cluster no longer exists; Event.Reason gives the cause.
	Removed
	// Resolved: the resolver gave the connect attempt Event.Gen an access.
	Resolved

	// Kinds is the number of kinds.
	Kinds
)

// Class is the consequence of a failure for the next step.
type Class uint8

// Classes of failures.
const (
	// Trouble is any failure that a retry may fix.
	Trouble Class = iota
	// NoAccess: the resolver has no access to the cluster yet.
	NoAccess
	// NoCluster: the resolver reports that no such cluster exists.
	NoCluster
	// Policy: policy forbids access to the cluster.
	Policy
	// Rejected: the server does not accept the credentials.
	Rejected
	// Busy: the server is there, and asks the client to retry soon.
	Busy
	// Unreachable: the server refuses or breaks connections, so that there is
	// no answer to wait for.
	Unreachable
	// Same: the resolver gave State.Tried, which is not due again before
	// State.Held. The server was not queried.
	Same

	// Classes is the number of classes.
	Classes
)

// Event is an event in the life of a cluster's connection.
type Event struct {
	Kind Kind
	// Gen is the generation of the attempt that ended (Succeeded, Failed).
	Gen uint64
	// Class, Err and Reason describe a failure.
	Class  Class
	Err    error
	Reason string
	// Early: the cluster is not ready to be connected yet, so that the attempt
	// counts as no failure (Failed).
	Early bool
	// Alive: the server answered, and reports that checks of its own health
	// fail, as Err and Reason describe (Succeeded of a connect, Failed). A
	// connection in use stays: such a server is not dead.
	Alive bool
	// Revision identifies the access that the attempt or request used. It is
	// empty if the attempt failed before it had one.
	Revision string
	// Changes is a value of State.Changes: the result of the attempt is known
	// to be at least as new as that (Succeeded, Failed of a connect).
	Changes uint64
	// Unproven: the connect attempt found the access already in use, and did
	// not query the server (Succeeded).
	Unproven bool
	// NewEpoch: the connect attempt found a different history than the known
	// one (Succeeded).
	NewEpoch bool
	// Life is the time of the last sign of life on the connection (Tick).
	Life time.Time
	// Jitter in [0,1) spreads deadlines. It only ever shortens them.
	Jitter float64
}

// Action is a step that the caller has to carry out, in the returned order.
type Action uint8

// Actions.
const (
	// StartConnect starts a connect attempt tagged with the state's Gen.
	StartConnect Action = iota
	// StartProbe starts a probe tagged with the state's Gen.
	StartProbe
	// Cancel ends the running attempt early.
	Cancel
	// Notify passes the state's Changes to the running connect attempt. The
	// attempt queries the resolver again, once no query is running, and
	// continues if the answer is the access it already works with.
	Notify
	// Up: the cluster can be used from now on.
	Up
	// Down: the cluster can no longer be used; cut its running requests.
	Down
	// Renew: the cluster is connected, with a different history; everything
	// known about it must be read again.
	Renew
	// Evict: the cluster is gone; drop everything held for it.
	Evict
	// Silence: no request was answered for Config.SilentAfter. It is issued
	// once for each silence.
	Silence
)
