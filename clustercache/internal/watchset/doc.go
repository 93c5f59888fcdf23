// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package watchset holds what is wanted of one cluster, and the informer lease
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
//     a worker, again and again (mapping.go);
//  3. bind the want to a lease: index, subscribe, hand over what reads have
//     shown meanwhile (mapping.go, seen.go, shown.go).
//
// To release: part the want, record what the others owe for it (debt.go), and
// only then release the lease. Discovery is checked again and again for kinds
// that are served otherwise by now, to which leases move (remap.go).
//
// Several wants may cover a read. Candidates ranks them, so that no read goes
// back in time (rank.go). Those that select by labels or other fields come last,
// and only where they may know more (partial.go).
//
// # Tests
//
// The leading test is TestWantIsBoundWhenTheClusterConnects.
// TestHazardReadsGoBackToAnInformerThatLags (test/connecting) covers the rank
// of wants. TestHazardObjectReadLiveAndGoneBeforeTheFirstList (test/watching)
// covers what reads have shown.
// TestHazardDefinitionMadeAgainWithAnotherScopeOrPlural (test/reading) covers
// kinds that are served otherwise.
package watchset
