// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package protocol decides which replica owns which slot. A [Replica] is the
// state of one replica as a pure state machine: it is given what the hub shows
// and answers, with the time, and [Replica.Next] returns the writes that are
// due. It uses no clock, lock, I/O or goroutine.
//
//	        watch of Leases      answers, drained
//	              |                     |
//	              v                     v
//	Observe, Replace, Forget      Answer, Drained      SetCounts, Leave
//	              \_____________________|____________________/
//	                                    v
//	                                 Replica
//	                                    |
//	                              Next(now) ──► actions, time of the next call
//	                                    |
//	       hub: Found Join Renew Take Release Bury Quit
//	       own: Gain Drain Lose Warm Cool Refresh
//
// # Leases
//
// A group of replicas has one Lease for itself, the charter, which is written
// once and fixes the number of slots; one for each member; and one for each
// slot. The UID of a member's Lease is the member's incarnation: the hub issues
// it, and never twice. A slot names its holder by that UID, so a slot is held
// as long as the Lease of its holder exists, and deleting that one Lease
// revokes all slots of the member at once. An etcd lease and the keys attached
// to it have the same relation.
//
// The life of a slot's Lease:
//
//	       Take (token+1)              Release, drained
//	free ------------------> held ---------------------------> free
//	  ^                       |
//	  |                       | the holder's Lease is deleted:
//	  +-----------------------+ free, without a write
//
// # Why there are never two owners
//
// A replica owns a slot while three things hold: its view shows the slot with
// its own UID and a token that it has not given up; its member Lease was
// renewed; and, by its own clock, less than Config.OwnFor has passed since it
// sent the last renewal that succeeded: one that was answered so, or that its
// view shows, whatever was answered. Suppose that R1 and R2 own a slot at
// one moment, with tokens k1 < k2; tokens differ, because every Take writes a
// higher one, on condition that the slot is still in the version it replaces.
// After the write of k1 the next write of the slot is one of two:
//
//   - R1 released it. R1 gives up k1 before it sends the release, and never
//     owns by k1 again, whether the release arrives, arrives late, or does not
//     arrive. So R1 is not an owner.
//   - Another replica took it. It did so only because its view showed the slot
//     with R1's UID, but not R1's Lease. The view comes from one watch of all
//     Leases of the group, which shows the changes in the order in which they
//     happened, and R1's Lease was there before R1 could write its UID into the
//     slot. So the Lease had been deleted: by R1, which does that only when it
//     owns nothing, and gains nothing under the Lease from then on, or by a
//     member that took R1 for dead.
//
// A member takes R1 for dead if it has seen no change of R1's Lease for the
// time that the Lease itself states, Config.DeadAfter, by its own clock. It
// deletes the Lease on condition that it is still in the version that it saw
// last. If the deletion succeeds, that version was the last renewal there will
// ever be: R1 sent it before it was seen, and R1's ownership ends OwnFor after
// sending. DeadAfter exceeds OwnFor by more than the rates of two clocks
// differ. So R1's ownership has ended.
//
// Nothing in this depends on the replicas agreeing about who is alive, about
// the assignment of slots, or about the time. Writes that are lost, repeated or
// late cannot break it, since all of them are conditional. What it assumes:
//
//   - two clocks differ in rate by less than DeadAfter/OwnFor, by default 1.5,
//     and run while the process is stopped;
//   - the hub's API server is linearizable per object, and its history is set
//     back only while no API server has run for Config.OwnFor and the watches
//     list anew: all ownership has ended then, and nothing is gained until the
//     view shows a renewal that was sent later;
//   - only replicas of the group write its Leases.
//
// # Why a planned move costs no list
//
// A slot that is only to be moved, because the loads are uneven, has an owner
// that can wait. The member that should have it begins to fill its caches as
// soon as it sees the plan, and its next renewals name the slots for which that
// is done; so this costs no write. The owner drains the slot when it sees that,
// or after Config.WarmFor. It does not drain it for a member that has not
// renewed its Lease for a while, whose death would leave the slot without an
// owner.
//
// # Who plans
//
// The eldest member decides which members should have each slot, as its owner
// and as its standbys, when members, their weights or the numbers of clusters
// have changed, and its Lease carries the [Plan]. What a member that has gone
// owns in the plan goes to the first standby in each replica's view (see
// [succeed]), so nothing waits for the eldest member, which may be the one that
// has gone: the next in age begins with the plan that it saw last.
//
// If each replica planned alone, those that see a change before others would
// begin moves from which these plan again, so that heirs would fill caches for
// nothing, and get slots whose caches they have not filled.
//
// A standby has caches that cost as much as those of an owner, so it has a seat
// in the plan, and keeps it (see [assign]). A seat that its member left stays
// vacant for Config.Return: a replica that restarts, or that replaces another
// one, gets the seats that are vacant, and no other replica fills any cache for
// it.
//
// Weights and drains change plans alone: a planner need not know of them,
// and those that follow a plan must not look at them. So replicas of versions
// that do not know of them are safe in one group with those that do.
//
// # Why every slot is owned again
//
// A replica renews its Lease until Config.OwnFor after it sent the last renewal
// of which it knows that it succeeded, or after the last list. So one that owns
// nothing, since it hears nothing, keeps nothing from the others either, although
// the hub hears it.
//
// All replicas follow the plan of the same Lease and compute the rest from the
// same Leases, so they agree as soon as their views are equal. Views that differ
// cost a move, or a write that fails. A plan is changed only as far as members
// and loads demand, so it has a fixed point.
//
// # Tests
//
// TestSimulation draws faults at random. TestNoInterleavingHasTwoOwners
// explores two replicas completely. TestHubTroubleHaltsNoGroup disturbs the
// hub. TestOraclesNoticeABrokenProtocol breaks each rule once.
package protocol
