// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package answer_test

import (
	"slices"

	"github.com/fleetcache/fleetcache/clustercache/internal/watchset/internal/answer"
)

// ranks is the rule by which informers were compared object by object: the most
// advanced one answers, unless another one contradicts it, and one that lacks
// what a released one has shown owes it.
var ranks = rule{
	name: "ranks", get: ranksGet, list: ranksList, ends: ranksEnd, fresh: true,
}

// debt is what a want owes to released ones.
type debt struct {
	from answer.Moment
	gone objects // deleted by then, though the want still had them
	at   answer.Moment
}

// has returns the version of an object that a want shows, or zero.
func (w *world) has(i, key int) uint8 {
	from, shows := w.via(i)
	version := from.held[key]
	if !shows || version == 0 || !w.wants[i].selects.selects(key, w.histories[from.history].at(key, version)) {
		return 0
	}
	return version
}

// ranked returns the wants that show anything, the most advanced first.
func (w *world) ranked(may func(selection) bool) (order []int) {
	width := w.width(false)
	for _, i := range width[:w.count] {
		if _, shows := w.via(i); shows && may(w.wants[i].selects) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		va, _ := w.via(a)
		vb, _ := w.via(b)
		switch {
		case vb.at().Before(va.at()):
			return -1
		case va.at().Before(vb.at()):
			return 1
		}
		return 0
	})
	return order
}

func (w *world) owes(i int) bool {
	from, _ := w.via(i)
	d := &w.memory.debts[i]
	if d.from.History == int(from.history) && from.at().Before(d.from) {
		return true
	}
	if d.at.History != int(from.history) || !from.at().Before(d.at) {
		return false
	}
	for k := range w.keys {
		if h := &w.histories[from.history]; d.gone[k] > 0 && w.has(i, k) > 0 &&
			h.born(k, w.has(i, k)) == h.born(k, d.gone[k]) {
			return true
		}
	}
	return false
}

// born returns the version at which an object was created.
func (h *history) born(key int, version uint8) uint8 {
	for v := version; v > 0; v-- {
		if int(h.log[v-1].key) == key && h.at(key, v-1) == absent {
			return v
		}
	}
	return 0
}

// ahead reports whether one want may have shown what the other has not reached.
func (w *world) ahead(c, of int) bool {
	a, _ := w.via(c)
	b, _ := w.via(of)
	return c != of && a.history == b.history && a.reached > b.reached
}

func ranksGet(w *world, _ *rule, key int, written answer.Moment) (int, answer.Verdict) {
	order, why := w.ranked(func(s selection) bool { return s.holds(key) }), answer.Unwatched
	for _, i := range order {
		from, _ := w.via(i)
		o := w.has(i, key)
		switch {
		case from.refused:
			why = max(why, answer.Distrusted)
		case w.owes(i), from.at().Before(written):
			why = max(why, answer.Behind)
		case slices.ContainsFunc(order, func(c int) bool { return w.ahead(c, i) && w.disproves(c, i, key, o) }):
			why = max(why, answer.Behind)
		case o > 0, w.wants[i].selects.decides(key):
			return i, answer.Cached
		}
	}
	return -1, why
}

func (w *world) disproves(c, by, key int, o uint8) bool {
	from, _ := w.via(by)
	other, _ := w.via(c)
	own := w.has(c, key)
	switch {
	case own > 0 && o > 0:
		return o < own
	case own > 0:
		return own > from.reached
	case o == 0 || !w.wants[c].selects.decides(key):
		return false
	}
	return o <= other.reached
}

func ranksList(w *world, _ *rule, list selection) (int, answer.Verdict) {
	order, why := w.ranked(func(s selection) bool { return s.covers(list) }), answer.Unwatched
	for _, i := range order {
		from, _ := w.via(i)
		switch {
		case from.refused:
			why = max(why, answer.Distrusted)
		case w.owes(i):
			why = max(why, answer.Behind)
		case slices.ContainsFunc(order, func(c int) bool { return w.ahead(c, i) && w.disprovesList(c, i, list) }):
			why = max(why, answer.Behind)
		default:
			return i, answer.Cached
		}
	}
	return -1, why
}

func (w *world) disprovesList(c, by int, list selection) bool {
	from, _ := w.via(by)
	other, _ := w.via(c)
	in := func(v *want, k int) uint8 {
		if v.held[k] > 0 && list.selects(k, w.histories[v.history].at(k, v.held[k])) {
			return v.held[k]
		}
		return 0
	}
	for k := range w.keys {
		o, own := in(from, k), in(other, k)
		switch {
		case o > 0 && own > 0 && o < own, o > 0 && own == 0 && o <= other.reached, o == 0 && own > from.reached:
			return true
		}
	}
	return false
}

// ranksEnd records what other wants owe to one that is released.
func ranksEnd(w *world, i int) {
	to, shows := w.via(i)
	if !shows {
		return
	}
	for j := range w.count {
		v := &w.wants[j]
		if j == i || v.phase == off || apart(v.selects, w.wants[i].selects) {
			continue
		}
		now, synced := w.via(j)
		d := &w.memory.debts[j]
		switch {
		case !synced:
			d.from = d.from.Latest(to.at())
			continue
		case now.history != to.history || to.reached <= now.reached:
			continue
		}
		for k := range w.keys {
			w.owed(d, i, j, k)
		}
	}
}

func (w *world) owed(d *debt, to, of, k int) {
	from, _ := w.via(to)
	now, _ := w.via(of)
	o, own := w.has(to, k), w.has(of, k)
	may := o > 0 && w.wants[of].selects.selects(k, w.histories[from.history].at(k, o))
	if may && (own == 0 && o > now.reached || own > 0 && own < o) {
		d.from = d.from.Latest(moment(from.history, o))
	}
	if own == 0 || !w.wants[to].selects.selects(k, w.histories[now.history].at(k, own)) {
		return
	}
	switch {
	case o > own:
		d.from = d.from.Latest(moment(from.history, o))
	case o == 0 && !w.wants[to].selects.named() && own <= from.reached:
		d.gone[k], d.at = own, d.at.Latest(from.at())
	}
}

func apart(a, b selection) bool {
	if a.named() && b.named() {
		return a != b
	}
	for k := range maxKeys {
		if a.holds(k) && b.holds(k) {
			return false
		}
	}
	return true
}
