// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"time"
)

// Next returns the actions that are due, and when to call Next again if nothing
// happens before. It has to be called after each call of another method that
// changes the replica.
func (r *Replica) Next(now time.Time) (actions []Action, wake time.Time) {
	s := step{Replica: r, now: now}
	s.ownership()
	if r.viewed && !r.mismatch() {
		s.others()
		s.planning()
		s.membership()
		s.assignment()
	}
	return s.actions, s.wake
}

// step is one call of Next.
type step struct {
	*Replica
	now     time.Time
	wake    time.Time
	actions []Action
}

// reached reports whether the time t has come. If not, Next is called then.
func (s *step) reached(t time.Time) bool {
	if !s.now.Before(t) {
		return true
	}
	if s.wake.IsZero() || t.Before(s.wake) {
		s.wake = t
	}
	return false
}

func (s *step) do(a Action) { s.actions = append(s.actions, a) }

// ready reports whether h may be written to: the last write has ended, and has
// become visible or had the time to.
func (s *step) ready(h *held) bool {
	return !h.busy && (h.Revision != h.basis || s.reached(h.after))
}

// write sends a write to h.
func (s *step) write(h *held, a Action) {
	h.busy, h.basis = true, h.Revision
	a.Name = h.Name
	s.do(a)
}

// healthy reports whether the replica's member Lease is valid by its own clock.
func (s *step) healthy() bool { return s.ID() != "" && !s.reached(s.own.until) }

// current reports whether the view is from after the last time that ownership
// had ended by the clock.
func (s *step) current() bool { return !s.own.shown.Before(s.own.ended) }

// ownership announces what the view and the clock say about each slot. What
// ended, and began again, is announced as both: whatever was left out meanwhile
// has to be made up for.
func (s *step) ownership() {
	s.believe()
	id, healthy := s.ID(), s.healthy() && !s.mismatch()
	if !s.own.until.IsZero() && !s.now.Before(s.own.until) {
		s.own.ended = s.own.until
	}
	gains := healthy && s.own.uid != s.own.quitting && s.current()
	gap := s.own.gap
	s.own.gap = false
	for n := range s.slots {
		slot := &s.slots[n]
		valid := func() bool { return healthy && slot.Holder == id && slot.Token > slot.givenUp }
		if slot.owned != 0 && (gap || !valid() || slot.Token != slot.owned) {
			s.lose(n)
		}
		if gains && slot.owned == 0 && valid() {
			s.warm(n, true)
			slot.owned, slot.heir = slot.Token, ""
			s.do(Action{Kind: Gain, Slot: n, Token: slot.Token})
		}
	}
}

// believe counts a renewal that the view shows as one that succeeded, if its
// answer, and those of later ones, do not come in time.
func (s *step) believe() {
	if s.own.shown.IsZero() || !s.own.shown.Add(s.cfg.OwnFor).After(s.own.until) {
		return
	}
	if s.own.until.IsZero() || s.reached(s.own.until.Add(-s.cfg.OwnFor/2)) {
		s.renewed(s.now, s.own.shown)
	}
}

// lose ends the ownership of a slot. If it was draining, that is over: the
// token is not used again.
func (s *step) lose(n int) {
	slot := &s.slots[n]
	if !slot.draining.IsZero() {
		slot.givenUp = max(slot.givenUp, slot.owned)
	}
	s.do(Action{Kind: Lose, Slot: n, Token: slot.owned})
	slot.owned, slot.draining, slot.drained = 0, time.Time{}, false
}

// membership founds the group, joins it, and renews the member Lease.
func (s *step) membership() {
	if s.stale() {
		return
	}
	if !s.charter.exists && !s.own.leaving && s.ready(&s.charter) {
		s.write(&s.charter, Action{Kind: Found})
	}
	i, found := s.find(s.cfg.Member)
	if !found {
		if h := &s.own.joining; !s.own.leaving && s.charter.exists && s.ready(h) {
			h.Name = s.cfg.Member
			s.write(h, Action{Kind: Join})
		}
		return
	}

	h := &s.members[i].held
	switch {
	case s.own.leaving && s.idle() && s.members[i].Leaving:
		if s.ready(h) {
			s.own.quitting, s.own.quit = h.UID, false
			s.write(h, Action{Kind: Quit, UID: h.UID})
		}
	case s.ID() != "" && !h.busy && s.reached(s.own.due) && s.mayRenew():
		s.own.due = s.now.Add(s.cfg.Renew)
		s.own.number++
		s.own.sent = append(s.own.sent, renewal{number: s.own.number, sent: s.now})
		if s.own.unheard.IsZero() && s.healthy() {
			s.own.unheard = s.now
		}
		s.do(Action{
			Kind:     Renew,
			Name:     h.Name,
			UID:      h.UID,
			Renewal:  s.own.number,
			Leaving:  s.own.leaving,
			Plan:     s.own.plan,
			Warm:     s.warmed(),
			Weight:   s.cfg.Weight,
			Loads:    s.weighed(),
			Draining: s.own.drain,
		})
	}
}

// mayRenew reports whether one more renewal may be sent. It does not wait for
// the answers to those before, up to a number: if these take as long as the lease
// leaves time, the next would be too late.
func (s *step) mayRenew() bool {
	s.own.sent = slices.DeleteFunc(s.own.sent, func(r renewal) bool {
		return !s.now.Before(r.sent.Add(s.cfg.OwnFor)) // it renews nothing any more
	})
	waiting := 0
	for _, r := range s.own.sent {
		if !r.answered {
			waiting++
		}
	}
	return waiting < max(1, int(s.cfg.OwnFor/s.cfg.Renew))
}

// weighed returns the loads of the slots whose caches the replica keeps, as far
// as they are known.
func (s *step) weighed() map[int]int {
	var out map[int]int
	for n, load := range s.own.loads {
		if load > 0 && s.slots[n].warm {
			if out == nil {
				out = map[int]int{}
			}
			out[n] = load
		}
	}
	return out
}

// warmed returns the slots of which the caches are filled.
func (s *step) warmed() Set {
	var out Set
	for n := range s.slots {
		if s.slots[n].warmed {
			out.add(n)
		}
	}
	return out
}

// stale reports whether the view is too old for the replica to be a member: the
// hub may carry out its writes, but neither answers nor the watch show them. A
// replica that went on renewing would keep others from its slots, and not own
// them. It asks for a refresh in time, and not before: a hub that fails for some
// seconds would be asked for lists by all replicas.
func (s *step) stale() bool {
	s.look()
	unheard := !s.own.unheard.IsZero()
	stale := unheard && s.reached(s.own.unheard.Add(s.cfg.OwnFor)) ||
		s.own.uid != "" && s.reached(s.own.renewUntil)
	if !s.own.refreshed && (stale || unheard && s.reached(s.own.unheard.Add(s.cfg.OwnFor-3*s.cfg.Renew/2))) {
		s.own.refreshed = true
		s.do(Action{Kind: Refresh})
	}
	return stale
}

// look asks for a refresh after a renewal was refused: what the list shows is
// believed. Until then the replica owns its slots for as long as the last
// renewal that succeeded lets it.
func (s *step) look() {
	if s.own.refused && s.reached(s.own.looked.Add(s.cfg.OwnFor/2)) {
		s.own.refused, s.own.looked = false, s.now
		s.do(Action{Kind: Refresh})
	}
}

// idle reports whether the replica owns no slot, and all its releases have been
// answered.
func (s *step) idle() bool {
	for n := range s.slots {
		if s.slots[n].owned != 0 || s.slots[n].busy {
			return false
		}
	}
	return true
}

// others deletes the Leases of members taken for dead.
func (s *step) others() {
	if !s.healthy() {
		s.own.lapsed = true
		return
	}
	if s.own.lapsed {
		// The hub may have been away for all: everyone gets the full time.
		s.own.lapsed = false
		for _, m := range s.members {
			m.seen = s.now
		}
	}
	for _, m := range s.members {
		if m.Name != s.cfg.Member && s.reached(m.seen.Add(m.TTL)) && s.ready(&m.held) {
			s.write(&m.held, Action{Kind: Bury, UID: m.UID, Revision: m.Revision})
		}
	}
}

// assignment brings the slots to where the plan wants them. While the replica
// is not healthy, or is not in the plan, it keeps its caches: it will most
// probably stand by for the same slots again.
func (s *step) assignment() {
	if !s.healthy() || !s.current() {
		return
	}
	s.follow()
	if !s.own.leaving && !slices.Contains(s.followed.ids, s.ID()) {
		return
	}
	for _, empty := range []bool{false, true} { // a slow hub is not kept busy with empty slots first
		for n := range s.slots {
			if clusters := n < len(s.own.counts) && s.own.counts[n] > 0; clusters == empty {
				continue
			}
			mine := s.owner(n) == s.ID()
			s.move(n, mine)
			s.warm(n, mine || s.slots[n].owned != 0 || s.standby[n])
		}
	}
}

// move takes, drains or releases a slot.
func (s *step) move(n int, mine bool) {
	slot := &s.slots[n]
	switch {
	case slot.owned != 0 && !slot.draining.IsZero():
		// A drain that has begun ends, also if the plan changes: what was
		// stopped for it is started by the next Gain.
		if slot.drained || s.reached(slot.draining.Add(s.cfg.DrainFor)) {
			s.lose(n)
			s.move(n, mine)
		}
	case slot.owned != 0 && !mine:
		if !s.heirReady(n) {
			return
		}
		slot.draining = s.now
		until := s.now.Add(s.cfg.DrainFor)
		s.reached(until)
		s.do(Action{
			Kind:  Drain,
			Slot:  n,
			Token: slot.owned,
			Until: until,
		})
	case slot.owned != 0:
		slot.heir = ""
	case mine && s.charter.exists && s.takeable(slot) && (slot.overtaken() || s.ready(&slot.held)):
		s.write(&slot.held, Action{
			Kind:     Take,
			UID:      slot.UID,
			Revision: slot.Revision,
			Slot:     n,
			Holder:   s.ID(),
			Token:    s.top + 1,
		})
	case !mine && slot.Holder == s.ID() && (slot.overtaken() || s.ready(&slot.held)):
		s.write(&slot.held, Action{
			Kind:     Release,
			UID:      slot.UID,
			Revision: slot.Revision,
			Slot:     n,
			Token:    slot.Token,
		})
	}
}

// heirReady reports whether the drain of a slot may begin: the heir's caches are
// filled, or had the time to be, and it renews its Lease. A replica that leaves
// does not wait.
func (s *step) heirReady(n int) bool {
	slot, heir := &s.slots[n], s.owner(n)
	i := slices.IndexFunc(s.members, func(m *member) bool { return m.id == heir })
	if s.own.leaving || i < 0 {
		return true
	}
	if slot.heir != heir {
		slot.heir, slot.promised = heir, s.now
	}
	m := s.members[i]
	renews := s.now.Before(m.seen.Add(s.cfg.OwnFor / 2)) // if not, the next that is seen decides
	return renews && (m.Warm.Has(n) || s.reached(slot.promised.Add(s.cfg.WarmFor)))
}

// takeable reports whether no other member holds a slot.
func (s *step) takeable(slot *slot) bool {
	holder := slot.Holder
	return holder == "" || holder == s.ID() ||
		!slices.ContainsFunc(s.members, func(m *member) bool { return m.id == holder })
}

func (s *step) warm(n int, warm bool) {
	slot := &s.slots[n]
	if slot.warm == warm {
		return
	}
	slot.warm, slot.warmed = warm, false
	if !warm {
		s.do(Action{Kind: Cool, Slot: n})
		return
	}
	slot.warms++
	s.do(Action{Kind: Warm, Slot: n, Token: slot.warms})
}
