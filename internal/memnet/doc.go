// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package memnet is a network in memory, for tests: connections that buffer
// what is written, and can be refused, reset or lost as those of a real
// network.
//
// Everything in it waits on channels, so that it works in a bubble of
// testing/synctest, where who waits for a byte lets the time go on.
package memnet
