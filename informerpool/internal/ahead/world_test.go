// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package ahead_test

import (
	"fmt"
)

// The limits of a world. Its state has no pointers, so that it can be copied,
// compared and hashed.
const (
	maxKeys      = 3
	maxWants     = 3
	maxVersions  = 40
	maxHistories = 3
)

// state is the state of an object: its label, or that it does not exist.
type state uint8

const (
	absent state = iota
	labelX
	labelY
)

// namespaces of the keys: a and c are in the first, b is in the second.
var namespaceOf = [maxKeys]uint8{1, 2, 1}

// selection is what an informer selects, or a list asks for.
type selection uint8

const (
	all selection = iota
	nameA
	nameB
	nameC
	first // the first namespace
	second
	byX
	byY
	selections
)

var selectionNames = [selections]string{"all", "a", "b", "c", "ns1", "ns2", "x", "y"}

func (s selection) String() string { return selectionNames[s] }

func (s selection) named() bool      { return s >= nameA && s <= nameC }
func (s selection) namespaced() bool { return s == first || s == second }
func (s selection) labelled() bool   { return s == byX || s == byY }

// holds reports whether the selection may have an object of a key, whatever its
// labels; decides, whether it has the object if that exists.
func (s selection) holds(key int) bool { return s.labelled() || s.decides(key) }

func (s selection) decides(key int) bool {
	switch {
	case s == all:
		return true
	case s.named():
		return int(s-nameA) == key
	case s.namespaced():
		return namespaceOf[key] == uint8(s-first)+1
	}
	return false
}

func (s selection) selects(key int, is state) bool {
	switch {
	case is == absent:
		return false
	case s == byX:
		return is == labelX
	case s == byY:
		return is == labelY
	}
	return s.decides(key)
}

// covers reports whether an informer has everything that a list selects.
func (s selection) covers(list selection) bool { return s == all || s == list }

// change is one version in the history of the server.
type change struct {
	key uint8
	to  state
}

// history is what the server's database has seen; version v is log[v-1].
type history struct {
	log [maxVersions]change
	now uint8
}

// last returns the version of the last change of a key that a selection selects
// before or after, up to a version; zero if there is none.
func (h *history) last(s selection, key int, at uint8) uint8 {
	var is state
	var last uint8
	for v := uint8(1); v <= at; v++ {
		if c := h.log[v-1]; int(c.key) == key {
			if s.selects(key, is) || s.selects(key, c.to) {
				last = v
			}
			is = c.to
		}
	}
	return last
}

func (h *history) at(key int, version uint8) state {
	for v := version; v > 0; v-- {
		if int(h.log[v-1].key) == key {
			return h.log[v-1].to
		}
	}
	return absent
}

// next returns the version of the next change that a selection sees, or zero.
func (h *history) next(s selection, after uint8) uint8 {
	for v := after + 1; v <= h.now; v++ {
		key := int(h.log[v-1].key)
		if s.selects(key, h.at(key, v-1)) || s.selects(key, h.log[v-1].to) {
			return v
		}
	}
	return 0
}

// objects are the versions of the states that are held; zero: it is absent.
type objects [maxKeys]uint8

// phase is where an informer is in its life.
type phase uint8

const (
	off     phase = iota // not wanted
	listing              // nothing to show yet
	synced
	riding // served by the informer of all
)

// want is a selection that is wanted, its informer and its handler.
type want struct {
	selects selection
	phase   phase
	refused bool
	relists bool           // a list is under way beside what is shown
	history uint8          // of the objects
	reached uint8          // position
	held    objects        // the store
	min     instant        // what is requested of the list under way
	floor   instant        // what had been shown when it began
	heard   objects        // what the handler has received
	heardAt [maxKeys]uint8 // and up to which change
	heardIn uint8
}

func (w *want) at() instant { return moment(w.history, w.reached) }

// has returns the version of an object that a want shows, or zero.
func (w *world) has(i, key int) uint8 {
	from, shows := w.via(i)
	version := from.held[key]
	if !shows || version == 0 || !w.wants[i].selects.selects(key, w.histories[from.history].at(key, version)) {
		return 0
	}
	return version
}

// instant is a version in a numbered history of a resource. The zero instant is
// before all others.
type instant struct {
	History int
	Version uint64
}

// before reports whether m is earlier than other. A later history is later,
// whatever the versions.
func (m instant) before(other instant) bool {
	return m.History < other.History || m.History == other.History && m.Version < other.Version
}

// latest returns the later of two moments.
func (m instant) latest(other instant) instant {
	if m.before(other) {
		return other
	}
	return m
}

func moment(history, version uint8) instant {
	return instant{History: int(history), Version: uint64(version)}
}

// world is a server with the informers of one kind, what the rule remembers,
// and what was shown.
type world struct {
	keys, count int // in use
	histories   [maxHistories]history
	history     uint8 // the server's
	written     [maxKeys]instant
	wants       [maxWants]want
	memory      memory
	shown       shown
}

// shown is the latest that was shown, by which read.
type shown struct {
	gets  [maxKeys]instant
	lists [selections][maxKeys]instant
}

// latest returns the latest moment that was shown.
func (s *shown) latest() (m instant) {
	for k := range maxKeys {
		m = m.latest(s.gets[k])
		for list := range selections {
			m = m.latest(s.lists[list][k])
		}
	}
	return m
}

func (w *world) server() *history { return &w.histories[w.history] }

// via returns the want whose informer serves a want, and whether there is one
// that has something to show.
func (w *world) via(i int) (*want, bool) {
	v := &w.wants[i]
	if v.phase == riding {
		for j := range w.count {
			if w.wants[j].selects == all && w.wants[j].phase == synced {
				return &w.wants[j], true
			}
		}
	}
	return v, v.phase == synced
}

// violation is a promise that a step has broken.
type violation struct{ what string }

func (v violation) Error() string { return v.what }

func broken(format string, args ...any) error { return violation{fmt.Sprintf(format, args...)} }

// step is one thing that happens.
type step struct {
	do   action
	of   int // key or want
	with int // state, or version
}

type action uint8

const (
	write action = iota
	restore
	acquire
	release
	listed
	event
	bookmark
	refuse
	grant
	relist
)

var actionNames = []string{
	"write", "restore", "acquire", "release", "listed", "event", "bookmark", "refuse", "grant", "relist",
}

func (s step) String() string { return fmt.Sprintf("%s(%d,%d)", actionNames[s.do], s.of, s.with) }

// limits bound what happens in a run.
type limits struct {
	writes, restores int
	refusals         bool
	touches          bool // writes that change nothing
}

// steps appends what may happen next.
func (w *world) steps(to []step, l limits) []step {
	s := w.server()
	if int(s.now) < l.writes {
		for k := range w.keys {
			is := s.at(k, s.now)
			for next := absent; next <= labelY; next++ {
				if next != is || l.touches && is != absent {
					to = append(to, step{write, k, int(next)})
				}
			}
		}
	}
	if int(w.history) < l.restores && s.now > 0 {
		to = append(to, step{restore, 0, int(s.now) - 1})
		if l.touches && s.now > 3 {
			to = append(to, step{restore, 0, int(s.now) - 3})
		}
	}
	for i := range w.count {
		to = w.stepsOf(to, i, l)
	}
	return to
}

func (w *world) stepsOf(to []step, i int, l limits) []step {
	v, s := &w.wants[i], w.server()
	if v.phase == off {
		return append(to, step{acquire, i, 0})
	}
	to = append(to, step{release, i, 0})
	if v.phase == riding {
		return to
	}
	if v.phase == listing || v.relists {
		oldest := w.oldest(v)
		to = append(to, step{listed, i, int(oldest)})
		if oldest != s.now {
			to = append(to, step{listed, i, int(s.now)})
		}
	}
	if v.phase == synced && !v.relists {
		to = append(to, step{relist, i, 0})
	}
	switch {
	case v.phase != synced || v.relists:
	case v.refused:
		to = append(to, step{grant, i, 0})
	default:
		if l.refusals {
			to = append(to, step{refuse, i, 0})
		}
		if v.history != w.history {
			break // its server is gone
		}
		next := s.next(v.selects, v.reached)
		if next > 0 {
			to = append(to, step{event, i, int(next)})
		}
		if upTo := quiet(next, s.now); upTo > v.reached {
			to = append(to, step{bookmark, i, int(upTo)})
		}
	}
	return to
}

// quiet returns the latest version before the next event.
func quiet(next, now uint8) uint8 {
	if next > 0 {
		return next - 1
	}
	return now
}

// oldest returns the oldest version with which a server that lags may answer
// the list of a want.
func (w *world) oldest(v *want) uint8 {
	if v.min.History < int(w.history) {
		return 0
	}
	return uint8(v.min.Version)
}

// do makes a step.
func (w *world) do(r *rule, s step) error {
	switch s.do {
	case write:
		h := w.server()
		h.log[h.now] = change{uint8(s.of), state(s.with)}
		h.now++
		w.written[s.of] = moment(w.history, h.now)
	case restore:
		before := w.server()
		w.history++
		after := w.server()
		copy(after.log[:], before.log[:s.with])
		after.now = uint8(s.with)
		w.written = [maxKeys]instant{}
	case acquire:
		w.acquire(r, s.of)
	case release:
		return w.release(r, s.of)
	case listed:
		return w.listed(r, s.of, uint8(s.with))
	case event:
		return w.event(r, s.of, uint8(s.with))
	case bookmark:
		w.wants[s.of].reached = uint8(s.with)
		r.reached(w, s.of)
	case refuse:
		w.refuse(r, s.of)
	case grant:
		w.wants[s.of].refused = false
	case relist:
		w.wants[s.of].relists = true
		w.begin(r, s.of)
	}
	return nil
}

func (w *world) acquire(r *rule, i int) {
	v := &w.wants[i]
	*v = want{selects: v.selects, phase: listing}
	r.opened(w, i)
	for j := range w.count {
		wide := &w.wants[j]
		if j != i && wide.selects == all && wide.phase == synced && !wide.refused && !wide.relists {
			v.phase, v.heardIn = riding, wide.history
			for k := range w.keys {
				if wide.held[k] > 0 && v.selects.selects(k, w.histories[wide.history].at(k, wide.held[k])) {
					v.heard[k] = wide.held[k]
				}
				v.heardAt[k] = w.histories[wide.history].last(v.selects, k, wide.reached)
			}
			return
		}
	}
	w.begin(r, i)
}

// begin begins a list of a want.
func (w *world) begin(r *rule, i int) {
	v := &w.wants[i]
	v.floor = w.shown.latest()
	for k := range w.keys {
		v.floor = v.floor.latest(moment(v.heardIn, v.heardAt[k]))
	}
	if v.min = r.min(w, i); r.fresh {
		v.min = moment(w.history, w.server().now)
	}
}

func (w *world) release(r *rule, i int) error {
	gone := w.wants[i]
	w.wants[i] = want{selects: gone.selects}
	defer r.ended(w, i)
	if gone.selects != all {
		return nil
	}
	for j := range w.count {
		if v := &w.wants[j]; v.phase == riding {
			w.handOver(r, &gone, v, i, j)
			if v.phase == listing && !gone.refused && !gone.relists {
				return broken("the hand-over to %s sends a list", v.selects)
			}
		}
	}
	return nil
}

// handOver gives a rider a stream of its own: at the position of the informer
// that has served it, with the objects of that one.
func (w *world) handOver(r *rule, from, v *want, source, i int) {
	if from.refused || from.relists || r.breaks == handOverLists {
		v.phase = listing
		w.begin(r, i)
		return
	}
	v.phase, v.history, v.reached = synced, from.history, from.reached
	r.continued(w, i, source)
	if r.breaks == handOverAtNewest && v.history == w.history {
		v.reached = w.server().now
	}
	for k := range w.keys {
		is := w.histories[from.history].at(k, from.held[k])
		if from.held[k] > 0 && v.selects.selects(k, is) && r.breaks != handOverEmpty {
			v.held[k] = from.held[k]
		}
	}
}

func (w *world) refuse(r *rule, i int) {
	v := &w.wants[i]
	v.refused = true
	if v.selects != all {
		return
	}
	for j := range w.count {
		if rider := &w.wants[j]; rider.phase == riding {
			w.handOver(r, v, rider, i, j)
		}
	}
}

// listed completes a list: the store becomes what the server has shown, and
// handlers receive the difference.
func (w *world) listed(r *rule, i int, at uint8) error {
	v, h := &w.wants[i], w.server()
	before := *v
	if moment(w.history, at).before(v.floor) {
		return broken("a list of %s shows %d, although %v was shown before it began", v.selects, at, v.floor)
	}
	v.min, v.floor = instant{}, instant{}
	v.phase, v.refused, v.relists = synced, false, false
	v.history, v.reached = w.history, at
	v.held = objects{}
	for k := range w.keys {
		if v.selects.selects(k, h.at(k, at)) {
			v.held[k] = h.last(all, k, at)
		}
	}
	r.listed(w, i, &before)
	r.reached(w, i)
	return w.hear(r, i)
}

// event applies the next change of a stream, and of those that ride on it.
func (w *world) event(r *rule, i int, at uint8) error {
	v, h := &w.wants[i], &w.histories[w.wants[i].history]
	key := int(h.log[at-1].key)
	old, now := absent, absent
	if v.held[key] > 0 {
		old = h.at(key, v.held[key])
	}
	v.reached = at
	v.held[key] = 0
	if v.selects.selects(key, h.log[at-1].to) {
		v.held[key], now = at, h.log[at-1].to
	}
	r.changed(w, i, key, old, now, v.at())
	r.reached(w, i)
	return w.hear(r, i)
}

// hear delivers what an informer shows to its handler, and to those of riders.
func (w *world) hear(r *rule, i int) error {
	from := &w.wants[i]
	for j := range w.count {
		v := &w.wants[j]
		if j != i && (v.phase != riding || from.selects != all) {
			continue
		}
		if err := w.deliver(r, from, v); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) deliver(r *rule, from, v *want) error {
	h := &w.histories[from.history]
	for k := range w.keys {
		now := from.held[k]
		if now > 0 && !v.selects.selects(k, h.at(k, now)) {
			now = 0
		}
		last := h.last(v.selects, k, from.reached)
		if moment(from.history, last).before(moment(v.heardIn, v.heardAt[k])) {
			return broken("the handler of %s goes back: %d after %d of %d", v.selects, last, v.heardAt[k], k)
		}
		if now == 0 && r.breaks == deletesUnheard {
			continue
		}
		v.heard[k], v.heardAt[k] = now, last
	}
	v.heardIn = from.history
	return nil
}
