// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package wants holds what is wanted of one cluster, and the informer lease
// of each want:
//
//	Watch, Declare, Subscription, AutoWatch reads
//	        │ Acquire, Keep          ▲ OnBound, Listen
//	        ▼                        │
//	Set: Selection ──► Want ──► informerpool.Lease
//	                    │  ▲
//	                    ▼  │ by worker, while Connected
//	             Mapper: kind ──► resource
//
// To acquire:
//
//  1. add a reference to the want of the selection;
//  2. map its kind to a resource: at once if discovery is known, otherwise on
//     a worker, again and again (kinds.go);
//  3. bind the want to a lease: index, subscribe, hand over what live reads have
//     shown meanwhile (bind.go, seen.go).
//
// To release: part the want, follow those that it has answered for and that are
// behind it (lag.go), and release the lease. Discovery is checked again and
// again for kinds that are served otherwise by now, to which leases move
// (kinds.go).
//
// Several wants may cover a read. The widest is asked first, and answers unless
// another one has shown a later state (package ahead of informerpool). Those that
// select by labels or other fields come last (index.go).
//
// # Tests
//
// The leading test is TestWantIsBoundWhenTheClusterConnects.
// TestHazardReadsGoBackToAnInformerThatLags (test/connecting) covers wants of
// which one lags. TestHazardObjectReadLiveAndGoneBeforeTheFirstList (test/watching)
// covers what reads have shown.
// TestHazardDefinitionMadeAgainWithAnotherScopeOrPlural (test/reading) covers
// kinds that are served otherwise.
package wants
