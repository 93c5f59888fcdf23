// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"slices"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/internal/packed"
)

// Pending is the undelivered change of one object in a subscription: from the
// state the handler last received to the newest one.
//
//	offered   added  updated  deleted  added   another object of the name
//	            └───────┴────────┴───────┘
//	pending        Change{Old, New}: Old is what the handler received
//	                 │ Steps
//	delivered      nothing, one step, or a delete and an add
type Pending struct {
	Change

	asked   bool           // on request, rather than because of a change
	unheard bool           // Old was only read: the handler did not receive it
	shown   *packed.Object // a read returned it: its delete is delivered, though the object came and went

	brief []*packed.Object // objects of the name that came and went, which the handler asks for
}

// New returns the pending change that begins with c.
func New(c Change) *Pending { return &Pending{Change: c, asked: c.Resync} }

// Lost returns the pending delete of an object that the handler did not
// receive, and that a read has shown.
func Lost(o *packed.Object, evicted bool) *Pending {
	p := &Pending{Change: Vanished(o), unheard: true}
	p.Evicted = evicted
	return p
}

// Lose adds the delete of an object that the handler did not receive, unless
// there is a newer change to deliver. An object that came and went while the
// handler was busy is delivered all the same.
func (p *Pending) Lose(o *packed.Object, evicted bool) {
	if p.Old == nil && (p.New == nil || p.New.GetUID() != o.GetUID()) {
		p.Old, p.Final, p.unheard, p.Unknown, p.Evicted = o, o, true, true, evicted
	}
}

// Show records that a read returned the object in the state o.
func (p *Pending) Show(o *packed.Object) { p.shown = o }

// Merge adds a later change. With brief, it keeps an object that was about to
// be added and that the change ends, and reports whether there was one: the
// handler received neither.
func (p *Pending) Merge(c Change, brief bool) (kept bool) {
	before := p.New
	p.merge(c)
	is := func(o *packed.Object) bool { return o != nil && o.GetUID() == before.GetUID() }
	if !brief || before == nil || c.Evicted || is(c.New) || is(p.Old) {
		return false // p.Old: its delete is pending
	}
	if is(c.Final) {
		before = c.Final
	}
	p.brief = append(p.brief, before)

	return true
}

func (p *Pending) merge(c Change) {
	p.Resync = p.Resync && c.Resync
	p.asked = p.asked || c.Resync
	if p.isEmpty() {
		p.Sight = c.Sight
	}
	if p.New = c.New; c.New == nil {
		p.Final, p.Unknown, p.Evicted = c.Final, c.Unknown, c.Evicted
	}

	switch {
	case p.unheard && c.New != nil && p.Old.GetUID() == c.New.GetUID():
		p.shown = p.Old
		p.Old, p.unheard = nil, false // the object exists, and the handler has not received it
	case p.isEmpty() && p.wasShown(c):
		p.Old, p.unheard = p.shown, true
	case p.isEmpty():
		p.Final = nil // nothing is delivered
	}
}

// wasShown reports whether an object that came and went was read meanwhile, and
// records its last state. A read of the informer may have returned it.
func (p *Pending) wasShown(c Change) bool {
	last := c.Final
	if last == nil {
		last = c.Old
	}
	if p.Sight.Read() || p.shown != nil && last != nil && last.GetUID() == p.shown.GetUID() {
		p.shown = last
	}
	return p.shown != nil
}

// Undo handles an object that is back in the state the handler last received:
// changes were undone while the handler was busy, as when another cluster took
// the place or etcd was restored. It leaves no change pending. Since reads may
// have returned the states between, the object is delivered once more, as if it
// had been requested. The restored state is another object in memory, for which
// Old, the one the handler has received, stands in: Undo returns it, or nil if
// nothing was undone.
func (p *Pending) Undo() (restored *packed.Object) {
	received, is := p.Old, p.New
	if received == nil || is == nil || received == is || received.GetUID() != is.GetUID() ||
		!ordering.SameState(received, is) {
		return nil
	}
	p.New, p.asked = received, true
	return is
}

// isEmpty reports whether the object came and went.
func (p *Pending) isEmpty() bool { return p.Old == nil && p.New == nil }

// IsVoid reports whether there is nothing left to deliver.
func (p *Pending) IsVoid() bool { return p.isEmpty() && len(p.brief) == 0 }

// Brief returns how many objects that came and went the change keeps.
func (p *Pending) Brief() int { return len(p.brief) }

// Step is one event of a handler: an add without Old, a delete without New, or
// an update.
type Step struct {
	Old, New *packed.Object

	// LastDelivered is the state the handler last received, if Old is a later
	// one.
	LastDelivered *packed.Object

	Initial           bool
	Resync            bool
	Requested         bool
	FinalStateUnknown bool
	Evicted           bool
}

// Steps returns what is left to deliver. The deletes of objects that came and
// went follow the delete of the object that the handler knows.
func (p *Pending) Steps() []Step {
	steps := p.steps()
	at := 0
	if len(steps) > 0 && steps[0].New == nil {
		at = 1
	}
	for _, o := range p.brief {
		if p.Old == nil || p.Old.GetUID() != o.GetUID() {
			steps = slices.Insert(steps, at, Step{Old: o, FinalStateUnknown: true})
			at++
		}
	}

	return steps
}

// steps returns none, one, or a delete and an add where one object took
// another's name.
func (p *Pending) steps() []Step {
	switch {
	case p.isEmpty():
		return nil // before its turn
	case p.Old == nil:
		return []Step{p.added()}
	case p.New == nil:
		return []Step{p.deleted()}
	case p.Old.GetUID() != p.New.GetUID():
		return []Step{p.deleted(), p.added()}
	case p.Old == p.New && !p.asked:
		return nil
	}

	return []Step{{
		Old:       p.Old,
		New:       p.New,
		Resync:    p.Resync || p.Old == p.New,
		Requested: p.asked,
	}}
}

func (p *Pending) added() Step {
	return Step{New: p.New, Initial: p.Initial, Requested: p.asked}
}

func (p *Pending) deleted() Step {
	s := Step{
		Old:               p.Old,
		FinalStateUnknown: p.Unknown,
		Evicted:           p.Evicted,
		Requested:         p.asked,
	}
	switch {
	case p.Final == nil || p.Final.GetUID() != p.Old.GetUID():
		s.FinalStateUnknown = true
	case p.Final != p.Old:
		s.Old, s.LastDelivered = p.Final, p.Old
	}

	return s
}
