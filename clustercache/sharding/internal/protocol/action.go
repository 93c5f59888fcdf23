// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import "time"

// Kind is the kind of an action.
type Kind uint8

// Kinds of actions. Those before [Gain] are writes to the hub, whose result has
// to be reported by [Replica.Answer]. The others concern the replica itself.
const (
	// Found creates the group's charter.
	Found Kind = iota
	// Join creates the replica's member Lease.
	Join
	// Renew renews it, on condition of Action.UID.
	Renew
	// Take makes the replica the holder of a slot. It creates the slot's Lease
	// if Action.Revision is empty, and otherwise replaces that revision.
	Take
	// Release makes a slot free, on condition of Action.Revision.
	Release
	// Bury deletes the Lease of a member taken for dead, on condition of
	// Action.UID and Action.Revision.
	Bury
	// Quit deletes the replica's own member Lease, on condition of Action.UID.
	Quit

	// Gain: the replica owns a slot from now on.
	Gain
	// Drain: the slot will go to another replica. Work on it has to end; report
	// that by [Replica.Drained].
	Drain
	// Lose: the replica no longer owns the slot.
	Lose
	// Warm: the replica may have to take over the slot. It precedes Gain. Report
	// by [Replica.Warmed] that the caches of its clusters are filled.
	Warm
	// Cool: the replica neither owns the slot nor may have to take it over.
	Cool
	// Refresh: the watch of Leases is behind; list them again.
	Refresh
)

// Writes reports whether actions of kind k are writes to the hub.
func (k Kind) Writes() bool { return k < Gain }

// Action is a step that the caller has to carry out, in the returned order.
type Action struct {
	Kind Kind
	// Name is the name of the Lease (writes).
	Name string
	// UID and Revision are conditions of the write.
	UID      string
	Revision string
	// Slot is the number of the slot.
	Slot int
	// Holder is what the slot's Lease gets (Take).
	Holder string
	// Token is the slot's fencing token, or the number of the Warm.
	Token int64
	// Renewal, Leaving, Plan, Warm, Weight and Loads are what the member Lease
	// gets, and Draining, unless it is nil (Renew).
	// Several renewals may be under way: Renewal numbers them, so that the
	// replica knows its own when the view shows it, and others know the newest.
	Renewal  int64
	Leaving  bool
	Plan     Plan
	Warm     Set
	Weight   int
	Loads    map[int]int
	Draining *bool
	// Until bounds the drain (Drain).
	Until time.Time
}

// Outcome is the result of a write.
type Outcome uint8

// Outcomes.
const (
	// Done: the hub carried out the write.
	Done Outcome = iota
	// Refused: the hub answered that the condition of the write was not met. It
	// may have been carried out all the same, and a gateway may have answered:
	// what the view shows decides.
	Refused
	// Unknown: any other result. The write may have been carried out, and may
	// still be.
	Unknown
)
