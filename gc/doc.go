// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package gc tracks which owners use which resources: owners declare the
// resources they use, a resource is acquired for its first owner and released
// some time after its last, and owners that vanish without notice are detected.
//
//	         Acquire ok             last owner freed it, and grace is over
//	Acquiring ---------> Held -----------------------------------> Releasing
//	    |                 ^  |                                         |
//	    v failed          +--+ used again within the grace             v
//	not recorded                                                  not recorded
//
// Owners and resources are of any comparable types. In a controller that
// watches remote objects, for example, the reconciled objects are the owners
// and the informers are the resources. The package does not import Kubernetes.
//
// # Usage
//
// Create a [Collector] with [New]. Its options have a function that starts a
// resource, one that stops it, and one that reports whether an owner still
// exists. Run [Collector.Run]. Each time an owner works, it declares with
// [Collector.Declare] everything it uses: resources that it named before but
// not now are freed. [Collector.Drop] is for owners that know when they end.
// [Collector.Sweep] does one round at once, with or without Run.
//
//	c, err := gc.New(gc.Options[types.NamespacedName, Kind]{
//		Acquire: func(ctx context.Context, kind Kind) error { return informers.Start(kind) },
//		Release: func(kind Kind) { informers.Stop(kind) },
//		InUse:   func(ctx context.Context, owner types.NamespacedName) (bool, error) { return exists(ctx, owner) },
//	})
//	...
//	go c.Run(ctx)
//	...
//	change, err := c.Declare(ctx, owner, kinds...)
//
// # Guarantees
//
// Each guarantee names the test that proves it.
//
//  1. A resource returned by Declare is live, and stays live until the owner
//     frees it or is found gone (7), whatever is swept, dropped or declared at
//     the same time (TestHandedOutIsLiveThroughARaceOfDeclareDropAndSweep). A
//     Declare that meets a release under way waits for it and acquires anew
//     (TestDeclareWaitsForReleaseAndAcquiresAnew); a release that is due but
//     has not begun gives way (TestDeclareOfWhatIsDueButNotYetReleased).
//  2. Acquire and Release of one resource alternate and never overlap; many
//     owners cause one Acquire (TestDeclareManyOwnersAcquireOnce).
//  3. A resource without owners is released once its grace is over and not
//     before: at that moment if Run runs, else in the next Sweep
//     (TestUnusedIsGoneWithinGraceAndOneSweep). If it is used again within the
//     grace, it is not touched (TestDeclareWithinGraceKeepsTheResource).
//  4. Owners are sets: dropping or declaring twice has the effect of doing so
//     once (TestDeclareManyOwnersAcquireOnce,
//     TestDeclareIdenticalSetTouchesNothing).
//  5. New resources are held before old ones are freed
//     (TestDeclareHoldsNewBeforeLettingGo), and those in both sets are not
//     touched (TestDeclareReplacesTheSet).
//  6. Declarations of one owner are carried out in order and the last wins;
//     those of different owners do not wait for each other
//     (TestDeclareOfOneOwnerInOrderLastWins). A Drop wins over every
//     declaration that came before it (TestDropOvertakesDeclarationUnderWay).
//  7. An owner is collected only if found gone by two looks at least the grace
//     apart, with no sign of life since the first
//     (TestOneWrongAnswerNeverCollects, TestDecideRandomOwners): the second one
//     begins so long after the first ended
//     (TestHazardLooksThatOverlapCollectAnOwner). Without grace, one look
//     suffices. A declaration that comes during a look wins
//     (TestDeclareDuringLookWins). Options.Collected is called for each owner
//     that is collected, once, and for no other (TestCollectedIsCalledOnce).
//  8. An inconclusive look never collects, is repeated, and stops nothing else
//     (TestUnknownNeverCollects).
//  9. An owner in use is looked at after 2 s, and then at intervals that double
//     up to 512 s (TestLooksAtOwnerInUseFromSecondsToEightMinutes), within
//     bounds for all owners together (TestLooksAreBoundedInNumberAndRate). So
//     the resources of a vanished owner are released after MaxInterval and the
//     grace, plus the time the two looks take. A query that hangs holds up no
//     release (TestHungLookDelaysNeitherReleasesNorOtherLooks).
//  10. When Run returns, every callback has returned and none will be called
//     any more; that takes no longer than the callbacks take to honor their ctx
//     (TestStopIsPromptAndJoins, TestStopWaitsForCallbacks).
//  11. Resources and owners that were used and freed leave nothing behind in
//     memory (TestChurnLeavesNothingBehind).
//
// The times in 3, 7 and 9 are measured on the monotonic clock: setting the wall
// clock changes nothing.
//
// # Errors
//
//   - A failed Acquire concerns its resource only: Declare returns a
//     [*ResourceError] for it, and the rest takes effect. The next Declare
//     tries again (TestDeclareBadResourceFailsAlone).
//   - The end of the ctx of one Declare concerns that call only. It keeps the
//     resources it added and frees none (TestDeclareCutShortLetsNothingGo), and
//     callers that waited for its Acquire try for themselves
//     (TestAcquireErrorOfCallerWhoseCtxEndedIsNotShared).
//   - An error of InUse (including [ErrPartial]), a timeout or a panic means
//     "unknown": nothing is collected, and the owner is looked at again, from
//     MinInterval up. Run logs it, Sweep returns it as an [*OwnerError], and
//     [Collector.Snapshot] shows it.
//   - A panic of a callback becomes a [*PanicError]
//     (TestAcquirePanicIsAnError). A resource whose Release panicked counts as
//     released (TestReleasePanicDoesNotStopRun), as does one whose Release ended
//     its goroutine (TestHazardReleaseEndsTheLoop).
//   - After the end of Run, Declare and Sweep return [ErrClosed]
//     (TestAfterStopErrClosed). Nothing is released then; the records stay
//     readable for the code that tears down the rest.
//
// # Tests
//
// The leading test is TestHandedOutIsLiveThroughARaceOfDeclareDropAndSweep.
// TestDecideRandomBooks covers the pure core.
package gc
