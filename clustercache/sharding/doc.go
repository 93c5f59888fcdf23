// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package sharding lets the replicas of an operator share a fleet of clusters:
// each cluster is owned by one replica at a time, and goes to another when its
// owner ends, fails, or has too many. Leases on the hub are the only state.
//
//	s, err := sharding.New(mgr.GetConfig(), sharding.Options{
//		Namespace: "operators",
//		Name:      "rollout",
//		Identity:  os.Getenv("POD_NAME"),
//	})
//	...
//	err = mgr.Add(s) // takes part until the manager stops
//
//	if !s.Owns(cluster) {
//		return ctrl.Result{}, nil // another replica reconciles it
//	}
//	ctx, cancel, err := s.Context(ctx, cluster) // for a write
//
// # How it works
//
// Clusters are hashed into slots, 256 by default. Each replica renews a Lease
// of its own every 2 s, and that is all that is written in steady state,
// whatever the number of clusters. Each slot has a Lease too, which is written
// only when the slot changes hands. The replica that joined first plans which
// replica should have which slot, and its Lease carries the plan: slots stay
// where they are as long as the numbers of clusters deviate by less than 10 %
// from the mean, and so do standbys. All follow the plan, and give what a replica
// has that has gone to its standbys, so nothing waits for the one that plans. An
// owner
// that should give up a slot waits until its heir has filled its caches, which
// that says in its next renewal. Then the owner drains the slot, and releases
// it, and the heir sees that by its watch. On shutdown a replica does this for
// all its slots, without the wait: see Options.Standbys.
//
// A replica stops being an owner 10 s after it sent the last renewal that
// succeeded. Others take it for dead once they have seen no renewal for 15 s,
// and begin by deleting its Lease, on condition that nothing has changed: that
// revokes all its slots at once, and it cannot come back by a late renewal. A
// renewal that is refused proves nothing, since a gateway may have answered it:
// the replica lists the Leases, and believes what it sees. A renewal whose
// answer is late or lost counts once the watch shows it, from when it was sent,
// and renewals do not wait for one another: so a slow hub costs no ownership. A
// replica to which neither answers nor the watch show a renewal lists the Leases
// after 7 s. After 10 s it renews no more until a list comes: others would leave
// its slots to it, and it does not own them any more.
//
// The group has a Lease of its own, whose name ends with "-sharding". It says
// which program founded the group, and with how many slots; a replica that
// disagrees does not run.
//
// # What is promised
//
//   - At no time do two replicas own a cluster, each by its own clock
//     (TestSimulation and TestNoInterleavingHasTwoOwners in internal/protocol,
//     where the argument is).
//   - The fencing token of a cluster grows with each owner, whatever the number
//     of slots: [Lease].Token (TestHazardTokensGoBackWithOtherSlots).
//   - After a replica was killed, its clusters are owned again within 20 s
//     (TestKilledReplicaIsReplacedWithin20Seconds); after it was asked to stop,
//     as soon as its work has ended (TestClosedReplicaHandsOverAtOnce).
//   - While the hub does not answer, no replica owns anything, after 10 s. When
//     it is back, all owners are as before (TestNothingIsOwnedWhileTheHubIsAway).
//   - If replicas join or leave, only their share of the clusters moves, and
//     only caches of their share are filled: those of two fleets while all
//     replicas restart, one after another, with one standby
//     (TestHazardRollingRestartFillsCachesOverAndOver in internal/protocol).
//
// # What is assumed
//
//   - The rates of two replicas' clocks differ by less than a half, and clocks
//     run while a process is stopped. The time of day does not matter. A machine
//     that is suspended may stop the monotonic clock; the wall clock is compared
//     as well, so it suffices if one of the two goes on.
//   - The hub's history is set back, as by restoring a backup of its etcd while
//     replicas run, only while its API servers have not run for LeaseDuration.
//     Tokens may go back with it.
//   - The Leases are written by the replicas alone. Deleting the Lease of a
//     replica that runs hands its slots to others up to 10 s before it stops.
//
// # What is not promised
//
// A write that was sent before the ownership ended may be executed after it, if
// the network or the cluster delays it, or if the process is stopped between
// the check and the system call. [Sharding.Context] bounds this: the deadline
// of a write is the end of the ownership as known when it was sent, and another
// replica takes over from one that is dead some 5 s later. Where even that is
// too much, write the token into the object, and compare it there.
//
// A slot whose subscribers do not end their work within Options.DrainTimeout is
// released all the same; contexts of writes have been canceled then.
//
// # Weights, drains and pools
//
// [Options].Weight is a replica's share, and Options.ClusterWeight says how much
// a cluster counts. [Sharding.SetDraining], or an annotation of its Lease,
// empties a replica without ending it, and [Predict] says what a change would
// move. [Owners] says which replica has what, since when, and why a slot has no
// owner.
//
// Which replicas may own a cluster cannot depend on its labels within a group:
// labels change, replicas see that at different moments, and two of them would
// own the cluster. Clusters that only some replicas may have are a group of their
// own, for which Options.Selector says which they are.
//
// # Leader election
//
// A group needs no leader election. What has to happen once for all clusters
// can use [Sharding.Owns] with a key of its own: any key has exactly one owner.
//
// # Tests
//
// The leading test is TestKilledReplicaIsReplacedWithin20Seconds.
// TestHazardAnswerToAWriteIsTakenForAVerdict covers a hub that answers wrongly.
// TestSimulation (internal/protocol) covers the protocol itself.
package sharding
