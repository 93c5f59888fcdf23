// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package connection keeps one cluster connected: it resolves the access,
// proves it, identifies the server, and probes it. A [Connection] executes what
// package phase decides, and guards every request: no request is sent to a
// server that is not known to be the expected cluster, and no answer of another
// one is returned.
//
// To look up:
//  1. which events there are and what follows from them: step.go and act.go;
//  2. how an attempt to connect works: connect.go;
//  3. how the identity is queried, and who waits for that: identity.go,
//     question.go and proof.go; package identity decides when it is proven;
//  4. what requests wait for: guard.go and provenconn.go;
//  5. what one of several API servers answers, and what that proves: member.go
//     and health.go.
//
// # Tests
//
// The leading test is TestEachFailureHasItsPhaseAndReasonAndHealsByItself
// (test/connecting). That package has all others, by theme.
// TestHazardProxyKeepsConnectionsAcrossClusters covers the identity.
// TestHazardBalancerThatNoticesLate covers several servers behind one address.
package connection
