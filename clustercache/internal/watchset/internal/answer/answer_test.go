// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package answer_test

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/internal/watchset/internal/answer"
)

// census counts what was seen.
type census struct {
	states, steps                        int
	cached, behind, untilBookmark, other int // reads
}

func (c census) String() string {
	return fmt.Sprintf("%d states, %d steps; of %d reads that a trusted informer covers, "+
		"%.1f %% were live, %.1f %% until a bookmark",
		c.states, c.steps, c.cached+c.behind, 100*float64(c.behind)/float64(c.cached+c.behind),
		100*float64(c.untilBookmark)/float64(c.cached+c.behind))
}

// readAll makes every read, and checks its answers; random leaves some out.
func (w *world) readAll(r *rule, c *census, random *rand.Rand) error {
	for k := range w.keys {
		for _, written := range []answer.Moment{{}, w.written[k]} {
			if random != nil && random.IntN(2) == 0 {
				continue
			}
			get := func(w *world) (int, answer.Verdict) { return r.get(w, r, k, written) }
			by, why := w.read(r, c, get)
			if why != answer.Cached {
				continue
			}
			if err := w.got(k, by, written); err != nil {
				return err
			}
		}
	}
	for _, s := range []selection{all, first, byX, byY} {
		if random != nil && random.IntN(2) == 0 {
			continue
		}
		list := func(w *world) (int, answer.Verdict) { return r.list(w, r, s) }
		by, why := w.read(r, c, list)
		if why != answer.Cached {
			continue
		}
		if err := w.gotList(s, by); err != nil {
			return err
		}
	}
	return nil
}

// read makes a read and counts it.
func (w *world) read(r *rule, c *census, read func(*world) (int, answer.Verdict)) (int, answer.Verdict) {
	by, why := read(w)
	switch why {
	case answer.Cached:
		c.cached++
	case answer.Behind:
		c.behind++
		after := *w
		for after.deliverOne(r) {
		}
		if _, still := read(&after); still == answer.Behind {
			c.untilBookmark++
		}
	default:
		c.other++
	}
	return by, why
}

func (w *world) deliverOne(r *rule) bool {
	for i := range w.count {
		v := &w.wants[i]
		if v.phase != synced || v.refused || v.relists || v.history != w.history {
			continue
		}
		if next := w.server().next(v.selects, v.reached); next > 0 {
			_ = w.event(r, i, next)
			return true
		}
	}
	return false
}

// got checks the answer to a get.
func (w *world) got(key, i int, written answer.Moment) error {
	v, from := &w.wants[i], w.from(i)
	h := &w.histories[from.history]
	if from.refused {
		return broken("%s answers a get although it was refused", v.selects)
	}
	version := w.has(i, key)
	if err := w.isState(v.selects, from, key, version); err != nil {
		return err
	}
	is := moment(from.history, h.last(all, key, from.reached))
	switch {
	case version == 0 && h.at(key, from.reached) != absent:
		return broken("%s calls an object absent that exists", v.selects)
	case is.Before(w.shown.gets[key]):
		return broken("a get of %d by %s goes back from %v to %v", key, v.selects, w.shown.gets[key], is)
	case is.Before(written):
		return broken("a get of %d by %s shows %v, before the write of %v", key, v.selects, is, written)
	}
	w.shown.gets[key] = is
	return nil
}

func (w *world) from(i int) *want {
	from, _ := w.via(i)
	return from
}

// isState checks that a want has an object as it was at its position.
func (w *world) isState(s selection, from *want, key int, version uint8) error {
	h := &w.histories[from.history]
	true_ := uint8(0)
	if s.selects(key, h.at(key, from.reached)) {
		true_ = h.last(all, key, from.reached)
	}
	if version != true_ {
		return broken("%s shows version %d of %d at %d, which the server had in version %d",
			s, version, key, from.reached, true_)
	}
	return nil
}

// gotList checks the answer to a list.
func (w *world) gotList(list selection, i int) error {
	v, from := &w.wants[i], w.from(i)
	if from.refused {
		return broken("%s answers a list although it was refused", v.selects)
	}
	before := &w.shown.lists[list]
	for k := range w.keys {
		if err := w.isState(v.selects, from, k, w.has(i, k)); err != nil {
			return err
		}
		is := moment(from.history, w.histories[from.history].last(list, k, from.reached))
		if is.Before(before[k]) {
			return broken("a list of %s by %s goes back from %v to %v of %d", list, v.selects, before[k], is, k)
		}
		before[k] = is
	}
	return nil
}

// settled checks that handlers have received the last state of each object, and
// that trusted informers answer, once everything has arrived.
func (w *world) settled(r *rule) error {
	after := *w
	for after.deliverOne(r) {
	}
	for i := range w.count {
		v := &after.wants[i]
		if v.phase == synced && !v.refused && !v.relists && v.history == w.history {
			v.reached = w.server().now
		}
	}
	for i := range w.count {
		v := &after.wants[i]
		from, shows := after.via(i)
		if !shows || from.refused || from.relists || from.history != w.history {
			continue
		}
		for k := range w.keys {
			is := uint8(0)
			if s := after.server(); v.selects.selects(k, s.at(k, s.now)) {
				is = s.last(all, k, s.now)
			}
			if v.heard[k] != is {
				return broken("the handler of %s was left with version %d of %d, and not %d", v.selects, v.heard[k], k, is)
			}
			if v.selects.decides(k) {
				if _, why := r.get(&after, r, k, after.written[k]); why != answer.Cached {
					return broken("a get of %d stays live (%d) although %s is up to date", k, why, v.selects)
				}
			}
		}
		if _, why := r.list(&after, r, v.selects); why != answer.Cached && !v.selects.named() {
			return broken("a list of %s stays live (%d) although its informer is up to date", v.selects, why)
		}
	}
	return nil
}

// check checks a state that was reached.
func (w *world) check(r *rule, c *census, random *rand.Rand) error {
	if err := w.readAll(r, c, random); err != nil {
		return err
	}
	r.forget(w)
	return w.settled(r)
}

func newWorld(keys int, wants ...selection) world {
	w := world{keys: keys, count: len(wants)}
	for i, s := range wants {
		w.wants[i].selects = s
	}
	return w
}

// explorer visits all states to a depth.
type explorer struct {
	rule   *rule
	limits limits
	census census
	seen   map[uint64]int8 // how deep was searched from a state
	seed   maphash.Seed
	path   []step
	most   int // states, if not zero
}

// explore returns the violation that the steps of e.path lead to, or nil.
func (e *explorer) explore(w *world, depth int) error {
	key := maphash.Comparable(e.seed, *w)
	if left, ok := e.seen[key]; ok && int(left) >= depth {
		return nil
	}
	if _, ok := e.seen[key]; !ok {
		e.census.states++
	}
	e.seen[key] = int8(depth)
	if depth == 0 || e.most > 0 && e.census.states > e.most {
		return nil
	}
	var space [64]step
	for _, s := range w.steps(space[:0], e.limits) {
		next := *w
		e.path = append(e.path, s)
		e.census.steps++
		if err := next.do(e.rule, s); err != nil {
			return err
		}
		if err := next.check(e.rule, &e.census, nil); err != nil {
			return err
		}
		if err := e.explore(&next, depth-1); err != nil {
			return err
		}
		e.path = e.path[:len(e.path)-1]
	}
	return nil
}

var pairs = [][]selection{
	{all, nameA}, {all, first}, {all, byX}, {nameA, byX}, {nameA, nameB}, {first, nameA}, {first, byX}, {byX, byY},
}

func exhaust(r *rule, wants []selection, l limits, depth, most int) (*explorer, error) {
	e := &explorer{rule: r, limits: l, seen: map[uint64]int8{}, seed: maphash.MakeSeed(), most: most}
	w := newWorld(2, wants...)
	for d := 1; d <= depth; d++ { // the shortest way first
		if err := e.explore(&w, d); err != nil {
			return e, err
		}
		if most > 0 && e.census.states > most {
			break
		}
	}
	return e, nil
}

// wander makes a random run, and returns its steps if it breaks a promise.
func wander(r *rule, random *rand.Rand, length int, c *census) ([]step, error) {
	perm := random.Perm(int(selections))
	w := newWorld(3, selection(perm[0]), selection(perm[1]), selection(perm[2]))
	if random.IntN(2) == 0 {
		w.wants[0].selects, w.wants[1].selects = all, selection(max(perm[1], 1))
		if w.wants[2].selects = selection(max(perm[2], 1)); w.wants[2].selects == w.wants[1].selects {
			w.count = 2
		}
	}
	l := limits{writes: maxVersions, restores: maxHistories - 1, refusals: true, touches: true}
	var path []step
	for range length {
		steps := w.steps(nil, l)
		s := steps[random.IntN(len(steps))]
		switch s.do { // rare
		case release, restore, relist, refuse:
			if random.IntN(4) > 0 {
				continue
			}
		}
		path = append(path, s)
		c.steps++
		if err := w.do(r, s); err != nil {
			return path, fmt.Errorf("%v: %w", w.wants[0].selects, err)
		}
		if err := w.check(r, c, random); err != nil {
			return path, fmt.Errorf("%v %v %v: %w", w.wants[0].selects, w.wants[1].selects, w.wants[2].selects, err)
		}
	}
	return nil, nil
}

func fewer() limits { return limits{writes: 4, restores: 1, refusals: true} }

// TestAnswersNeverGoBack visits all states of two informers and two objects
// that some number of steps lead to.
func TestAnswersNeverGoBack(t *testing.T) {
	for _, wants := range pairs {
		t.Run(fmt.Sprint(wants), func(t *testing.T) {
			e, err := exhaust(&scoped, wants, fewer(), 6, 0)
			t.Log(e.census)
			require.NoError(t, err, e.path)
		})
	}
}
