// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package phase decides what happens next to one cluster's connection. It is a
// pure function of the state, what happened, and the time: no clock, no lock,
// no I/O, no goroutine. A shell elsewhere runs the actions it returns and
// reports how they ended.
//
// Invariants, whatever the order of events: actions [Up] and [Down] alternate,
// starting with Up; at most one attempt runs; a result that does not carry the
// running attempt's generation changes nothing; and from every state either the
// deadline or an event leads on.
package phase
