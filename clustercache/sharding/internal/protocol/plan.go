// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"slices"
	"strings"
)

// Plan is which member should have each slot. The eldest member makes it, and
// its Lease carries it.
type Plan struct {
	// Members are the HolderIDs of the members that get slots.
	Members []string
	// Owners has an index of Members for each slot.
	Owners []int
	// Counts are the clusters by slot, as the eldest member knows them. It may
	// be empty.
	Counts []int
}

// fits reports whether p is a plan for a number of slots.
func (p *Plan) fits(slots int) bool {
	return len(p.Owners) == slots && !slices.ContainsFunc(p.Owners, func(i int) bool {
		return i < 0 || i >= len(p.Members)
	})
}

// inputs are all that an assignment depends on. They are compared to find out
// whether a new one is needed.
type inputs struct {
	ids        []string // HolderIDs of members
	identities []string
	holders    []int // by slot, indexes of ids, or -1
	counts     []int
}

func (a *inputs) equal(b *inputs) bool {
	return slices.Equal(a.ids, b.ids) && slices.Equal(a.holders, b.holders) && slices.Equal(a.counts, b.counts)
}

// planning follows the plan of the eldest member. If that is the replica
// itself, it makes one when members, or its clusters, have changed.
func (s *step) planning() {
	if !s.healthy() {
		return
	}
	eldest := s.eldest()
	if eldest != nil && eldest.Plan.fits(len(s.slots)) {
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
	in := s.gather(base, s.eligible)
	in.counts = base.Counts
	if len(base.Members) == 0 || s.reached(s.own.due) { // they change often while clusters are found
		in.counts = s.own.counts
	}
	if len(s.own.plan.Members) > 0 && in.equal(&s.planned) {
		return
	}
	in.holders = assign(in.identities, in.holders, in.counts)
	s.planned = in
	s.own.plan = Plan{
		Members: in.ids,
		Owners:  in.holders,
		Counts:  in.counts,
	}
	s.own.due = s.now
}

// follow computes who should have each slot: the member that has it in the
// plan, or, if that has gone, another of the plan. All replicas compute the same
// until the eldest member has planned without the one that has gone.
func (s *step) follow() {
	in := s.gather(s.published, func(m *member) bool {
		return slices.Contains(s.published.Members, m.id) && s.present(m)
	})
	in.counts = s.published.Counts
	if in.equal(&s.followed) {
		return
	}
	s.followed = in
	s.owners = assign(in.identities, in.holders, in.counts)
	s.standby = make([]bool, len(s.owners))
	self := slices.Index(in.ids, s.ID())
	for n, line := range nextInLine(in.identities, s.owners, in.counts, s.cfg.Standbys) {
		s.standby[n] = self >= 0 && slices.Contains(line, self)
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
// they have by a plan. Without a plan, they have what they hold.
func (s *step) gather(base Plan, gets func(*member) bool) inputs {
	in := inputs{holders: make([]int, len(s.slots))}
	for _, m := range s.members {
		if gets(m) && !s.superseded(m, gets) {
			in.ids = append(in.ids, m.id)
			in.identities = append(in.identities, m.Identity)
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
	for n, owner := range base.Owners {
		in.holders[n] = -1
		if owner >= 0 {
			in.holders[n] = index[owner]
		}
	}

	return in
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
