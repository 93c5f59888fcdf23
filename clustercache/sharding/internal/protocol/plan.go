// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"slices"
	"strings"
)

// Plan is which members should have each slot. The eldest member makes it, and
// its Lease carries it.
type Plan struct {
	// Members are the HolderIDs of the members that get slots.
	Members []string
	// Owners has an index of Members for each slot.
	Owners []int
	// Standbys have the same for each slot, by rank, or -1. There are none in
	// plans of members that do not plan standbys.
	Standbys [][]int
	// Counts are the clusters by slot, by their weights, as the eldest member
	// knows them. It may be empty.
	Counts []int
}

// Fits reports whether p is a plan for a number of slots.
func (p *Plan) Fits(slots int) bool {
	within := func(rank []int, least int) bool {
		return len(rank) == slots && !slices.ContainsFunc(rank, func(i int) bool {
			return i < least || i >= len(p.Members)
		})
	}
	for _, rank := range p.Standbys {
		if !within(rank, -1) {
			return false
		}
	}
	return len(p.Members) > 0 && within(p.Owners, 0)
}

// inputs are all that an assignment depends on. They are compared to find out
// whether a new one is needed.
type inputs struct {
	ids []string // HolderIDs of members
	crew
	seats
	counts []int
	fill   bool // vacant seats are filled
}

func (a *inputs) equal(b *inputs) bool {
	return slices.Equal(a.ids, b.ids) && slices.Equal(a.weights, b.weights) && a.seats.equal(b.seats) &&
		slices.Equal(a.counts, b.counts) && a.fill == b.fill
}

// planning follows the plan of the eldest member. If that is the replica
// itself, it makes one when members, or its clusters, have changed. Seats of a
// standby that has gone stay vacant for a while, for the next replica that
// joins: most probably that is the same one, or its successor.
func (s *step) planning() {
	if !s.healthy() {
		return
	}
	eldest := s.eldest()
	if eldest != nil && eldest.Plan.Fits(len(s.slots)) {
		s.published = eldest.Plan
	}
	if eldest == nil || eldest.Name != s.cfg.Member || !s.eligible(eldest) {
		s.own.plan = Plan{}
		return
	}

	base := s.own.plan
	if len(base.Members) == 0 {
		base = s.published
	}
	in, left := s.gather(base, s.eligible)
	if left {
		s.own.vacated = s.now
	}
	in.fill = s.reached(s.own.vacated.Add(s.cfg.Return))
	if len(in.standbys) != s.cfg.Standbys {
		in.fill = true
		in.standbys = in.standbys[:min(len(in.standbys), s.cfg.Standbys)]
		for len(in.standbys) < s.cfg.Standbys {
			in.standbys = append(in.standbys, slices.Repeat([]int{-1}, len(s.slots)))
		}
	}
	in.counts = base.Counts
	if len(base.Members) == 0 || s.reached(s.own.due) { // they change often while clusters are found
		in.counts = s.counted()
	}
	if len(s.own.plan.Members) > 0 && in.equal(&s.planned) {
		return
	}
	in.seats = assign(in.crew, in.seats, in.counts, in.fill)
	s.planned = in
	s.own.plan = Plan{
		Members:  in.ids,
		Owners:   in.owners,
		Standbys: in.standbys,
		Counts:   in.counts,
	}
	s.own.due = s.now
}

// counted returns the clusters of each slot by their weights, as far as members
// say these: its holder, another one that keeps its caches, or who held it last.
// Others are of the mean weight.
func (s *step) counted() []int {
	count := func(n int) int {
		if n < len(s.own.counts) {
			return s.own.counts[n]
		}
		return 0
	}
	loads := make([]int, len(s.slots))
	for _, m := range s.members {
		for n, load := range m.Loads {
			if n < len(loads) && (loads[n] == 0 || s.slots[n].Holder == m.id) {
				loads[n] = load
			}
		}
	}
	known, clusters := 0, 0
	for n := range loads {
		slot := &s.slots[n]
		if loads[n] == 0 && count(n) > 0 {
			loads[n] = slot.load
		}
		slot.load = loads[n]
		if loads[n] > 0 {
			known += loads[n]
			clusters += count(n)
		}
	}
	if known == 0 || clusters == 0 {
		return s.own.counts
	}
	for n := range loads {
		if loads[n] == 0 {
			loads[n] = count(n) * known / clusters
		}
	}
	return loads
}

// follow computes who should have each slot: the member that has it in the
// plan, or, if that has gone, its standby. All replicas compute the same until
// the eldest member has planned without the one that has gone.
func (s *step) follow() {
	in, _ := s.gather(s.published, func(m *member) bool {
		return slices.Contains(s.published.Members, m.id) && s.present(m)
	})
	in.counts = s.published.Counts
	// The plan alone decides who gets nothing. Otherwise those that know of a
	// weight, and those that do not, would each leave a slot to the other.
	in.weights = slices.Repeat([]int{1}, len(in.weights))
	if in.equal(&s.followed) {
		return
	}
	s.followed = in
	seats := succeed(in.crew, in.seats, in.counts, s.cfg.Standbys)
	s.owners = seats.owners
	s.standby = make([]bool, len(s.owners))
	self := slices.Index(in.ids, s.ID())
	for n := range s.standby {
		rank := seats.rank(n, self)
		s.standby[n] = self >= 0 && rank >= 0 && rank < s.cfg.Standbys
	}
}

// owner returns the HolderID of the member that should have a slot, or nothing.
func (s *step) owner(slot int) string {
	if len(s.owners) == 0 || s.owners[slot] < 0 {
		return ""
	}
	return s.followed.ids[s.owners[slot]]
}

// gather collects the members that get slots, one for each identity, and what
// they have by a plan. Without a plan, they have what they hold. It reports
// whether a member of the plan has left.
func (s *step) gather(base Plan, gets func(*member) bool) (in inputs, left bool) {
	for _, m := range s.members {
		if gets(m) && !s.superseded(m, gets) {
			in.ids = append(in.ids, m.id)
			in.identities = append(in.identities, m.Identity)
			in.weights = append(in.weights, m.weight())
		}
	}
	if len(base.Owners) == 0 {
		base = s.held()
	}
	// A replica that has restarted gets what its predecessor leaves, whose
	// Lease outlives it for a while.
	index := slices.Repeat([]int{-1}, len(base.Members))
	for _, m := range s.members {
		if i := slices.Index(base.Members, m.id); i >= 0 {
			index[i] = slices.Index(in.identities, m.Identity)
		}
	}
	in.owners = renumbered(base.Owners, index, len(s.slots))
	for _, rank := range base.Standbys {
		in.standbys = append(in.standbys, renumbered(rank, index, len(s.slots)))
	}

	return in, slices.Contains(index, -1)
}

// renumbered returns a rank of seats with other indexes of the members, given by
// the former ones. Seats of members that have none, and all seats of a rank of
// another number of slots, are vacant.
func renumbered(rank, index []int, slots int) []int {
	out := slices.Repeat([]int{-1}, slots)
	for n, m := range rank {
		if m >= 0 && len(rank) == slots {
			out[n] = index[m]
		}
	}
	return out
}

// held returns what the members hold, as a plan. Slots that are free have the
// owner -1.
func (s *step) held() Plan {
	p := Plan{Owners: make([]int, len(s.slots))}
	for _, m := range s.members {
		p.Members = append(p.Members, m.id)
	}
	for n := range s.slots {
		p.Owners[n] = slices.Index(p.Members, s.slots[n].Holder)
	}
	return p
}

// eldest returns the member that makes the plan, or nil.
func (s *step) eldest() *member {
	var eldest *member
	for _, m := range s.members {
		if (eldest == nil || m.older(eldest)) && s.present(m) && !s.superseded(m, s.present) {
			eldest = m
		}
	}
	return eldest
}

// superseded reports whether a replica has restarted, by a later member of the
// same identity.
func (s *step) superseded(m *member, by func(*member) bool) bool {
	return slices.ContainsFunc(s.members, func(o *member) bool {
		return o.Identity == m.Identity && m.older(o) && by(o)
	})
}

// weight is the member's share, in percent of an ordinary one.
func (m *member) weight() int {
	switch {
	case m.Draining:
		return 0
	case m.Weight <= 0:
		return DefaultWeight
	}
	return min(m.Weight, MaxWeight)
}

// older reports whether m joined before o.
func (m *member) older(o *member) bool {
	return cmp.Or(m.Created.Compare(o.Created), strings.Compare(m.Name, o.Name)) < 0
}

// present reports whether a member is alive and stays.
func (s *step) present(m *member) bool {
	if m.Name == s.cfg.Member {
		return !s.own.leaving
	}
	return !m.Leaving && !s.reached(m.seen.Add(m.TTL))
}

// eligible reports whether a member gets slots in a new plan: it has been known
// for a while, and has renewed its Lease twice, since it does so once right
// after it joined. So one that ends at once gets none.
func (s *step) eligible(m *member) bool {
	settled := (m.renewals > 1 || s.cfg.Settle == 0) && s.reached(m.since.Add(s.cfg.Settle))
	return s.present(m) && (settled || slices.Contains(s.published.Members, m.id))
}
