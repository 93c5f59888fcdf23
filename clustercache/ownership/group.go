// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import "time"

// Group is which replica of a group has what, and why not.
type Group struct {
	// Trouble is why this is not how the group is now, if so: the replica that
	// was asked does not take part, or the hub does not answer it.
	Trouble string `json:"trouble,omitempty"`
	// Replicas are those that take part, by identity, and Slots all slots, by
	// number.
	Replicas []Replica `json:"replicas"`
	Slots    []Holding `json:"slots"`
}

// Replica is what a replica has. One that has restarted is there twice until the
// Lease of its former process is deleted.
type Replica struct {
	Identity string `json:"identity"`
	// Since is when it joined the group, by the hub's clock, and Renewed when it
	// last renewed its Lease.
	Since   time.Time `json:"since"`
	Renewed time.Time `json:"renewed"`
	// Owned and StandsBy are how many slots it owns, and stands by for.
	Owned    int `json:"owned"`
	StandsBy int `json:"standsBy"`
	// State is "silent" if it has not renewed its Lease for so long that it owns
	// nothing, "leaving", "draining", "joining" if the plan does not have it yet,
	// or empty.
	State string `json:"state,omitempty"`
}

// Holding is who has a slot.
type Holding struct {
	Slot int `json:"slot"`
	// Owner is the identity of the replica that owns the slot; empty if none
	// does. Standbys are those that stand by for it, in the order in which they
	// would take it over.
	Owner    string   `json:"owner,omitempty"`
	Standbys []string `json:"standbys,omitempty"`
	// Since is when the owner took the slot, by its clock. Without one, it is
	// when the slot was last taken or released, or zero if that is not known.
	Since time.Time `json:"since,omitzero"`
	// Token is the fencing token of the last ownership.
	Token int64 `json:"token,omitempty"`
	// Weight is the number of the slot's clusters, or the sum of their weights,
	// by the plan.
	Weight int `json:"weight,omitempty"`
	// Reason is why the slot has no owner, or is about to get another one. It is
	// empty if all is as planned.
	Reason string `json:"reason,omitempty"`
}
