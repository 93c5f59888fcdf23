// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package ahead_test

// memory is what the rule remembers.
type memory struct {
	changes [maxKeys]last                       // by objects
	owed    [maxWants][selections]instant       // by informers, and those that have shown changes
	listed  [maxWants][selections]instant       // by which lists of others they are behind
	gone    [maxWants][selections][maxKeys]bool // what they show, and those lists lack
	most    instant                             // that any informer has reached
}

// last is the last change of an object that an informer has shown, and up to
// when a list has shown that it was the last one.
type last struct {
	at, until instant
	gone      bool
}

func (c last) latest(at, until instant, gone bool) last {
	if c.at.before(at) {
		return last{at, until, gone}
	}
	if c.at == at {
		c.until = c.until.latest(until)
	}
	return c
}

// verdict says whether a read is answered from a cache, and why not.
type verdict int

// From the weakest reason to the strongest.
const (
	unwatched  verdict = iota // no informer covers the read
	distrusted                // one does, and is not trusted
	behind                    // one is trusted, and another one, or a write, is ahead of it
	cached                    // one answers
)

// rule is the rule. One that breaks a sentence of it, or of what informers do,
// is a mutant.
type rule struct {
	name   string
	breaks mutant
	narrow bool // the narrowest first
	fresh  bool // lists are as new as the server is when they begin
}

type mutant int

const (
	nothing mutant = iota
	changesIgnored
	historiesIgnored
	eventsUnrecorded
	deletesUnrecorded
	listsUnrecorded
	absenceUnrecorded
	absenceForgotten
	endsForgotten
	positionsIgnored
	listsUnowed
	absenceByLabels
	labelsByPosition
	refusedAnswer
	writesIgnored
	listsOfAnyAge
	handOverAtNewest
	handOverEmpty
	handOverLists
	deletesUnheard
	mutants
)

// mutations says what each mutant does, and which wants show it.
var mutations = [mutants]struct {
	does  string
	wants []selection
}{
	nothing:           {"nothing", nil},
	changesIgnored:    {"what others have shown is ignored", []selection{all, nameA}},
	historiesIgnored:  {"versions of different histories are compared", []selection{all, nameA}},
	eventsUnrecorded:  {"events are not recorded", []selection{all, nameA}},
	deletesUnrecorded: {"deletes are not recorded", []selection{all, nameA}},
	listsUnrecorded:   {"lists are not compared", []selection{all, nameA}},
	absenceUnrecorded: {"what a list lacks is not recorded", []selection{all, nameA}},
	absenceForgotten:  {"what a list has shown as absent may come back", []selection{all, nameA}},
	endsForgotten:     {"an informer that ends leaves nothing", []selection{all, nameA}},
	listsUnowed:       {"lists are not held back", []selection{all, first}},
	positionsIgnored:  {"only objects are compared, not positions", []selection{all, nameA}},
	absenceByLabels:   {"a selection by labels decides absence", []selection{all, byX}},
	labelsByPosition:  {"a selection by labels is not compared", []selection{byX, byY}},
	refusedAnswer:     {"a refused informer answers", []selection{all, nameA}},
	writesIgnored:     {"a write is not waited for", []selection{all, nameA}},
	listsOfAnyAge:     {"a list may be older than what was shown when it began", []selection{all, nameA}},
	handOverAtNewest:  {"a hand-over begins at the newest version", []selection{all, nameA}},
	handOverEmpty:     {"a hand-over begins without objects", []selection{all, nameA}},
	handOverLists:     {"a hand-over lists", []selection{all, nameA}},
	deletesUnheard:    {"handlers receive no deletes", []selection{all, nameA}},
}

// leads is the rule of the package; backwards is it with the narrowest informer
// first: it holds as well.
var (
	leads     = rule{name: "leads"}
	backwards = rule{name: "backwards", narrow: true}
)

// opened records that a want has got an informer of its own, without objects.
func (r *rule) opened(w *world, i int) {
	w.memory.owed[i], w.memory.listed[i] = [selections]instant{}, [selections]instant{}
	w.memory.gone[i] = [selections][maxKeys]bool{}
}

// ended records that a want's informer ends.
func (r *rule) ended(w *world, i int) {
	r.opened(w, i)
	if r.breaks == endsForgotten {
		w.memory.changes = [maxKeys]last{}
		for j := range w.count {
			w.memory.owed[j][w.wants[i].selects] = instant{}
			w.memory.listed[j][w.wants[i].selects] = instant{}
			w.memory.gone[j][w.wants[i].selects] = [maxKeys]bool{}
		}
	}
}

// continued records that an informer continues another one.
func (r *rule) continued(w *world, i, from int) {
	w.memory.owed[i], w.memory.listed[i] = w.memory.owed[from], w.memory.listed[from]
	w.memory.gone[i] = w.memory.gone[from]
}

// informs reports whether a want has an informer of its own.
func (w *world) informs(i int) bool { return w.wants[i].phase == listing || w.wants[i].phase == synced }

// changed records that an informer has shown another state of an object than
// before, both as it knows them.
func (r *rule) changed(w *world, i, key int, old, now state, at instant) {
	if r.breaks == eventsUnrecorded || r.breaks == deletesUnrecorded && now == absent {
		return
	}
	r.contradicted(w, i, key, now, at)
	w.memory.changes[key] = w.memory.changes[key].latest(at, at, now == absent && w.wants[i].selects.decides(key))
	w.owe(i, key, old, now, at)
}

// contradicted records that a list which an informer is behind lacks the object
// in a state that the informer shows, if it does.
func (r *rule) contradicted(w *world, i, key int, now state, at instant) {
	for s := range selections {
		w.memory.gone[i][s][key] = false
		listed := w.memory.listed[i][s]
		known := w.memory.changes[key]
		if r.breaks == absenceForgotten || !at.before(listed) || !s.selects(key, now) {
			continue
		}
		has := !known.gone && !known.at.before(at) && !known.until.before(listed) // the list
		w.memory.gone[i][s][key] = !has || known.at != at
		if !has && s.decides(key) {
			w.memory.changes[key] = known.latest(listed, listed, true)
		}
	}
}

// lists records that an informer has listed, and that others are behind it.
func (w *world) lists(i int) {
	v := &w.wants[i]
	for j := range w.count {
		if j != i && w.informs(j) && w.reachedBy(j).before(v.at()) {
			w.memory.listed[j][v.selects] = w.memory.listed[j][v.selects].latest(v.at())
		}
	}
}

// owe records, at the other informers that may select an object in one of two
// states, that one has shown it.
func (w *world) owe(i, key int, old, now state, at instant) {
	s := w.wants[i].selects
	for j := range w.count {
		v := &w.wants[j]
		if j != i && w.informs(j) && v.at().before(at) && (v.selects.selects(key, old) || v.selects.selects(key, now)) {
			w.memory.owed[j][s] = w.memory.owed[j][s].latest(at)
		}
	}
}

// reached records how far an informer has come.
func (r *rule) reached(w *world, i int) {
	w.memory.most = w.memory.most.latest(w.wants[i].at())
}

// listed compares an informer that has listed with those that are behind.
func (r *rule) listed(w *world, i int, before *want) {
	if r.breaks == listsUnrecorded {
		return
	}
	w.lists(i)
	for j := range w.count {
		if j != i && w.informs(j) && w.reachedBy(j).before(w.wants[i].at()) {
			r.compare(w, i, j)
		}
	}
	for k := range w.keys {
		v := &w.wants[i]
		shown := before.phase == synced && before.history == v.history
		switch {
		case shown && v.held[k] == before.held[k]: // the other lists were compared with it
		case v.held[k] == 0:
			r.contradicted(w, i, k, absent, v.at())
		default:
			r.contradicted(w, i, k, w.histories[v.history].at(k, v.held[k]), moment(v.history, v.held[k]))
		}
	}
}

// reachedBy returns how far an informer has come; what it lists may be of any age.
func (w *world) reachedBy(i int) instant {
	if w.wants[i].phase == listing {
		return instant{}
	}
	return w.wants[i].at()
}

// compare records what an informer that is ahead of another one shows, and the
// other one does not.
func (r *rule) compare(w *world, i, j int) {
	v, other := &w.wants[i], &w.wants[j]
	since, had := w.reachedBy(j), other.held
	if since.History < int(v.history) { // it answers nothing before its next list
		since, had = moment(v.history, 0), objects{}
	}
	comparable := !v.selects.labelled() || !other.selects.labelled() || v.selects == other.selects
	h := &w.histories[v.history]
	for k := range w.keys {
		has, had := v.held[k], had[k]
		switch {
		case has > had && since.before(moment(v.history, has)):
			at, now := moment(v.history, has), h.at(k, has)
			w.memory.changes[k] = w.memory.changes[k].latest(at, v.at(), false)
			w.owe(i, k, absent, now, at)
			w.memory.gone[j][v.selects][k] = had > 0 && !other.selects.selects(k, now)
		case has == 0 && had > 0 && comparable && v.selects.selects(k, h.at(k, had)):
			if r.breaks == absenceUnrecorded {
				break
			}
			w.memory.gone[j][v.selects][k] = true
			if v.selects.decides(k) {
				w.memory.changes[k] = w.memory.changes[k].latest(v.at(), v.at(), true)
			}
		}
	}
}

// min returns the version that a list of a want which begins now is not older
// than: of all that informers have shown, and the want's handler.
func (r *rule) min(w *world, i int) instant {
	if r.breaks == listsOfAnyAge {
		return instant{}
	}
	shown, v := w.memory.most, &w.wants[i]
	for k := range w.keys {
		shown = shown.latest(moment(v.heardIn, v.heardAt[k]))
	}
	return shown
}

// forget drops what every informer has reached.
func (r *rule) forget(w *world) {
	least, any := instant{}, false
	for i := range w.count {
		if w.informs(i) && (!any || w.wants[i].at().before(least)) {
			least, any = w.wants[i].at(), true
		}
		for s := range selections {
			if !w.wants[i].at().before(w.memory.owed[i][s]) {
				w.memory.owed[i][s] = instant{}
			}
			if !w.wants[i].at().before(w.memory.listed[i][s]) {
				w.memory.listed[i][s], w.memory.gone[i][s] = instant{}, [maxKeys]bool{}
			}
		}
	}
	for k := range w.keys {
		if any && !least.before(w.memory.changes[k].at) {
			w.memory.changes[k] = last{}
		}
	}
}

// answers says whether a want that may answer a read does, apart from what the
// read asks for.
func (r *rule) trusts(w *world, from *want) bool {
	if from.refused && r.breaks != refusedAnswer {
		return false
	}
	return r.breaks == historiesIgnored || int(from.history) == w.memory.most.History
}

func (r *rule) before(a, b instant) bool {
	if r.breaks == historiesIgnored {
		a.History, b.History = 0, 0
	}
	return a.before(b)
}

// get returns the want that answers a get of a key.
func (r *rule) get(w *world, key int, written instant) (int, verdict) {
	why := unwatched
	order := w.width(r.narrow)
	for _, i := range order[:w.count] {
		v := &w.wants[i]
		from, shows := w.via(i)
		if !shows || !v.selects.holds(key) {
			continue
		}
		object := moment(from.history, w.has(i, key))
		decides := v.selects.decides(key) || r.breaks == absenceByLabels
		switch {
		case object.Version == 0 && !decides:
		case !r.trusts(w, from):
			why = max(why, distrusted)
		case r.breaks != writesIgnored && r.before(from.at(), written), r.misses(w, from, key, object, decides):
			why = behind
		default:
			return i, cached
		}
	}
	return -1, why
}

// misses reports whether another informer has shown a later state of an object.
func (r *rule) misses(w *world, from *want, key int, object instant, decides bool) bool {
	switch shown := w.memory.changes[key].at; {
	case r.breaks == changesIgnored, r.breaks == labelsByPosition && !decides:
		return false
	case object.Version == 0 && w.memory.changes[key].gone:
		return false // it shows the same
	case r.breaks == positionsIgnored:
		return object.Version > 0 && r.before(object, shown)
	default:
		return r.before(object, shown) && r.before(from.at(), shown)
	}
}

// list returns the want that answers a list.
func (r *rule) list(w *world, list selection) (int, verdict) {
	why := unwatched
	order := w.width(r.narrow)
	for _, i := range order[:w.count] {
		v := &w.wants[i]
		from, shows := w.via(i)
		switch {
		case !shows || !v.selects.covers(list):
		case !r.trusts(w, from):
			why = max(why, distrusted)
		case r.lacks(w, from, list):
			why = behind
		default:
			return i, cached
		}
	}
	return -1, why
}

// lacks reports whether another informer that has all of a list has shown a
// later state of it.
func (r *rule) lacks(w *world, from *want, list selection) bool {
	if r.breaks == changesIgnored || r.breaks == listsUnowed {
		return false
	}
	i := w.indexOf(from)
	for s := range selections {
		if s.covers(list) && (r.before(from.at(), w.memory.owed[i][s]) ||
			w.memory.gone[i][s] != [maxKeys]bool{} && r.before(from.at(), w.memory.listed[i][s])) {
			return true
		}
	}
	return false
}

func (w *world) indexOf(of *want) int {
	for i := range w.wants {
		if of == &w.wants[i] {
			return i
		}
	}
	return -1
}

// width orders wants, the widest or the narrowest first.
func (w *world) width(narrow bool) [maxWants]int {
	order := [maxWants]int{0, 1, 2}
	for i := range w.count {
		for j := i; j > 0; j-- {
			a, b := rank(w.wants[order[j-1]].selects), rank(w.wants[order[j]].selects)
			if a == b || a < b != narrow {
				break
			}
			order[j-1], order[j] = order[j], order[j-1]
		}
	}
	return order
}

func rank(s selection) int {
	switch {
	case s == all:
		return 0
	case s.namespaced():
		return 1
	case s.named():
		return 2
	}
	return 3
}
