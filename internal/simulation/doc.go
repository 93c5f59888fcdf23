// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package simulation drives the whole library, TLS and HTTP/2 included, against
// API servers in memory that do everything that real ones were seen to do, in
// the virtual time of testing/synctest. There is nothing in it but tests.
//
// A seed decides what the clusters hold, what is watched, what is written, and
// which families of faults strike when. A run goes through chaos, a fault that
// stays for minutes, healing, and rest. Its oracles know nothing of the
// library: the truth is what the servers store and stored, and it is held
// against every form of a read in every mode, against the sequence of events
// that each handler was given, against what the library says of itself, and
// against the goroutines that are left.
//
// A seed fixes the plan, not the order in which goroutines run, so a failing
// seed may have to be run more than once. Clocks that jump are left out: the
// clock of a bubble cannot.
//
//	go test ./internal/simulation                                # 500 seeds
//	go test ./internal/simulation -seeds 10000 -from 5000        # others
//	go test ./internal/simulation -seed 4711 -story              # one again, with all that happened
//	go test ./internal/simulation -seeds 100 -faults restore-bumped,html   # of these families only
//
// A seed that fails prints itself and is written to testdata/seeds, which every
// run begins with. docs/testing.md has a table of the families.
package simulation
