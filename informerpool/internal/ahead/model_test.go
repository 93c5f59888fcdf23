// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package ahead_test

import (
	"flag"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/repeat"
)

var (
	depth = flag.Int("depth", 8, "how many steps to visit completely, and two less with -short")
	runs  = flag.Int("runs", 5_000, "how many random runs to make, and a fifth of them with -short")
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

func (c *census) add(other census) {
	c.states += other.states
	c.steps += other.steps
	c.cached += other.cached
	c.behind += other.behind
	c.untilBookmark += other.untilBookmark
	c.other += other.other
}

// read is a get of a key, or the list of a selection.
type read struct {
	key     int // or -1
	list    selection
	written bool // it has to show the last write of the key
}

func (w *world) reads() []read {
	reads := []read{{-1, all, false}, {-1, first, false}, {-1, second, false}, {-1, byX, false}, {-1, byY, false}}
	for k := range w.keys {
		reads = append(reads, read{k, all, false}, read{k, all, true})
	}
	return reads
}

// readAll makes all reads, or random ones, and checks their answers.
func (w *world) readAll(r *rule, c *census, reads []read, random *rand.Rand) error {
	for _, read := range reads {
		if random != nil && random.IntN(2) == 0 {
			continue
		}
		if err := w.read(r, c, read); err != nil {
			return err
		}
	}
	return nil
}

// read makes a read, and checks its answer.
func (w *world) read(r *rule, c *census, is read) error {
	by, why := w.choose(r, is)
	switch why {
	case cached:
		c.cached++
	case behind:
		c.behind++
		after := *w
		for after.deliverOne(r) {
		}
		if _, still := after.choose(r, is); still == behind {
			c.untilBookmark++
			if !is.written && after.follows() {
				return broken("%v waits for a bookmark, although all events have arrived", is)
			}
		}
		return nil
	default:
		c.other++
		return nil
	}
	if is.key < 0 {
		return w.gotList(is.list, by)
	}
	return w.got(is.key, by, w.demands(is))
}

// follows reports whether each informer follows the server.
func (w *world) follows() bool {
	for i := range w.count {
		v := &w.wants[i]
		if v.phase == listing || v.phase == synced && (v.relists || v.refused || v.history != w.history) {
			return false
		}
	}
	return true
}

func (w *world) choose(r *rule, is read) (int, verdict) {
	if is.key < 0 {
		return r.list(w, is.list)
	}
	return r.get(w, is.key, w.demands(is))
}

func (w *world) demands(is read) instant {
	if !is.written {
		return instant{}
	}
	return w.written[is.key]
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
func (w *world) got(key, i int, written instant) error {
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
	case is.before(w.shown.gets[key]) && version == 0 && w.absentSince(all, key, &w.shown.gets[key]):
		return nil
	case is.before(w.shown.gets[key]):
		return broken("a get of %d by %s goes back from %v to %v", key, v.selects, w.shown.gets[key], is)
	case is.before(written):
		return broken("a get of %d by %s shows %v, before the write of %v", key, v.selects, is, written)
	}
	w.shown.gets[key] = is
	return nil
}

// absentSince reports whether a selection lacked an object at a moment or later,
// and makes the moment the first such: an answer without the object may be of
// that time, for all that anyone can tell.
func (w *world) absentSince(s selection, key int, m *instant) bool {
	h := &w.histories[m.History]
	for v := m.Version; v <= uint64(h.now); v++ {
		if !s.selects(key, h.at(key, uint8(v))) {
			m.Version = v
			return true
		}
	}
	return false
}

func (w *world) from(i int) *want {
	from, _ := w.via(i)
	return from
}

// isState checks that a want has an object as it was at its position.
func (w *world) isState(s selection, from *want, key int, version uint8) error {
	h := &w.histories[from.history]
	truth := uint8(0)
	if s.selects(key, h.at(key, from.reached)) {
		truth = h.last(all, key, from.reached)
	}
	if version != truth {
		return broken("%s shows version %d of %d at %d, which the server had in version %d",
			s, version, key, from.reached, truth)
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
		if has := from.at(); is.before(before[k]) && w.absentSince(list, k, &has) && has == from.at() &&
			w.absentSince(list, k, &before[k]) {
			continue
		}
		if is.before(before[k]) {
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
				return broken("the handler of %s is left with version %d of %d, and not %d",
					v.selects, v.heard[k], k, is)
			}
			if v.selects.decides(k) {
				if _, why := r.get(&after, k, after.written[k]); why != cached {
					return broken("a get of %d stays live (%d) although %s is up to date", k, why, v.selects)
				}
			}
		}
		if _, why := r.list(&after, v.selects); why != cached && !v.selects.named() {
			return broken("a list of %s stays live (%d) although its informer is up to date", v.selects, why)
		}
	}
	return nil
}

func (is read) String() string {
	switch {
	case is.key < 0:
		return fmt.Sprintf("list(%v)", is.list)
	case is.written:
		return fmt.Sprintf("getWritten(%d)", is.key)
	}
	return fmt.Sprintf("get(%d)", is.key)
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
	reads  []read
	limits limits
	census census
	seen   map[uint64]int8 // how deep was searched from a state
	seed   maphash.Seed
	path   []fmt.Stringer
}

// explore returns the violation that the steps of e.path lead to, or nil. All
// reads are made in each state.
func (e *explorer) explore(w *world, depth int) error {
	key := maphash.Comparable(e.seed, *w)
	if left, ok := e.seen[key]; ok && int(left) >= depth {
		return nil
	} else if !ok {
		e.census.states++
	}
	e.seen[key] = int8(depth)
	if depth == 0 {
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
		if err := next.readAll(e.rule, &e.census, e.reads, nil); err != nil {
			return err
		}
		e.rule.forget(&next)
		if err := next.settled(e.rule); err != nil {
			return err
		}
		if err := e.explore(&next, depth-1); err != nil {
			return err
		}
		e.path = e.path[:len(e.path)-1]
	}
	return nil
}

// few are the limits of the runs that are visited completely.
var few = limits{writes: 4, restores: 1, refusals: true}

var pairs = [][]selection{
	{all, nameA}, {all, first}, {all, byX}, {nameA, byX}, {nameA, nameB}, {first, nameA}, {first, byX}, {byX, byY},
}

// exhaust visits all states to a depth. It returns the steps to one that breaks
// a promise.
func exhaust(r *rule, l limits, depth int, wants ...selection) (census, []fmt.Stringer, error) {
	w := newWorld(2, wants...)
	e := &explorer{
		rule: r, reads: w.reads(), limits: l,
		seen: map[uint64]int8{}, seed: maphash.MakeSeed(),
	}
	err := e.explore(&w, depth)
	return e.census, e.path, err
}

// shortest returns the shortest way to a state that breaks a promise.
func shortest(r *rule, l limits, depth int, wants ...selection) (path []fmt.Stringer, err error) {
	for d := 1; d <= depth && err == nil; d++ {
		_, path, err = exhaust(r, l, d, wants...)
	}
	return path, err
}

// wander makes a random run, and returns its steps if it breaks a promise.
func wander(r *rule, random *rand.Rand, length int, c *census) ([]fmt.Stringer, error) {
	perm := random.Perm(int(selections))
	w := newWorld(3, selection(perm[0]), selection(perm[1]), selection(perm[2]))
	if random.IntN(2) == 0 {
		w.wants[0].selects, w.wants[1].selects = all, selection(max(perm[1], 1))
		if w.wants[2].selects = selection(max(perm[2], 1)); w.wants[2].selects == w.wants[1].selects {
			w.count = 2
		}
	}
	l := limits{writes: maxVersions, restores: maxHistories - 1, refusals: true, touches: true}
	var path []fmt.Stringer
	reads, rarely := w.reads(), 1+random.IntN(4)
	for range length {
		var space [64]step
		steps := w.steps(space[:0], l)
		s := steps[random.IntN(len(steps))]
		switch s.do { // rare
		case release, restore, relist, refuse:
			if random.IntN(rarely) > 0 {
				continue
			}
		}
		path = append(path, s)
		c.steps++
		if err := w.do(r, s); err != nil {
			return path, fmt.Errorf("%v: %w", w.wants[0].selects, err)
		}
		err := w.readAll(r, c, reads, random)
		if r.forget(&w); err == nil {
			err = w.settled(r)
		}
		if err != nil {
			return path, fmt.Errorf("%v %v %v: %w", w.wants[0].selects, w.wants[1].selects, w.wants[2].selects, err)
		}
	}
	return nil, nil
}

// TestReadsNeverGoBack visits all states of two informers and two objects that
// -depth steps lead to, two less with -short, and makes each read in each. Its
// oracles:
//
//   - the answers to one read, cached, never go back;
//   - a cached answer is the server's state at the position of an informer that
//     was not refused, and what it calls absent does not exist there;
//   - a read that has to show a write shows it;
//   - a handler never goes back, and has the last state of each object once all
//     events have arrived; a hand-over loses none, and sends no list;
//   - no list is older than what was shown when it began;
//   - once all events have arrived, trusted informers answer, without a bookmark;
//     those that have to show a write may need one.
//
// With the narrowest informer first they hold as well. The log says how many
// reads each makes live.
func TestReadsNeverGoBack(t *testing.T) {
	steps := *depth
	if testing.Short() {
		steps -= 2
	}
	for _, c := range []struct {
		rule  rule
		steps int
	}{{leads, steps}, {backwards, steps - 2}} {
		var total census
		for _, wants := range pairs {
			seen, path, err := exhaust(&c.rule, few, c.steps, wants...)
			require.NoError(t, err, "%s of %v: %v", c.rule.name, wants, path)
			total.add(seen)
		}
		t.Logf("%s, %d steps: %v", c.rule.name, c.steps, total)
	}
}

// TestReadsNeverGoBackAtRandom makes long random runs of up to three informers
// and three objects, in which reads are left out at random.
//
//	go test ./informerpool/internal/ahead -run AtRandom -runs 100000
func TestReadsNeverGoBackAtRandom(t *testing.T) {
	for _, r := range []rule{leads, backwards} {
		n := repeat.Times(*runs)
		if r.name != leads.name {
			n /= 10
		}
		var c census
		for seed := range uint64(n) {
			path, err := wander(&r, rand.New(rand.NewPCG(seed, 26)), 100, &c)
			require.NoError(t, err, "%s, run %d: %v", r.name, seed, path)
		}
		t.Log(r.name, n, "runs:", c)
	}
}

// TestTheModelFindsMutants breaks each sentence of the rule, and of what
// informers do: at most six steps and two reads show it.
func TestTheModelFindsMutants(t *testing.T) {
	for m := nothing + 1; m < mutants; m++ {
		r := leads
		r.breaks = m
		path, err := shortest(&r, few, 9, mutations[m].wants...)
		require.Error(t, err, mutations[m].does)
		t.Logf("%s: %v: %v", mutations[m].does, path, err)
	}
}
