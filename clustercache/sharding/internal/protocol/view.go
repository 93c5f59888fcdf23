// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"strings"
	"time"
)

// The view of the hub's Leases changes by the watch alone. The replica's own
// writes do not change it until the watch shows them, so that the view is at
// all times a state that the hub really had.

// Replace replaces the view with a list that is not older than it.
func (r *Replica) Replace(now time.Time, leases []Lease) {
	present := make(map[string]string, len(leases))
	for _, l := range leases {
		present[l.Name] = l.UID
	}
	for _, m := range slices.Clone(r.members) {
		if present[m.Name] != m.UID {
			r.Forget(m.Lease)
		}
	}
	for n := range r.slots {
		if s := &r.slots[n]; s.exists && present[s.Name] != s.UID {
			r.Forget(s.Lease)
		}
	}
	if r.charter.exists && present[r.charter.Name] != r.charter.UID {
		r.Forget(r.charter.Lease)
	}
	if r.mismatch() && present[r.foreign.Name] != r.foreign.UID {
		r.foreign = Lease{}
	}
	for _, l := range leases {
		r.Observe(now, l)
	}
	r.viewed, r.own.unheard, r.own.refused, r.own.refreshed = true, time.Time{}, false, false
	r.own.renewUntil = now.Add(r.cfg.OwnFor)
}

// Observe adds or replaces a Lease in the view.
func (r *Replica) Observe(now time.Time, l Lease) {
	switch l.Role {
	case Charter:
		r.observeCharter(l)
	case Member:
		r.observeMember(now, l)
	case Slot:
		r.top = max(r.top, l.Token)
		if l.Slot >= 0 && l.Slot < len(r.slots) && l.Name == r.slots[l.Slot].Name {
			s := &r.slots[l.Slot]
			s.Lease, s.exists = l, true
		}
	}
}

// observeCharter compares a charter with the Config. One of another name is of
// another Format.
func (r *Replica) observeCharter(l Lease) {
	if l.Name == r.cfg.Charter {
		r.charter.Lease, r.charter.exists = l, true
		if r.own.uid == "" {
			r.own.unheard = time.Time{} // it was about the charter
		}
	}
	switch {
	case l.Name != r.cfg.Charter, l.Format != Format, l.Slots != r.cfg.Slots, l.Selector != r.cfg.Selector,
		l.Program != r.cfg.Program && l.Program != "" && r.cfg.Program != "":
		r.foreign = l
	case l.Name == r.foreign.Name:
		r.foreign = Lease{}
	}
}

func (r *Replica) observeMember(now time.Time, l Lease) {
	i, found := r.find(l.Name)
	if !found {
		r.members = slices.Insert(r.members, i, &member{})
	}
	m := r.members[i]
	if m.UID != l.UID {
		if m.Draining && l.Name == r.cfg.Member {
			r.restate(true)
		}
		*m = member{
			id:       HolderID(l.Name, l.UID),
			since:    now,
			renewals: -1,
		}
	}
	if m.Revision != l.Revision {
		m.seen = now
		m.renewals++
	}
	if l.Renewal < m.Renewal { // it overtook a later one
		l.Renewal, l.Leaving, l.Plan, l.Warm = m.Renewal, l.Leaving || m.Leaving, m.Plan, m.Warm
		l.Weight, l.Loads = m.Weight, m.Loads
		if l.Draining != m.Draining && l.Name == r.cfg.Member {
			r.restate(m.Draining)
		}
		l.Draining = m.Draining
	}
	m.Lease, m.exists = l, true
	if l.Name != r.cfg.Member {
		return
	}

	r.own.unheard = time.Time{}
	if r.own.drain != nil && l.Renewal > r.own.drainFrom && l.Draining == *r.own.drain {
		r.own.drain = nil
	}
	if r.own.uid != l.UID {
		// Ownership begins with the first renewal: the answer to the creation
		// may belong to another request than this Lease.
		r.own.uid, r.own.id = l.UID, m.id
		r.own.until, r.own.due = time.Time{}, now
		r.own.sent, r.own.shown, r.own.ended = nil, time.Time{}, time.Time{}
		r.own.renewUntil = now.Add(r.cfg.OwnFor)
	}
	for _, s := range r.own.sent {
		if s.number == l.Renewal {
			r.own.shown = s.sent
		}
	}
}

// restate has the next renewal say again what the replica's Lease said about
// draining, unless that is to change: a late renewal, or a restore of the hub, has
// undone it, or the Lease is created anew.
func (r *Replica) restate(draining bool) {
	if r.own.drain == nil {
		r.SetDraining(draining)
	}
}

// renewed extends the ownership by a renewal that the hub has carried out. It
// counts from when that was sent: the answer, or the watch, may have taken any
// time.
func (r *Replica) renewed(now, sent time.Time) {
	until := sent.Add(r.cfg.OwnFor)
	if !until.After(r.own.until) {
		return
	}
	if !r.own.until.IsZero() && !now.Before(r.own.until) {
		r.own.gap, r.own.ended = true, r.own.until
	}
	r.own.until = until
	if until.After(r.own.renewUntil) {
		r.own.renewUntil = until
	}
}

// Forget removes a Lease from the view.
func (r *Replica) Forget(l Lease) {
	switch l.Role {
	case Charter:
		if l.UID == r.charter.UID {
			r.charter.Lease, r.charter.exists = Lease{Name: r.cfg.Charter}, false
		}
		if l.UID == r.foreign.UID {
			r.foreign = Lease{}
		}
	case Member:
		i, found := r.find(l.Name)
		if !found || r.members[i].UID != l.UID {
			return
		}
		if r.members[i].Draining && l.Name == r.cfg.Member {
			r.restate(true)
		}
		r.members = slices.Delete(r.members, i, i+1)
		if l.Name == r.cfg.Member {
			r.own.uid, r.own.id, r.own.plan = "", "", Plan{}
			r.own.until, r.own.unheard = time.Time{}, time.Time{}
			r.own.sent, r.own.shown = nil, time.Time{}
		}
	case Slot:
		if l.Slot < 0 || l.Slot >= len(r.slots) || r.slots[l.Slot].UID != l.UID {
			return
		}
		s := &r.slots[l.Slot]
		s.Lease, s.exists = Lease{Role: Slot, Name: s.Name, Slot: l.Slot}, false
	}
}

func (r *Replica) find(name string) (int, bool) {
	return slices.BinarySearchFunc(r.members, name, func(m *member, name string) int {
		return strings.Compare(m.Name, name)
	})
}

// Answer reports the result of a write, which was sent at the given time. A
// write that was not sent is Unknown.
func (r *Replica) Answer(now, sent time.Time, a Action, o Outcome) {
	h := r.target(a)
	late := (a.Kind == Take || a.Kind == Release) && a.Revision != h.basis // another write is under way
	if h != nil && h.busy && !late {
		h.busy, h.after = false, now.Add(r.cfg.Renew)
	}
	for i := range r.own.sent {
		if a.Kind == Renew && r.own.sent[i].number == a.Renewal {
			r.own.sent[i].answered = true
		}
	}
	if o == Unknown {
		return
	}

	shows := false // the view shows it already
	switch {
	case a.Kind == Found:
		shows = r.charter.exists
	case a.Kind == Join:
		shows = r.own.uid != ""
	case a.Kind == Take || a.Kind == Release || a.Kind == Bury || a.UID != r.own.uid:
		return
	case a.Kind == Quit:
		r.own.quit = true
	case a.Kind == Renew && o == Refused:
		r.own.refused = true
	case a.Kind == Renew:
		r.renewed(now, sent)
		i, found := r.find(a.Name)
		shows = found && a.Renewal > 0 && r.members[i].Renewal >= a.Renewal
	}
	if r.own.unheard.IsZero() && !shows {
		r.own.unheard = now
	}
}

// target returns the Lease that an action writes to, or nil if it is not in the
// view any more, or if several of its kind may be under way.
func (r *Replica) target(a Action) *held {
	switch a.Kind {
	case Found:
		return &r.charter
	case Take, Release:
		return &r.slots[a.Slot].held
	case Quit, Bury:
		if i, found := r.find(a.Name); found && r.members[i].UID == a.UID {
			return &r.members[i].held
		}
	case Join:
		return &r.own.joining
	}
	return nil
}

// Leases returns the members and the slots of the view. Members were renewed
// when the view showed it, by this replica's clock.
func (r *Replica) Leases() (members, slots []Lease) {
	for _, m := range r.members {
		l := m.Lease
		l.Renewed = m.seen
		members = append(members, l)
	}
	for n := range r.slots {
		l := r.slots[n].Lease
		l.Slot = n
		slots = append(slots, l)
	}
	return members, slots
}
