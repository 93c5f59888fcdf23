// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package fleettest has what the tests of clustercache and those below test
// share: API servers in memory that fail on demand, a Resolver whose answers
// the test sets, and collectors of events.
//
// Its API server is a small one of its own beside internal/fakeapi. That one
// behaves like a real API server; API lies, hangs and dies at exactly the
// request that a test names, and counts each of them by verb and path.
package fleettest
