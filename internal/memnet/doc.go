// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package memnet is an in-memory network for tests. Its connections buffer what
// is written, and can be refused, reset or lost like those of a real network.
//
// All waits are on channels, so that the network works in a bubble of
// testing/synctest, where time advances while a goroutine waits for a byte.
package memnet
