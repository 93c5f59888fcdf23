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
	for _, l := range leases {
		r.Observe(now, l)
	}
	r.viewed, r.own.unheard, r.own.refused = true, time.Time{}, false
}

// Observe adds or replaces a Lease in the view.
func (r *Replica) Observe(now time.Time, l Lease) {
	switch {
	case l.Role == Charter && l.Name == r.cfg.Charter:
		r.charter.Lease, r.charter.exists = l, true
		r.mismatch = l.Format != Format || l.Slots != r.cfg.Slots
	case l.Role == Member:
		r.observeMember(now, l)
	case l.Role == Slot && l.Slot >= 0 && l.Slot < len(r.slots) && l.Name == r.slots[l.Slot].Name:
		s := &r.slots[l.Slot]
		s.Lease, s.exists = l, true
		s.top = max(s.top, l.Token)
	}
}

func (r *Replica) observeMember(now time.Time, l Lease) {
	i, found := r.find(l.Name)
	if !found {
		r.members = slices.Insert(r.members, i, &member{})
	}
	m := r.members[i]
	if m.UID != l.UID {
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
	m.Lease, m.exists = l, true
	if l.Name != r.cfg.Member {
		return
	}

	r.own.unheard = time.Time{}
	if r.own.uid != l.UID {
		// Ownership begins with the first renewal: the answer to the creation
		// may belong to another request than this Lease.
		r.own.uid, r.own.id = l.UID, m.id
		r.own.until, r.own.due = time.Time{}, now
	}
}

// Forget removes a Lease from the view.
func (r *Replica) Forget(l Lease) {
	switch l.Role {
	case Charter:
		if l.UID == r.charter.UID {
			r.charter.Lease, r.charter.exists = Lease{Name: r.cfg.Charter}, false
			r.mismatch = false
		}
	case Member:
		i, found := r.find(l.Name)
		if !found || r.members[i].UID != l.UID {
			return
		}
		r.members = slices.Delete(r.members, i, i+1)
		if l.Name == r.cfg.Member {
			r.own.uid, r.own.id, r.own.plan = "", "", Plan{}
			r.own.until, r.own.unheard = time.Time{}, time.Time{}
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
	if h != nil && h.busy {
		h.busy, h.after = false, now.Add(r.cfg.Renew)
	}
	if o == Unknown {
		return
	}

	switch {
	case a.Kind == Found || a.Kind == Join:
	case a.UID != r.own.uid:
		return
	case a.Kind == Quit:
		r.own.quit = true
	case a.Kind == Renew && o == Refused:
		r.own.refused = true
	case a.Kind == Renew:
		// From when it was sent: the answer may have taken any time.
		if until := sent.Add(r.cfg.OwnFor); until.After(r.own.until) {
			r.own.until = until
		}
	}
	if r.own.unheard.IsZero() {
		r.own.unheard = now
	}
}

// target returns the Lease that an action writes to, or nil if it is not in the
// view any more.
func (r *Replica) target(a Action) *held {
	switch a.Kind {
	case Found:
		return &r.charter
	case Take, Release:
		return &r.slots[a.Slot].held
	case Renew, Quit, Bury:
		if i, found := r.find(a.Name); found && r.members[i].UID == a.UID {
			return &r.members[i].held
		}
	case Join:
		return &r.own.joining
	}
	return nil
}
