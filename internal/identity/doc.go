// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package identity decides whether the server behind an address is known to be
// the expected cluster, and over which connection it is queried next. It does
// no I/O, takes no lock and reads no clock: package connection tells a [Ledger]
// what happened, and executes what that decides.
//
// A query proves the connection that it used, and those made before:
//
//	made:      a      b      query over b      c      read
//	           └──────┴───── proven            └── unproven: the read waits
//
// It proves none that was being made at the same time as that one, and none to
// an address that was replaced.
//
// # Tests
//
// The stories in testdata are sessions with one cluster, line by line; each
// covers hazards of test/connecting. TestHazardProxyKeepsConnectionsAcrossClusters
// (test/connecting) is the leading test with servers.
package identity
