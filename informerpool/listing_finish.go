// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// finish makes the result of the list the informer's state.
func (l *listing) finish(rv string) error {
	if l.unversioned > 0 && !ordering.Versionless(rv) {
		l.withdraw()
	}
	if err := l.verdict(); err != nil {
		return err
	}
	r := l.reflector
	if err := l.lags(rv); err != nil {
		return err
	}
	l.setUnversioned(rv)
	if !r.at.replace && ordering.Behind(rv, r.at.reach) {
		l.contradict(fmt.Errorf("%s: list is at %s, cache at %s", r.informer.key, rv, r.at.reach))
	}
	if l.cramped != nil { // skipped objects would look as if they had gone back
		return l.trim(rv)
	}
	if proof := l.disproved(rv); proof != nil {
		l.contradict(proof)
	}
	if l.broken != nil && !l.listed.IsZero() {
		return l.broken // a list decides which of the two is right; a snapshot cannot
	}
	l.over = true
	asked := errors.Is(r.at.distrust, errLacked) // or each would make the other list again and again
	r.listing, r.at.distrust = nil, nil
	before, entered := r.informer.relation().era(), false
	l.history, entered = l.number(before)
	if l.another = l.apart(); l.another {
		r.at.reach = ""
	}
	r.at.resume, r.at.reach, r.at.replace, r.absent = rv, ordering.Further(r.at.reach, rv), false, absence{}
	if !r.server.missed.IsZero() {
		r.informer.published.definition.Store(nil) // the resource may be another one by now
	}
	r.failures.unanswered, r.failures.streams = time.Time{}, 0
	r.informer.proof(cmp.Or(l.asOf, r.informer.pool.clock.Now()))
	if !l.listed.IsZero() {
		r.informer.count(countRestores) // before anybody sees the state
	}
	l.lead(rv, r.server.epoch)
	ask, lacked := l.commit(rv, r.server.epoch)
	r.server.learnDefinition() // it may be deleted before a watch is accepted
	if ask {
		r.informer.pool.audits.seen(r.informer)
	}
	if lacked && !asked {
		r.informer.siblings.doubt(r.informer)
	}
	if l.broken != nil {
		r.rolledBack(l.broken, before)
	}
	r.informer.siblings.relistEarlier(r.informer, entered)

	return nil
}

// withdraw refuses the objects without a version of a list that has one: the
// list may name its version after its items.
func (l *listing) withdraw() {
	r := l.reflector
	lacks := func(o *Object) bool { return o.GetResourceVersion() == "" }
	for _, o := range slices.Collect(r.informer.mu.staged.All()) {
		if lacks(o) {
			l.change(func(staged *store.Store) { staged.Remove(o) })
			l.refuseUnversioned(o)
		}
	}
	for o := range l.seen {
		if lacks(o) {
			delete(l.seen, o)
			l.refuseUnversioned(o)
		}
	}
}

func (l *listing) refuseUnversioned(o *Object) {
	l.accepted--
	l.reflector.refuse(wire.Added, wire.Identity{Namespace: o.GetNamespace(), Name: o.GetName()},
		&wire.FieldError{Field: "metadata.resourceVersion", Reason: "is missing"})
}

// verdict returns why a complete list cannot be committed, or nil. A list of
// which everything is refused is no answer at all: the server's notion of the
// kind is not the cache's. Objects that are merely too large do not count.
func (l *listing) verdict() error {
	if l.rejected > 0 && l.accepted == 0 && l.senseless {
		return l.refusal()
	}
	return nil
}

// setUnversioned records whether the resource has versions, as a complete list
// at a version shows. A list without objects and version does not show it.
func (l *listing) setUnversioned(rv string) {
	r := l.reflector
	none := ordering.Versionless(rv)
	if none && l.accepted == 0 {
		return
	}
	is := none && l.unversioned > 0
	r.server.bare = is
	if is == r.informer.mu.unversioned { // only the reflector writes it, and reads it without a lock
		return
	}
	r.informer.mu.Lock()
	r.informer.mu.unversioned = is
	r.informer.mu.Unlock()

	log := r.options.Logger.WithValues("informer", r.informer.key.String())
	switch {
	case !r.log.lines.Allow("versions", time.Now()):
	case is:
		log.Info("Objects have no resourceVersion: changes are found by lists",
			"interval", r.options.PollInterval.String())
	default:
		log.Info("Objects have resourceVersions")
	}
}

// trim ends a complete list that skipped objects. It removes the objects that
// the list lacks, so that the next list has room, and returns why the list is
// not the informer's state. No object of another history is stored, so that no
// read shows objects of both.
func (l *listing) trim(rv string) error {
	r := l.reflector
	another := l.apart() || !r.informer.relation().certain()
	l.over, r.listing, r.at.resume = true, nil, "" // a stream would bring deleted objects once more
	if !another {
		l.commitTrimmed(rv, l.cramped)
		return l.cramped
	}
	l.giveUp(l.cramped)
	if !r.at.replace {
		r.at.replaces(r.informer.relation().era()) // the next list may not contradict the remaining objects
	}
	if l.broken != nil {
		r.rolledBack(l.broken, r.informer.relation().era())
	}

	return l.cramped
}

// abort drops an unfinished list. If the list broke midway, and is known to be
// of the store's own history, it leaves the objects it brought: they are newer.
// No object is removed because a part of a list lacks it. A page that broke
// before it named its kind leaves nothing.
func (l *listing) abort(err error) {
	r := l.reflector
	r.informer.siblings.endList(r.informer)
	if l.over {
		return
	}
	r.listing = nil
	confirmed := !r.kind.inPage || r.kind.unnamed == 0
	r.kind.inPage = false
	own := confirmed && !l.apart() && ordering.Ordered(l.version) && !ordering.Behind(l.version, r.at.reach) &&
		r.informer.relation().certain() && l.disproved(l.version) == nil
	if own && !errors.Is(err, ErrBudget) {
		l.commitPart()
		return
	}
	l.replace(nil)
}

// number returns the number of the history that the list shows, where the store
// shows another one so far, and whether the list is the first that shows it.
func (l *listing) number(over era) (number int, entered bool) {
	r := l.reflector
	if r.at.replace {
		over = r.at.over
	}
	another := over.epoch == r.server.epoch && l.apart()
	return r.informer.siblings.number(r.server.epoch, another, over.number)
}

// disproved returns the proof that a complete list at a version is of another
// history than another informer of the resource has shown, unless that is known
// already: that informer has a later state of an object, from before the list.
// An informer that lagged when its server was restored has nothing in its own
// store that contradicts the list.
func (l *listing) disproved(rv string) error {
	r := l.reflector
	if l.apart() || r.options.countsVersions(r.informer.key) || len(l.seen) == 0 && r.informer.mu.staged.Count == 0 {
		return nil
	}
	for _, i := range r.informer.siblings.overlapping(r.informer) {
		if proof := l.disprovedBy(i, rv); proof != nil {
			return proof
		}
	}
	return nil
}

// disprovedBy is disproved for one of the other informers.
func (l *listing) disprovedBy(i *informer, rv string) error {
	r := l.reflector
	i.mu.RLock()
	defer i.mu.RUnlock()

	if !i.mu.synced || i.mu.epoch != r.server.epoch || i.mu.history != r.informer.mu.history {
		return nil
	}
	proof := func(listed, shown *Object) error {
		if listed == nil || shown == nil || !ordering.Older(listed, shown) ||
			!ordering.Reaches(rv, shown.GetResourceVersion()) {
			return nil
		}
		return fmt.Errorf("%s %s: listed at %s, cached at %s by %s",
			r.informer.key, store.NameOf(shown), listed.GetResourceVersion(), shown.GetResourceVersion(), i.key)
	}
	if i.mu.store.Count <= r.informer.mu.store.Count+r.informer.mu.staged.Count {
		for shown := range i.mu.store.All() {
			if found := proof(l.shows(store.ViewOf(shown)), shown); found != nil {
				return found
			}
		}
		return nil
	}

	for _, listed := range slices.Concat(slices.Collect(maps.Keys(l.seen)),
		slices.Collect(r.informer.mu.staged.All())) {
		if found := proof(listed, i.mu.store.Of(listed)); found != nil {
			return found
		}
	}

	return nil
}
