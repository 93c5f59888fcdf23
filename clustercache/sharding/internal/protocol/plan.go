// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import "slices"

// inputs are all that a plan depends on. It is compared to find out whether a
// new plan is needed.
type inputs struct {
	names      []string // of members that get slots, in order
	ids        []string // their HolderIDs
	identities []string
	holders    []int
	counts     []int
}

func (a *inputs) equal(b *inputs) bool {
	return slices.Equal(a.ids, b.ids) && slices.Equal(a.holders, b.holders) && slices.Equal(a.counts, b.counts)
}

// plan is which member should have each slot.
type plan struct {
	names   []string // of members
	ids     []string // their HolderIDs
	owners  []int    // by slot, indexes of names, or -1
	standby []bool   // by slot: the replica stands by for it
}

func (p *plan) owner(slot int) string {
	if len(p.owners) == 0 || p.owners[slot] < 0 {
		return ""
	}
	return p.names[p.owners[slot]]
}

// heir returns the HolderID of the member that should have a slot, or nothing.
func (p *plan) heir(slot int) string {
	if len(p.owners) == 0 || p.owners[slot] < 0 {
		return ""
	}
	return p.ids[p.owners[slot]]
}

func (p *plan) standsBy(slot int) bool { return len(p.standby) > 0 && p.standby[slot] }

// replan computes the plan if its inputs have changed.
func (s *step) replan() {
	in := s.gather()
	if in.equal(&s.inputs) {
		return
	}

	s.inputs = in
	s.plan = plan{
		names:   in.names,
		ids:     in.ids,
		owners:  assign(in.identities, in.holders, in.counts),
		standby: make([]bool, len(in.holders)),
	}
	self := slices.Index(in.names, s.cfg.Member)
	for n, line := range nextInLine(in.identities, s.plan.owners, in.counts, s.cfg.Standbys) {
		s.plan.standby[n] = self >= 0 && slices.Contains(line, self)
	}
}

// gather collects the inputs of the plan: the members that are alive, known for
// a while and not leaving; what they hold; and the counts of the eldest of
// them, so that all replicas compute with the same.
func (s *step) gather() inputs {
	in := inputs{holders: make([]int, len(s.slots))}
	index := make(map[string]int, len(s.members))
	seats := make(map[string]*member, len(s.members))
	var eldest *member
	for _, m := range s.members {
		if s.eligible(m) && (seats[m.Identity] == nil || seats[m.Identity].Created.Before(m.Created)) {
			seats[m.Identity] = m
		}
	}
	for _, m := range s.members {
		if seats[m.Identity] != m {
			continue
		}
		index[m.id] = len(in.ids)
		in.ids = append(in.ids, m.id)
		in.names = append(in.names, m.Name)
		in.identities = append(in.identities, m.Identity)
		if eldest == nil || m.Created.Before(eldest.Created) {
			eldest, in.counts = m, m.Counts
		}
	}
	// A replica that has restarted gets what its predecessor leaves, whose
	// Lease outlives it for a while.
	for _, m := range s.members {
		if seat := seats[m.Identity]; seat != nil {
			index[m.id] = index[seat.id]
		}
	}
	for n := range s.slots {
		in.holders[n] = -1
		if i, ok := index[s.keeper(&s.slots[n])]; ok {
			in.holders[n] = i
		}
	}

	return in
}

// eligible reports whether a member gets slots: it is known for a while, and has
// renewed its Lease since it joined, so one that ends at once gets none.
func (s *step) eligible(m *member) bool {
	alive, leaving := !s.reached(m.seen.Add(m.TTL)), m.Leaving
	if m.Name == s.cfg.Member {
		alive, leaving = true, s.own.leaving
	}
	renewed := !m.seen.Before(m.since.Add(s.cfg.Renew / 2)) // which it also does right after joining
	return alive && !leaving && (renewed || s.cfg.Settle == 0) && s.reached(m.since.Add(s.cfg.Settle))
}

// keeper returns the HolderID of the member that the plan begins with: a move
// that has begun is as good as done, or the next plan would choose another.
func (s *step) keeper(slot *slot) string {
	switch {
	case slot.Holder == "":
		return slot.Heir
	case slot.Holder == s.ID() && (!slot.draining.IsZero() || slot.Token <= slot.givenUp):
		return slot.heir
	}
	return slot.Holder
}
