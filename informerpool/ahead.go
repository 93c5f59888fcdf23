// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"cmp"
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/ahead"
	"github.com/fleetcache/fleetcache/informerpool/internal/delta"
	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/informerpool/internal/selector"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/few"
)

// Each informer of a resource follows its server at its own pace. What one has
// shown, another one must not take back. So each records at the others what it is
// about to show (package ahead has the rule):
//
//	change or list ──► siblings.changes: the last change of each object
//	                └► lead.debts of those that may select it
//	                        │
//	read of another one ◄───┘ Find, ListOutdated
//
// Where nothing is recorded, or an informer has come as far, it answers alone.

// never is reached by no informer.
const never = math.MaxUint64

// current reports whether an informer shows the newest history, in which
// versions are compared. The lock is held.
func (s *siblings) current(i *informer) bool { return i.lead.ordered && i.lead.shows == s.era }

// after returns the version after which an informer may yet show changes of the
// newest history: from its position, or whatever its list under way brings. One
// that has neither is going to list what all have shown. The lock is held.
func (s *siblings) after(i *informer) uint64 {
	switch {
	case s.current(i):
		return i.lead.reached
	case i.lead.listing:
		return 0
	}
	return never
}

// reachLocked records how far an informer has come, whose lock is held.
func (s *siblings) reachLocked(i *informer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i.lead.coming = 0
	if !i.mu.synced {
		s.showLocked(i, false, era{})
		i.lead.ordered, i.lead.most = false, 0
		return
	}
	s.showLocked(i, true, i.mu.era())
	if i.lead.ordered = ordering.Ordered(i.mu.rv); !i.lead.ordered {
		i.lead.reached, i.lead.most, i.lead.debts = 0, 0, ahead.Debts[Key]{} // nothing says how far it has come
		return
	}
	reached, _ := strconv.ParseUint(i.mu.rv, 10, 64)
	i.lead.reached, i.lead.most = reached, reached
	if partial, err := strconv.ParseUint(i.mu.partial, 10, 64); err == nil {
		i.lead.most = max(reached, partial)
	}
	if i.mu.doubt != nil {
		i.lead.most = 0
	}
	if s.current(i) {
		i.lead.debts.Pay(reached)
		if len(s.members) == 1 && s.apart.Load() {
			s.forgetLocked()
		}
	}
}

// showLocked records which history an informer shows.
func (s *siblings) showLocked(i *informer, synced bool, shows era) {
	_, is := s.members[i]
	if is {
		few.Count(&s.shows, i.lead.showing(), -1)
	}
	if i.lead.shows != shows {
		i.lead.left = 0
	}
	i.lead.synced, i.lead.shows = synced, shows
	if is {
		few.Count(&s.shows, i.lead.showing(), 1)
	}
}

// beginList records that an informer is about to list, and returns the latest
// version that others have shown: the list has to be no older.
func (s *siblings) beginList(i *informer, epoch Epoch) (shown string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i.lead.listing = true
	number, most := 0, uint64(0)
	if s.era.epoch == epoch {
		number, most = s.era.number, s.ended
	}
	for other := range s.members {
		if lead := &other.lead; other != i && lead.shows.epoch == epoch && lead.shows.number >= number {
			if lead.shows.number > number {
				number, most = lead.shows.number, 0
			}
			most = max(most, lead.most, lead.left)
		}
		if s.era == (era{epoch, number}) {
			most = max(most, other.lead.coming)
		}
	}
	if most == 0 {
		return ""
	}
	return strconv.FormatUint(most, 10)
}

func (s *siblings) endList(i *informer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i.lead.listing = false
}

// inherit adds an informer, which has come as far as the one that it continues,
// and owes what that does. It is one step: what others show next, both owe.
func (s *siblings) inherit(i, from *informer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(i)
	i.lead.debts, i.lead.left = from.lead.debts.Clone(), from.lead.left
}

// number returns the number of the history, within an epoch, that a list shows,
// and whether the list is the first that shows it. A single resource can go back,
// and each goes back a moment before the whole cluster is known to have done so:
// versions cannot be compared then, although the epoch is the same. another
// reports that the history with the number over is over. If another informer has
// found that already, both have found the same history.
func (s *siblings) number(epoch Epoch, another bool, over int) (number int, entered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entered = s.era.epoch == epoch && another && over == s.era.number
	switch {
	case s.era.epoch != epoch:
		s.enterLocked(s.lastLocked(epoch))
	case entered:
		s.enterLocked(era{epoch, over + 1})
	}
	return s.era.number, entered
}

// lastLocked returns the last history of an epoch that informers show: one that
// has not noticed that the epoch was another one meanwhile may never list again.
func (s *siblings) lastLocked(epoch Epoch) era {
	last := era{epoch: epoch}
	for i := range s.members {
		if i.lead.shows.epoch == epoch {
			last.number = max(last.number, i.lead.shows.number)
		}
	}
	return last
}

// wentBack reports whether the resource went back alone within an epoch.
func (s *siblings) wentBack(epoch Epoch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.era.epoch == epoch && s.era.number > 0
}

// enterLocked makes a history the newest one. If its epoch comes back, informers
// may still show it, which have not noticed that it was another one meanwhile:
// of what was shown before only the latest version is known.
func (s *siblings) enterLocked(history era) {
	left, latest := s.ended, uint64(0)
	for i := range s.members {
		if i.lead.shows == s.era {
			left = max(left, i.lead.most)
		}
	}
	for i := range s.members {
		switch i.lead.shows {
		case s.era:
			i.lead.left = left
		case history:
			latest = max(latest, i.lead.most, i.lead.left)
		}
	}
	s.beginLocked(history, latest)
}

// beginLocked makes a history the newest one, of which changes up to a version
// may have been shown.
func (s *siblings) beginLocked(history era, latest uint64) {
	s.era, s.changes, s.ended = history, ahead.Forgot(latest), 0
	for i := range s.members {
		i.lead.debts = ahead.Debts[Key]{}
		if i.lead.shows == history {
			i.lead.left = 0
			i.lead.debts.OweAll(latest)
		}
	}
}

// forgetShown forgets what has been shown, as if the history began anew.
func (s *siblings) forgetShown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginLocked(s.era, 0)
}

// forgetLocked drops the changes that all informers have reached.
func (s *siblings) forgetLocked() {
	least, owe := uint64(never), false
	for i := range s.members {
		least, owe = min(least, s.after(i)), owe || i.lead.debts.Any()
	}
	s.changes.Forget(least)
	s.apart.Store(len(s.members) > 1 || s.changes.Any() || owe)
}

// changeLocked records a change of an object that an informer is about to show:
// at which version, and until which it is known to be the last one.
func (s *siblings) changeLocked(i *informer, old, now *Object, at, until uint64) {
	s.recordLocked(cmp.Or(now, old), ahead.Change{At: at, Until: until, Gone: now == nil && !i.part})
	for _, o := range [...]*Object{old, now} {
		for other := range s.selecting(o) {
			if other != i && s.after(other) < at {
				other.lead.debts.Owe(i.key, at)
			}
		}
	}
}

// goneLocked records, unless others have done so, that an informer is about to
// show that an object does not exist, from no later than a version on: no version
// of its own tells when it was deleted.
func (s *siblings) goneLocked(i *informer, o *Object, at uint64) {
	if s.changes.Last(nameOf(o)).Gone {
		return
	}
	s.recordLocked(o, ahead.Change{At: at, Until: at, Gone: !i.part})
	for other := range s.selecting(o) {
		if other != i && s.after(other) < at {
			other.lead.debts.Lacks(i.key, at, store.NameOf(o))
		}
	}
}

func (s *siblings) recordLocked(o *Object, is ahead.Change) {
	if s.changes.Record(nameOf(o), is) {
		s.forgetLocked()
	}
}

func nameOf(o *Object) ahead.Name { return ahead.NameOf(o.GetNamespace(), o.GetName()) }

// backLocked records that a list which an informer is behind lacks an object in
// the state that the informer is about to show, from a version on, if it does.
func (s *siblings) backLocked(i *informer, old, now *Object, at uint64) {
	if !i.lead.debts.Any() {
		return
	}
	name := nameOf(cmp.Or(now, old))
	i.lead.debts.Changed(name, at)
	if now == nil {
		return
	}
	for by, listed := range i.lead.debts.Lists(at) {
		if !selects(by).Meets(now) {
			continue
		}
		last := s.changes.Last(name)
		has := !last.Gone && last.At >= at && last.Until >= listed
		if !has || last.At != at {
			i.lead.debts.Lacks(by, listed, store.NameOf(now))
		}
		if !has && !by.part() {
			s.recordLocked(now, ahead.Change{At: listed, Until: listed, Gone: true})
		}
	}
}

// leadLocked records, before others can see it, a change that an informer,
// whose lock is held, is about to show. at is the version of a delete, as far as
// the change does not tell.
func (s *siblings) leadLocked(i *informer, c delta.Change, at uint64) {
	if !s.apart.Load() {
		return // one that joins now lists what is shown by then: the position was raised before
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.current(i) || c.Evicted || i.mu.unserved || i.pool.options.countsVersions(i.key) {
		return
	}
	version, ordered := cmp.Or(c.New, c.Final).Version()
	if !ordered {
		return
	}
	switch {
	case c.New != nil:
		at = version
	case c.Unknown:
		at = max(at, i.lead.reached)
	default:
		at = max(version, i.lead.reached)
	}
	s.backLocked(i, c.Old, c.New, at)
	switch {
	case len(s.members) < 2:
	case c.New == nil && (c.Unknown || at > version):
		s.goneLocked(i, c.Final, at)
	default:
		s.changeLocked(i, cmp.Or(c.Old, c.Final), c.New, at, at)
	}
}

// lead records, before others can see it, what a complete list is about to show
// that other informers have not reached.
func (l *listing) lead(rv string, epoch Epoch) {
	i := l.informer
	s := i.siblings
	at, err := strconv.ParseUint(rv, 10, 64)
	if err != nil || i.pool.options.countsVersions(i.key) {
		return
	}
	least, behind, owes, shown := uint64(never), map[*informer]struct{}{}, false, false
	s.mu.Lock()
	if s.era == (era{epoch, l.history}) {
		for other := range s.members {
			if after := s.after(other); other != i && after < at {
				least, behind[other] = min(least, after), struct{}{}
			}
		}
		owes, shown = i.lead.debts.Any(), s.current(i)
		i.lead.coming = at
	}
	s.mu.Unlock()
	if len(behind) == 0 && !owes {
		return
	}

	for _, other := range s.overlapping(i) {
		if _, is := behind[other]; is {
			l.leadOf(other, at)
		}
	}
	show := func(o *Object, shown bool) {
		version, ordered := o.Version()
		if !ordered {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if version > least {
			s.changeLocked(i, nil, o, version, at)
		}
		if !shown { // or the other lists were compared with it
			s.backLocked(i, nil, o, version)
		}
	}
	for o := range l.seen {
		show(o, shown)
	}
	for o := range i.mu.staged.All() {
		show(o, false)
	}
}

// leadOf records what another informer has, and the list has not, or in a state
// that the other one does not select.
func (l *listing) leadOf(other *informer, at uint64) {
	i := l.informer
	s := i.siblings
	other.mu.RLock() // so that nothing of it changes in between
	defer other.mu.RUnlock()

	var lacks []types.NamespacedName
	var gone, overlap []*Object
	if other.mu.synced && (i.label == other.label || i.label == (label{}) || other.label == (label{})) {
		selects := i.selects
		if other.mu.store.CountIn("") == other.mu.store.Count { // they are in no namespaces
			selects.Namespace = ""
		}
		overlap = (&place{key: i.key, informer: other, selector: selects}).selectedLocked()
	}
	for _, o := range overlap {
		name := store.ViewOf(o)
		is := l.shows(name)
		switch {
		case l.refused.Has(name), is != nil && (other.selects.Meets(is) || !ordering.Older(o, is)):
			continue
		case is == nil && !i.part:
			gone = append(gone, o)
		}
		lacks = append(lacks, store.NameOf(o))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.current(other) {
		lacks, gone = nil, nil
	}
	other.lead.debts.Listed(i.key, at)
	if len(lacks) > 0 {
		other.lead.debts.Lacks(i.key, at, lacks...)
	}
	for _, o := range gone {
		s.recordLocked(o, ahead.Change{At: at, Until: at, Gone: true})
	}
}

// outdatedLocked reports whether another informer of the resource, which may
// have ended, has shown a later change of an object than an informer has
// reached, whose lock is held, and at which version that is. o is what that
// shows of it, or nil.
func (s *siblings) outdatedLocked(i *informer, namespace, name string, o *Object) (shown string, is bool) {
	return s.outdated(i, func() uint64 {
		if !i.part && i.lead.debts.Owes(i.lead.reached, func(Key) bool { return true }, i.mu.shows) == 0 {
			return 0 // it owes each change of an object that it may have, and hears of no other one
		}
		last := s.changes.Last(ahead.NameOf(namespace, name))
		if o == nil && last.Gone {
			return 0 // they show the same
		}
		if o != nil {
			if version, ordered := o.Version(); ordered && version >= last.At {
				return 0
			}
		}
		return last.At
	})
}

// ListOutdated reports whether another informer of the resource, which may have
// ended and has all of what a canonical key selects, has shown a later change of
// that than the lease's informer has reached, and at which version that is. A
// list that is answered all the same goes back in time. Ask before the list: the
// informer may catch up in between. One that selects by no field counts only if
// it could have answered the list: if its fields are those of every object, or
// indexed says that the caller has indexes of them.
func (l *Lease) ListOutdated(list Key, indexed bool) (shown string, is bool) {
	namespaced, known := l.Namespaced()
	i := l.at.informer()
	if !i.siblings.apart.Load() {
		return "", false
	}
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.siblings.outdated(i, func() uint64 {
		return i.lead.debts.Owes(i.lead.reached, func(by Key) bool {
			if known && !namespaced {
				by.Namespace = list.Namespace
			}
			return by.covers(list) &&
				(indexed || by.FieldSelector == list.FieldSelector || selector.Local(list.FieldSelector))
		}, i.mu.shows)
	})
}

// outdated reports whether an informer shows an earlier history than another one,
// or has not reached a version.
func (s *siblings) outdated(i *informer, version func() uint64) (shown string, is bool) {
	if !s.apart.Load() {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.current(i) {
		return "", i.lead.ordered && i.lead.shows.epoch == s.era.epoch // an earlier history
	}
	if last := version(); last > i.lead.reached {
		return strconv.FormatUint(last, 10), true
	}
	return "", false
}

// Answered records that reads have shown objects of the lease's informer.
// Handlers of the informers that have not reached them, or have not listed yet,
// must receive their deletes, even if they are created and deleted before.
func (l *Lease) Answered(objects ...*Object) {
	i := l.at.informer()
	s := i.siblings
	if !s.apart.Load() {
		return
	}
	unheard := map[*informer][]*Object{}
	s.mu.Lock()
	starting := s.shows.Get(i.lead.showing()) < len(s.members)
	for _, o := range objects {
		version, ordered := o.Version()
		ahead := ordered && s.current(i) && s.changes.Last(nameOf(o)).At >= version
		if !starting && !ahead {
			continue
		}
		for other := range s.selecting(o) {
			late := ahead && s.current(other) && other.lead.reached < version
			late = late || other.lead.showing() != i.lead.showing()
			if late && other != i && other.key.Resource == i.key.Resource && other.key.Kind == i.key.Kind {
				unheard[other] = append(unheard[other], o)
			}
		}
	}
	s.mu.Unlock()

	for other, objects := range unheard {
		if other.noteShown(objects) {
			l.pool.audits.seen(other)
		}
	}
}

// covers reports whether a key selects all that a list does.
func (k Key) covers(list Key) bool {
	return k.Resource == list.Resource && k.Kind == list.Kind &&
		(k.Namespace == "" || k.Namespace == list.Namespace) &&
		(k.LabelSelector == "" || k.LabelSelector == list.LabelSelector) &&
		(k.FieldSelector == "" || k.FieldSelector == list.FieldSelector)
}
