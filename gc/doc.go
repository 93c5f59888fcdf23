// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package gc keeps the books of who uses what: owners declare the resources
// they use, a resource is acquired for its first owner and released some time
// after its last, and owners that vanish without a word are found.
//
// Owners and resources are any comparable types. A controller that watches
// remote objects, say, has the objects it reconciles as owners and informers as
// resources. The package imports no Kubernetes.
//
// # Usage
//
// Make a [Collector] with [New], giving it a function that starts a resource,
// one that stops it, and one that says whether an owner still exists. Let
// [Collector.Run] run. Each time an owner works, it says with
// [Collector.Declare] all that it uses, and is done: what it named before and
// not now is let go. [Collector.Drop] is for owners that know they end.
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
// Each names the test that proves it.
//
//  1. What Declare handed out is live, and stays so until the owner lets it go
//     or is found gone (7), whatever is swept, dropped or declared at the same
//     time (TestHandedOutIsLiveThroughARaceOfDeclareDropAndSweep). A Declare
//     that meets a release under way waits for it and acquires anew
//     (TestDeclareWaitsForReleaseAndAcquiresAnew); a release that is due but
//     has not begun gives way (TestDeclareOfWhatIsDueButNotYetReleased).
//  2. Acquire and Release of one resource alternate and never overlap; many
//     owners cause one Acquire (TestDeclareManyOwnersAcquireOnce).
//  3. A resource without owners is released once its grace is over and not
//     before; with Run at that moment, without it in the next Sweep
//     (TestUnusedIsGoneWithinGraceAndOneSweep). Used again within the grace it
//     is not touched (TestDeclareWithinGraceKeepsTheResource).
//  4. Owners are sets: dropping twice, or declaring twice, takes or gives
//     nothing twice (TestDeclareManyOwnersAcquireOnce,
//     TestDeclareIdenticalSetTouchesNothing).
//  5. New resources are held before old ones are let go
//     (TestDeclareHoldsNewBeforeLettingGo), and those in both sets are not
//     touched (TestDeclareReplacesTheSet).
//  6. Declarations of one owner are carried out in order and the last wins;
//     those of different owners do not wait for each other
//     (TestDeclareOfOneOwnerInOrderLastWins). A Drop wins over all that came
//     before it (TestDropOvertakesDeclarationUnderWay).
//  7. An owner is collected only if found gone by two looks at least the grace
//     apart, with no sign of life since the first
//     (TestOneWrongAnswerNeverCollects, TestDecideRandomOwners). Without grace,
//     one look suffices. A declaration that comes during a look wins
//     (TestDeclareDuringLookWins).
//  8. A look that finds nothing out never collects, is repeated, and stops
//     nothing else (TestUnknownNeverCollects).
//  9. An owner in use is looked at after 2 s, and then at intervals that double
//     up to 512 s (TestLooksAtOwnerInUseFromSecondsToEightMinutes), within
//     bounds for all owners together (TestLooksAreBoundedInNumberAndRate). So
//     what a vanished owner used is gone after MaxInterval and the grace, plus
//     the time the two looks take. A query that hangs holds up no release
//     (TestHungLookDelaysNeitherReleasesNorOtherLooks).
//  10. When Run returns, every callback has returned and none will be called any more; that takes no longer than the
//     callbacks take to honour their ctx (TestStopIsPromptAndJoins, TestStopWaitsForCallbacks).
//  11. What was used and let go leaves nothing behind in memory (TestChurnLeavesNothingBehind).
//
// The times in 3, 7 and 9 are measured on the monotonic clock: setting the wall
// clock changes nothing.
//
// # What errors do
//
//   - A failed Acquire concerns its resource only: Declare returns a
//     [*ResourceError] for it, and the rest takes effect. The next Declare
//     tries again (TestDeclareBadResourceFailsAlone).
//   - The end of the ctx of one Declare concerns that call only. It keeps what
//     it added and lets nothing go (TestDeclareCutShortLetsNothingGo), and who
//     waited for its Acquire tries for itself
//     (TestAcquireErrorOfCallerWhoseCtxEndedIsNotShared).
//   - An error of InUse, [ErrPartial] among them, a time-out or a panic means
//     "unknown": nothing is collected, and the owner is looked at again, from
//     MinInterval up. Run logs it, Sweep returns it as an [*OwnerError], and
//     [Collector.Snapshot] shows it.
//   - A panic of a callback becomes a [*PanicError]
//     (TestAcquirePanicIsAnError). A resource whose Release panicked counts as
//     released (TestReleasePanicDoesNotStopRun).
//   - After the end of Run, Declare and Sweep return [ErrClosed]
//     (TestAfterStopErrClosed). Nothing is released then; the books stay
//     readable for whoever tears down the rest.
package gc
