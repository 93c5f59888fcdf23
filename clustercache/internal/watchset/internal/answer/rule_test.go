// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package answer_test

import (
	"slices"

	"github.com/fleetcache/fleetcache/clustercache/internal/watchset/internal/answer"
)

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
	get    func(w *world, r *rule, key int, written answer.Moment) (want int, why answer.Verdict)
	list   func(w *world, r *rule, list selection) (want int, why answer.Verdict)
	ends   func(w *world, want int)
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
	deletesUnheard
	mutants
)

var mutantNames = [mutants]string{
	nothing:              "nothing",
	numbersIgnored:       "numbers are ignored",
	historiesIgnored:     "versions of different histories are compared",
	getsUnrecorded:       "gets raise nothing",
	absenceUnrecorded:    "gets that find nothing raise nothing",
	listsUnrecorded:      "lists raise nothing",
	endsForgotten:        "a scope that ends leaves nothing",
	newScopesBlank:       "a new scope begins with nothing",
	getsOfKind:           "a get needs the number of its kind",
	listsOfKind:          "a list needs the number of its kind",
	listsByGets:          "a list needs the number of gets",
	absenceByLabels:      "a selection by labels decides absence",
	labelsUncompared:     "selections by labels are not compared",
	labelsUnreadByOthers: "what a selection by labels has answered binds no other",
	notesForgotten:       "what a selection by labels has answered is forgotten, and not kept as a number",
	refusedAnswer:        "a refused informer answers",
	writesIgnored:        "a write is not waited for",
	listsOfAnyAge:        "a list may be older than what was shown when it began",
	handOverAtNewest:     "a hand-over begins at the newest version",
	handOverEmpty:        "a hand-over begins without objects",
	deletesUnheard:       "handlers hear no deletes",
}

// scoped is the rule of the package, and single is it with the numbers of the
// kind alone.
var (
	scoped = rule{name: "scoped", get: scopedGet, list: scopedList}
	single = rule{name: "single", get: scopedGet, list: scopedList, single: true}
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
// than.
func (r *rule) min(w *world, i int) answer.Moment {
	if r.breaks == listsOfAnyAge {
		return answer.Moment{}
	}
	v := &w.wants[i]
	from, shows := w.via(i)
	shown := w.memory.kind.Shown().Latest(w.scope(r, v.selects).Shown())
	if shows {
		shown = shown.Latest(from.at())
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
// first.
func (w *world) candidates(r *rule, may func(selection) bool, key int) (wants []int, of []answer.Candidate) {
	for _, i := range w.width(r) {
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
		if r.breaks == historiesIgnored {
			c.Reached.History, c.Object.History = 9, 9
		}
		wants, of = append(wants, i), append(of, c)
	}
	return wants, of
}

// width orders wants, the widest first.
func (w *world) width(r *rule) []int {
	order := []int{0, 1, 2}[:w.count]
	slices.SortStableFunc(order, func(a, b int) int {
		if r.narrow {
			a, b = b, a
		}
		return rank(w.wants[a].selects) - rank(w.wants[b].selects)
	})
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
