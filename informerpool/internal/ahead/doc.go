// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package ahead records what some informers of a resource have shown and others
// have not reached, so that no read goes back in time, although each informer
// follows the server at its own pace:
//
//	informer ──► change, list ──► Changes, by object
//	                         └──► Debts of the others, by what they select
//	                                   │
//	read ──► informer, widest first: ◄─┘ has it reached that?
//	              │ yes: cache          │ no: the next one; none: API server, or stale
//
// The rule:
//
//  1. An informer records each change before it shows it: at which version which
//     object has changed. A Get of that object is answered by no informer that
//     has not reached the version, unless it shows the same.
//  2. It becomes a debt of the other informers that may select the object before
//     or after the change. A list is answered by no informer that owes a change
//     to one that has all of the list.
//  3. A complete list is compared, before it is shown, with the informers that
//     are behind it. What it has in a later state is such a change. What they
//     show and the list lacks, or has in a state that they do not select, they
//     owe until they show it in another state, or have come as far as the list.
//  4. So they do for what they show later, from a version that the list has
//     passed: such an object was created, and is gone again.
//  5. An informer that selects by labels, or by other fields than a name, never
//     decides that an object does not exist, and is asked last.
//  6. What is recorded outlives the informer that has recorded it. It is forgotten
//     when all have reached it.
//  7. A history is a resource's own: an informer that shows an earlier one than
//     another does not answer until it has listed. It lists as soon as another
//     one has entered a later history.
//  8. A list is not older than what informers had shown when it began.
//  9. An informer that continues another one, with its objects and at its
//     position, owes what that one did.
//
// Another epoch may come and go without an informer noticing. Once its own is
// back, it owes all up to the latest version that was shown of that; which
// changes these were is not known any more.
//
// Only versions that are numbers are compared. Where a cluster has one informer
// of a resource, nothing is recorded.
//
// # Tests
//
// TestReadsNeverGoBack visits the states of a model of a server and its
// informers under this rule completely, to a depth; TestReadsNeverGoBackAtRandom
// goes beyond it, and TestTheModelFindsMutants breaks each sentence. With the
// real library, test/pool has TestHazardEpochComesBackForSomeInformers, which is
// beyond the model; test/connecting has
// TestHazardReadsGoBackToAnInformerThatLags, and test/reading
// TestHazardReleasedWatchWasAhead and
// TestHazardObjectLeavesTheLabelThatHasShownIt.
package ahead
