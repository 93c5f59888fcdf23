// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fleetcache/fleetcache/clustercache"
)

// question identifies reads whose answers are comparable with each other.
type question struct {
	site *site
	selection
	bare   bool // it requests metadata alone
	mode   clustercache.ReadMode
	cached bool
}

// answer is the answer to a question, and how many events each handler had
// received when the question was last asked.
type answer struct {
	at    string
	got   map[string]state
	heard map[*subject]int
}

// asking records how many events the handlers of a site have received before a
// read.
func (w *world) asking(s *site) map[*subject]int {
	heard := map[*subject]int{}
	for _, sub := range w.watching(s) {
		sub.mu.Lock()
		if sub.settled {
			heard[sub] = sub.heard
		}
		sub.mu.Unlock()
	}
	return heard
}

// answered records the answer of a read. Of consecutive equal answers it keeps
// the last, which makes the strictest demands on handlers.
func (w *world) answered(q question, got map[string]state, heard map[*subject]int) {
	if q.kind.bare || q.kind.versionless || time.Since(q.site.switched) < proofAge {
		return // the object, or the cluster, of the answer is unknown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	a := answer{w.clock(), got, heard}
	all := w.answers[q]
	if n := len(all); n > 0 && maps.Equal(all[n-1].got, got) && w.sameHandlers(all[n-1].heard, heard) {
		all[n-1] = a
		return
	}
	w.answers[q] = append(all, a)
}

func (w *world) sameHandlers(a, b map[*subject]int) bool {
	return maps.EqualFunc(a, b, func(int, int) bool { return true })
}

// unheard returns the reads that would be answered differently by now, with the
// handlers that have received no event of the object since. Each of those
// handlers was there before the read, and its watch covers the object's state
// then or now.
func (w *world) unheard() []string {
	w.mu.Lock()
	answers := maps.Clone(w.answers)
	w.mu.Unlock()
	living := w.living()
	var out []string
	for q, all := range answers {
		if !slices.Contains(living, q.site) {
			continue
		}
		now, _ := q.site.truth(q.selection)
		every, _ := q.site.truth(selection{kind: q.kind})
		for _, a := range all {
			for _, key := range changed(a.got, now, q.bare) {
				out = append(out, w.deaf(q, a, key, every[key])...)
			}
		}
	}
	slices.Sort(out)
	return out
}

// changed returns the names of the objects in which two answers differ.
func changed(then, now map[string]state, metadataOnly bool) []string {
	plain := func(x state) state {
		if metadataOnly {
			x.value = ""
		}
		return x
	}
	var out []string
	for key, x := range then {
		if plain(x) != plain(now[key]) {
			out = append(out, key)
		}
	}
	for key := range now {
		if _, known := then[key]; !known {
			out = append(out, key)
		}
	}
	return out
}

// deaf returns the handlers that should have received an event of an object
// after a read of it. For a read that a cache answered, these are the handlers
// whose watches could have answered it as well: watches of a part of it may be
// ahead of it. If only an audit can find that an informer is wrong, one that
// was right all along has nothing to deliver, and the handlers of the wrong one
// receive the event.
func (w *world) deaf(q question, a answer, key string, now state) []string {
	var out []string
	was, heard := a.got[key], w.oneLeft(q, a) || w.keptByReads(q)
	for _, sub := range w.watching(q.site) {
		before, there := a.heard[sub]
		covers := sub.kind == q.kind && (was.key != "" && sub.matches(was) || now.key != "" && sub.matches(now))
		if !there || !covers || (q.cached && !sub.covers(q.selection)) {
			continue
		}
		if sub.heardOf(key, before) {
			heard = true
			continue
		}
		out = append(out, fmt.Sprintf(
			"handler of %s was told nothing of %q since %s, when list %s %s answered %s; it is %s", sub.selection, key,
			strings.TrimSpace(a.at), q.selection, q.mode, was, now))
	}
	if heard && q.cached && w.audited() {
		return nil
	}
	return out
}

// oneLeft reports whether a watch that could have answered a read was given up
// since: it may have been the wrong one.
func (w *world) oneLeft(q question, a answer) bool {
	now := w.watching(q.site)
	for sub := range a.heard {
		if sub.covers(q.selection) && !slices.Contains(now, sub) {
			return true
		}
	}
	return false
}

// keptByReads reports whether reads alone keep a watch that could have answered
// a question: it has no handler, and may have been the one that was wrong.
func (w *world) keptByReads(q question) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for other := range w.answers {
		kept := other.site == q.site && other.mode == clustercache.AutoWatch && other.covers(q.selection)
		if kept && !slices.ContainsFunc(w.subjects, func(sub *subject) bool {
			return sub.site == q.site && sub.selection == other.selection
		}) {
			return true
		}
	}
	return false
}

// audited reports whether the run has a family that only an audit can find.
func (w *world) audited() bool {
	return slices.ContainsFunc(w.families, func(f *family) bool { return f.bound >= audited })
}

// heardOf reports whether a handler has received an event of an object after
// its first since events.
func (s *subject) heardOf(key string, since int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastOf[key] > since
}

// wayBack requires that whenever a read has shown a state that has changed
// since, an event followed: otherwise a controller that acted on the read would
// never reconsider.
func (w *world) wayBack() {
	bound := time.Minute
	if w.audited() {
		bound = audited
	}
	began := time.Now()
	for {
		wrong := w.unheard()
		if len(wrong) == 0 {
			return
		}
		if time.Since(began) > bound {
			for _, d := range wrong {
				w.fail("no way back, %s later: %s", time.Since(began), d)
			}
			return
		}
		w.pause(5 * time.Second)
	}
}
