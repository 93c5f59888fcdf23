// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import "time"

// Role is what a Lease is for.
type Role uint8

// Roles of Leases.
const (
	// Charter: the Lease of the group.
	Charter Role = iota
	// Member: the Lease of a replica.
	Member
	// Slot: the Lease of a slot.
	Slot
)

// Lease is what the protocol reads from a Lease of the hub.
type Lease struct {
	Role     Role
	Name     string
	UID      string
	Revision string
	Created  time.Time

	// Format, Slots, Program and Selector are what all members have to agree on
	// (Charter).
	Format   string
	Slots    int
	Program  string
	Selector string

	// Identity is the stable name of the replica, such as that of its Pod
	// (Member).
	Identity string
	// Renewed is when it was renewed, by the clock of its replica (Member).
	Renewed time.Time
	// TTL is how long the Lease has to be seen unchanged before its member is
	// taken for dead (Member).
	TTL time.Duration
	// Renewal is the number of the last renewal: see Action.Renewal (Member).
	Renewal int64
	// Leaving: the member takes no more slots (Member).
	Leaving bool
	// Plan is what the member has planned if it is the eldest (Member).
	Plan Plan
	// Weight is the member's share, in percent of an ordinary one, or 0 if it
	// says none; Draining: it is to get nothing at all (Member).
	Weight   int
	Draining bool
	// Loads are the sums of the weights of clusters, by slot, where the member
	// says them (Member).
	Loads map[int]int
	// Warm are the slots whose clusters the member's caches have (Member).
	Warm Set

	// Slot is the slot's number (Slot).
	Slot int
	// Holder is the [HolderID] of the member that took the slot last. It is
	// empty if that member released it (Slot).
	Holder string
	// Token is higher than those of all former owners of the slot, and of its
	// clusters (Slot).
	Token int64
	// Since is when the Holder took the slot, or the last one released it, by
	// the clock of that replica. It is zero if that replica did not say when it
	// released it (Slot).
	Since time.Time
}

// Set is a set of slots, a bit for each.
type Set []byte

// Has reports whether a slot is in the set.
func (s Set) Has(slot int) bool { return slot/8 < len(s) && s[slot/8]&(1<<(slot%8)) != 0 }

func (s *Set) add(slot int) {
	for len(*s) <= slot/8 {
		*s = append(*s, 0)
	}
	(*s)[slot/8] |= 1 << (slot % 8)
}

// HolderID identifies an incarnation of a member. The name is there for people.
func HolderID(name, uid string) string { return name + "/" + uid }
