// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package simulation drives the whole library, TLS and HTTP/2 included, against
// in-memory API servers that do everything that real ones were seen to do, in
// the virtual time of testing/synctest. It contains only tests.
//
// A seed decides which objects the clusters hold, what is watched and written,
// and which families of faults strike when:
//
//	seed ──► plan: clusters, kinds, watches, families of faults
//	           │
//	           ▼
//	         chaos: writes, reads, faults that come and go
//	           │
//	           ▼
//	         one fault stays for minutes ──► each answer is true, or an error
//	           │
//	           ▼
//	         healing ──────────────────────► all is right within a bound
//	           │
//	           ▼
//	         rest, last writes ────────────► events, shared watches, nothing
//	                                         left behind
//
// The oracles know nothing of the library: the truth is what the servers store
// and have stored. It is compared with every form of read in every mode, with
// the sequence of events that each handler received, with what the library
// reports about itself, and with the goroutines that are left.
//
// A seed fixes the plan, not the order in which goroutines run, so a failing
// seed may have to be run more than once. Clocks that jump are not simulated:
// the clock of a bubble cannot jump.
//
//	go test ./test/simulation                                # the seeds that failed once, pairs of faults, 200 seeds
//	go test ./test/simulation -seeds 10000 -from 5000        # others
//	go test ./test/simulation -seed 4711 -story              # one again, with all that happened
//	go test ./test/simulation -run TestSeeds -pairs          # two families at once in each
//	go test ./test/simulation -seeds 100 -faults restore-bumped,html   # of these families only
//
// A seed that fails is printed and written to testdata/seeds; every run begins
// with those seeds. docs/testing.md has a table of the families.
package simulation
