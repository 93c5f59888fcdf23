// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"strings"
	"time"
)

// turn is the state of an object, or its absence, from a moment on.
type turn struct {
	from  int
	state state // empty: there is no such object
}

// view is a read in an epoch.
type view struct {
	selection

	epoch string
	get   bool // of one object, by its name
}

// binds reports whether the read other must not show an earlier moment than the
// read v: every watch that could answer v can answer other, too. A read that is
// wider than v is not bound: the watch that answers it may lag behind the watch
// of a part of it.
func (v view) binds(other view) bool {
	return v.epoch == other.epoch && v.covers(other.selection) && (!v.get || other.get)
}

// turned records the current state of each object of a kind.
func (c *chronicle) turned(k *kind, truth map[string]state) {
	if c.turns[k] == nil {
		c.turns[k] = map[string][]turn{}
	}
	for key, x := range truth {
		c.turn(k, key, x)
	}
	for key := range c.turns[k] {
		c.turn(k, key, truth[key])
	}
}

func (c *chronicle) turn(k *kind, key string, x state) {
	all := c.turns[k][key]
	if len(all) == 0 {
		all = []turn{{}}
	}
	if all[len(all)-1].state != x {
		all = append(all, turn{c.moment, x})
	}
	c.turns[k][key] = all
}

// when returns the first moment, not before a bound, at which a selection
// showed a state of an object. Content that changed under a version is not
// distinguished: only a list shows it.
func when(all []turn, sel selection, x state, bound int) (at int, found bool) {
	for i, t := range all {
		if i+1 < len(all) && all[i+1].from <= bound {
			continue
		}
		if !sel.matches(t.state) {
			t.state = state{}
		}
		if t.state.uid == x.uid && t.state.rv == x.rv {
			return max(bound, t.from), true
		}
	}
	return 0, false
}

// onward compares an answer of the cache with its earlier answers. Within an
// epoch nothing goes back, neither a state of an object nor its absence,
// however often an informer started over, and whichever informer answers. If
// only an audit can find that an informer is wrong, two informers may differ
// until then.
func (w *world) onward(s *site, v view, got map[string]state) {
	if v.kind.bare || time.Since(s.switched) < proofAge || w.audited() && v.selection != (selection{kind: v.kind}) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.chronicles[s]
	if c.shown[v] == nil {
		c.shown[v] = map[string]int{}
	}
	for key, all := range c.turns[v.kind] {
		if !v.names(key) {
			continue
		}
		bound, by := 0, v
		for other, shown := range c.shown {
			if other.binds(v) && shown[key] > bound {
				bound, by = shown[key], other
			}
		}
		at, found := when(all, v.selection, got[key], bound)
		_, ever := when(all, v.selection, got[key], 0)
		switch {
		case found:
			c.shown[v][key] = at
		case ever:
			w.goesBack(v, key, all, got[key], bound, by)
		}
	}
}

// names reports whether a selection may have an object of this name.
func (s selection) names(key string) bool {
	namespace, name, _ := strings.Cut(key, "/")
	return (s.namespace == "" || s.namespace == namespace) && (s.name == "" || s.name == name)
}

func (w *world) goesBack(v view, key string, all []turn, x state, bound int, by view) {
	was := state{}
	for _, t := range all {
		if t.from <= bound {
			was = t.state
		}
	}
	line := fmt.Sprintf("%s read backwards: %s (get %t) answered %q with %s, after %s (get %t) showed %s or later",
		w.clock(), v.selection, v.get, key,
		x, by.selection, by.get, was)
	if len(w.failures) < maxFailures {
		w.failures = append(w.failures, line)
	}
	w.log = append(w.log, line+" <<< FAILURE")
}

// peeks bounds the number of additional reads at once.
const peeks = 5

// peek reads wide and narrow selections, one after the other, in the middle of
// everything. It draws from a random source of its own, and so does not change
// the seed's plan.
func (w *world) peek(s *site) {
	k := w.kinds[w.eyes.IntN(len(w.kinds))]
	if k.bare || k.loose || k.fluid || w.limited != nil {
		return
	}
	defer w.glimpse(s, k)
	for range w.eyes.IntN(peeks) {
		mode, f := w.modes[w.eyes.IntN(len(w.modes))], k.forms()[w.eyes.IntN(len(k.forms()))]
		parts := []selection{
			{kind: k}, {kind: k, namespace: "a"}, {kind: k, tier: "gold"}, {kind: k, namespace: "b", tier: "gold"},
			{kind: k, namespace: "b", name: "stable-1"},
		}
		if i := w.eyes.IntN(2 * len(parts)); i < len(parts) {
			_, _ = w.list(s, parts[i], f, mode)
			continue
		}
		i := w.eyes.IntN(6)
		name := fmt.Sprintf("%s-%d", []string{"loose", "stable"}[w.eyes.IntN(2)], i)
		_, _, _ = w.get(s, k, space(i)+"/"+name, f, mode)
	}
}

// glimpse records that any object of a kind may have been shown by now. For an
// object that came and went, an informer knows whether a read has looked at its
// cache meanwhile, but not at which part of it.
func (w *world) glimpse(s *site, k *kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, all := range w.chronicles[s].turns[k] {
		for _, t := range all {
			w.shown[t.state.uid] = true
		}
	}
}
