// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package phase decides the next step for one cluster's connection. [Next] is a
// pure function of the state, an event and the time: it uses no clock, lock,
// I/O or goroutine. The caller carries out the actions that Next returns, and
// reports their results as further events.
//
//	          Asked               Succeeded        probes fail
//	Pending --------> Connecting -----------> Ready <--------> Degraded
//	or Gone  Resolved     |                     ^   probes pass    |
//	   ^                  | Failed              | Succeeded        | threshold
//	   |  NoAccess        v                     |                  v reached
//	   +----------------- + ---------> Disconnected or Refused <---+
//	      or NoCluster
//
// A server that answers with its own authority that checks of its health fail
// degrades the cluster, and never counts towards the threshold.
//
// A report of a change has the resolver queried, and changes nothing else: the
// phase stays until the resolver has access, and access that has just failed
// keeps its pause. That of a cluster that is Gone leads to Connecting at once. A
// retry after a deadline stays in its phase until the attempt ends. Removed
// leads to Gone from every phase, and a connected cluster that loses its access
// becomes Pending or Gone when its grace ends.
//
// Invariants, whatever the order of events: actions [Up] and [Down] alternate,
// starting with Up; at most one attempt runs; a result that does not carry the
// running attempt's generation changes nothing; and every state is left by a
// deadline or an event.
//
// # Tests
//
// TestEveryStateTimesEveryEventKeepsTheInvariants checks the invariants above.
// TestEveryPairOfFaults has two faults at once. TestEveryStoryIsPlayed finds a
// file of testdata that no test plays.
package phase
