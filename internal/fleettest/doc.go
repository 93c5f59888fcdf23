// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package fleettest has what the tests of clustercache and those below test
// share: API servers in memory that fail on demand, a Resolver whose answers
// the test sets, and collectors of events.
//
// API is a server of internal/fakeapi on an in-memory network. It lies, hangs
// and dies at exactly the request that a test names, and counts requests by
// verb and path.
package fleettest
