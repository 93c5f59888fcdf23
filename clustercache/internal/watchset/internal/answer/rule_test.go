// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package answer_test

import "github.com/fleetcache/fleetcache/clustercache/internal/watchset/internal/answer"

// memory is what a rule remembers.
type memory struct {
	kind     answer.Scope
	scopes   [maxWants]answer.Scope // of the wants that do not select all
	answered [maxKeys]answer.Moment // by informers that do not decide

	debts [maxWants]debt // of the rule "ranks"
}

// rule decides who answers. One that breaks a sentence of the rule, or of what
// informers do, is a mutant.
type rule struct {
	name   string
	breaks mutant
	single bool // one number for the kind
	narrow bool // the narrowest first
	fresh  bool // lists are as new as the server is when they begin
	get    func(w *world, r *rule, key int, written answer.Moment) (want int, why answer.Verdict)
	list   func(w *world, r *rule, list selection) (want int, why answer.Verdict)
	ends   func(w *world, want int)

	wants      [maxWants]int // space
	candidates [maxWants]answer.Candidate
}

type mutant int

const (
	nothing mutant = iota
	numbersIgnored
	historiesIgnored
	getsUnrecorded
	absenceUnrecorded
	listsUnrecorded
	endsForgotten
	newScopesBlank
	getsOfKind
	listsOfKind
	listsByGets
	absenceByLabels
	labelsUncompared
	labelsUnreadByOthers
	notesForgotten
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
	nothing:              {"nothing", nil},
	numbersIgnored:       {"numbers are ignored", []selection{all, nameA}},
	historiesIgnored:     {"versions of different histories are compared", []selection{all, nameA}},
	getsUnrecorded:       {"gets raise nothing", []selection{all, nameA}},
	absenceUnrecorded:    {"gets that find nothing raise nothing", []selection{all, nameA}},
	listsUnrecorded:      {"lists raise nothing", []selection{all, first}},
	endsForgotten:        {"a scope that ends leaves nothing", []selection{all, nameA}},
	newScopesBlank:       {"a new scope begins with nothing", []selection{all, first, nameA}},
	getsOfKind:           {"a get needs the number of its kind", []selection{all, nameA}},
	listsOfKind:          {"a list needs the number of its kind", []selection{all, first}},
	listsByGets:          {"a list needs the number of gets", []selection{all, byX}},
	absenceByLabels:      {"a selection by labels decides absence", []selection{all, byX}},
	labelsUncompared:     {"what a selection by labels has answered binds none", []selection{all, byX}},
	labelsUnreadByOthers: {"what a selection by labels has answered binds no other", []selection{all, byX}},
	notesForgotten:       {"what a selection by labels has answered leaves nothing", []selection{all, byX}},
	refusedAnswer:        {"a refused informer answers", []selection{all, nameA}},
	writesIgnored:        {"a write is not waited for", []selection{all, nameA}},
	listsOfAnyAge:        {"a list may be older than what was shown when it began", []selection{all, nameA}},
	handOverAtNewest:     {"a hand-over begins at the newest version", []selection{all, nameA}},
	handOverEmpty:        {"a hand-over begins without objects", []selection{all, nameA}},
	handOverLists:        {"a hand-over lists", []selection{all, nameA}},
	deletesUnheard:       {"handlers receive no deletes", []selection{all, nameA}},
}

// scoped is the rule of the package; backwards is it with the narrowest informer
// first, and single with the numbers of the kind alone: they hold as well.
var (
	scoped    = rule{name: "scoped", get: scopedGet, list: scopedList}
	backwards = rule{name: "backwards", get: scopedGet, list: scopedList, narrow: true}
	single    = rule{name: "single", get: scopedGet, list: scopedList, single: true}
)

// scope returns the scope of a selection, or else the kind's.
func (w *world) scope(r *rule, s selection) *answer.Scope {
	for i := range w.count {
		if v := &w.wants[i]; v.phase != off && v.selects == s && s != all && !r.single {
			return &w.memory.scopes[i]
		}
	}
	return &w.memory.kind
}

// scopeOfKey returns the narrowest scope of a key.
func (w *world) scopeOfKey(r *rule, key int) *answer.Scope {
	if scope := w.scope(r, nameA+selection(key)); scope != &w.memory.kind {
		return scope
	}
	return w.scope(r, first+selection(namespaceOf[key]-1))
}

// outer returns the narrowest scope that contains a selection.
func (w *world) outer(r *rule, s selection) *answer.Scope {
	if s.named() {
		return w.scope(r, first+selection(namespaceOf[s-nameA]-1))
	}
	return &w.memory.kind
}

func (r *rule) opened(w *world, i int) {
	w.memory.debts[i], w.memory.scopes[i] = debt{}, answer.Scope{}
	if s := w.wants[i].selects; s != all && r.breaks != newScopesBlank {
		w.memory.scopes[i] = *w.outer(r, s)
		w.memory.scopes[i].Lists = w.memory.kind.Lists
	}
}

func (r *rule) ended(w *world, i int) {
	if r.ends != nil {
		r.ends(w, i)
	}
	ended := w.memory.scopes[i]
	w.memory.scopes[i] = answer.Scope{}
	s := w.wants[i].selects
	if s == all || r.breaks == endsForgotten {
		return
	}
	outer := w.outer(r, s)
	*outer = outer.Absorb(ended)
	w.memory.kind = w.memory.kind.Absorb(answer.Scope{Lists: ended.Lists})
}

// min returns the version that a list of a want which begins now is not older
// than: of all that reads were shown of the kind, and the want's handler.
func (r *rule) min(w *world, i int) answer.Moment {
	if r.breaks == listsOfAnyAge {
		return answer.Moment{}
	}
	shown := w.memory.kind.Shown()
	for j := range w.count {
		shown = shown.Latest(w.memory.scopes[j].Shown())
	}
	for k, note := range w.memory.answered[:w.keys] {
		v := &w.wants[i]
		shown = shown.Latest(note).Latest(moment(v.heardIn, v.heardAt[k]))
	}
	return shown
}

// forget drops what every informer of the kind has reached.
func (r *rule) forget(w *world) {
	for k, note := range w.memory.answered[:w.keys] {
		reached := note != answer.Moment{}
		for i := range w.count {
			from, shows := w.via(i)
			reached = reached && (!shows || !from.at().Before(note))
		}
		if !reached {
			continue
		}
		w.memory.answered[k] = answer.Moment{}
		if r.breaks != notesForgotten {
			w.memory.kind.Gets = w.memory.kind.Gets.Latest(note)
			scope := w.scopeOfKey(r, k)
			scope.Gets = scope.Gets.Latest(note)
		}
	}
}

// candidates returns those of the wants that may answer a read, the widest
// first, until it is called again.
func (w *world) candidates(r *rule, may func(selection) bool, key int) (wants []int, of []answer.Candidate) {
	wants, of = r.wants[:0], r.candidates[:0]
	order := w.width(r.narrow)
	for _, i := range order[:w.count] {
		v := &w.wants[i]
		from, shows := w.via(i)
		if !shows || !may(v.selects) {
			continue
		}
		c := answer.Candidate{
			Trusted: !from.refused || r.breaks == refusedAnswer,
			Reached: from.at(),
			Decides: true,
		}
		if key >= 0 {
			c.Decides = v.selects.decides(key) || r.breaks == absenceByLabels
			c.Object = moment(from.history, w.has(i, key))
		}
		wants, of = append(wants, i), append(of, c)
	}
	return wants, of
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

func (r *rule) choose(read answer.Read, wants []int, of []answer.Candidate) (int, answer.Verdict) {
	if r.breaks == numbersIgnored {
		read.Needed = answer.Moment{}
	}
	if r.breaks == labelsUncompared {
		read.Answered = answer.Moment{}
	}
	if r.breaks == writesIgnored {
		read.Written = answer.Moment{}
	}
	if r.breaks == historiesIgnored {
		read.Needed.History, read.Answered.History, read.Written.History = 0, 0, 0
		for i := range of {
			of[i].Reached.History, of[i].Object.History = 0, 0
		}
	}
	i, why := read.Choose(of...)
	if why != answer.Cached {
		return -1, why
	}
	return wants[i], why
}

func scopedGet(w *world, r *rule, key int, written answer.Moment) (int, answer.Verdict) {
	scope := w.scopeOfKey(r, key)
	read := answer.Read{Needed: scope.Gets, Answered: w.memory.answered[key], Written: written}
	if r.breaks == getsOfKind {
		read.Needed = w.memory.kind.Gets
	}
	wants, of := w.candidates(r, func(s selection) bool { return s.holds(key) }, key)
	if r.breaks == labelsUnreadByOthers {
		for i := range of {
			if of[i].Decides {
				of[i].Object, of[i].Reached = of[i].Object.Latest(read.Answered), of[i].Reached.Latest(read.Answered)
			}
		}
	}
	i, why := r.choose(read, wants, of)
	if why != answer.Cached {
		return -1, why
	}
	by := w.from(i)
	object := moment(by.history, w.has(i, key))
	switch {
	case !w.wants[i].selects.decides(key):
		w.memory.answered[key] = w.memory.answered[key].Latest(object)
	case r.breaks == getsUnrecorded, r.breaks == absenceUnrecorded && object.Version == 0:
	default:
		*scope = scope.Get(object, by.at())
	}
	return i, why
}

func scopedList(w *world, r *rule, list selection) (int, answer.Verdict) {
	scope := w.scope(r, list)
	read := answer.Read{Needed: scope.Lists}
	switch r.breaks {
	case listsOfKind:
		read.Needed = w.memory.kind.Lists
	case listsByGets:
		read.Needed = scope.Gets
	}
	wants, of := w.candidates(r, func(s selection) bool { return s.covers(list) }, -1)
	i, why := r.choose(read, wants, of)
	if why == answer.Cached && r.breaks != listsUnrecorded {
		*scope = scope.List(w.from(i).at())
	}
	return i, why
}
