// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import "slices"

// Candidate is a member that may get slots.
type Candidate struct {
	ID, Identity string
	// Weight is the member's share, in percent of an ordinary one.
	Weight int
}

// Candidate returns the member as a candidate, by its Lease.
func (l *Lease) Candidate() Candidate {
	m := member{held: held{Lease: *l}}
	return Candidate{ID: HolderID(l.Name, l.UID), Identity: l.Identity, Weight: m.weight()}
}

// Predict returns the plan into which base would change with other members,
// counts, standbys or slots, once no seat is kept vacant any more. Another number
// of slots begins anew.
func Predict(base Plan, members []Candidate, counts []int, standbys, slots int) Plan {
	var c crew
	next := Plan{Counts: counts}
	for _, m := range members {
		next.Members = append(next.Members, m.ID)
		c.identities, c.weights = append(c.identities, m.Identity), append(c.weights, m.Weight)
	}
	var index []int
	for _, m := range base.Members {
		index = append(index, slices.Index(next.Members, m))
	}
	have := seats{owners: renumbered(base.Owners, index, slots)}
	for i := range standbys {
		var rank []int
		if i < len(base.Standbys) {
			rank = base.Standbys[i]
		}
		have.standbys = append(have.standbys, renumbered(rank, index, slots))
	}
	after := assign(c, have, counts, true)
	next.Owners, next.Standbys = after.owners, after.standbys

	return next
}

// Holds reports whether a member has a slot in the plan, as its owner or as a
// standby.
func (p *Plan) Holds(slot int, id string) bool {
	if p.Owner(slot) == id {
		return true
	}
	return slices.ContainsFunc(p.Standbys, func(rank []int) bool {
		return rank[slot] >= 0 && p.Members[rank[slot]] == id
	})
}

// Owner returns the HolderID of the member that should own a slot, or nothing.
func (p *Plan) Owner(slot int) string {
	if slot >= len(p.Owners) || p.Owners[slot] < 0 {
		return ""
	}
	return p.Members[p.Owners[slot]]
}
