// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import "slices"

// BriefHandler is a [Handler] that can receive the deletes of objects that came
// and went while it was busy, as handlers of client-go's informers do. Other
// handlers receive no event of an object that neither they nor a read have
// seen.
type BriefHandler interface {
	Handler
	// Brief reports whether to deliver these deletes; up to 10,000 wait for the
	// handler. It is called once, by Subscribe.
	Brief() bool
}

// maxBrief is how many objects that came and went wait for a handler.
const maxBrief = 10_000

// wantsBrief reports whether a handler receives objects that came and went.
func wantsBrief(h Handler) bool {
	b, ok := h.(BriefHandler)
	return ok && b.Brief()
}

// keepBriefLocked keeps an object that a pending change, already merged with a
// later one, was about to add, and that exists no more: the handler received
// neither. The subscription's lock is held.
func (s *Subscription) keepBriefLocked(p *pending, before *Object, c change) {
	is := func(o *Object) bool { return o != nil && o.GetUID() == before.GetUID() }
	if !s.wantsBrief || s.mu.brief >= maxBrief || before == nil || c.evicted || is(c.new) || is(p.old) {
		return // p.old: its delete is pending
	}
	if is(c.final) {
		before = c.final
	}
	p.brief = append(p.brief, before)
	s.mu.brief++
}

// takeLocked removes a pending change.
func (s *Subscription) takeLocked(it item) *pending {
	p := s.mu.pending[it]
	if p != nil {
		s.mu.brief -= len(p.brief)
	}
	delete(s.mu.pending, it)

	return p
}

// withBrief inserts the deletes of the objects that came and went behind the
// delete of the object that the handler knows.
func (p *pending) withBrief(key Key, events []Event) []Event {
	at := 0
	if len(events) > 0 && events[0].Type == Deleted {
		at = 1
	}
	for _, o := range p.brief {
		if p.old == nil || p.old.GetUID() != o.GetUID() {
			events = slices.Insert(events, at, Event{
				Key:               key,
				Type:              Deleted,
				Old:               o,
				FinalStateUnknown: true,
			})
			at++
		}
	}

	return events
}
