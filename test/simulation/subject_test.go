// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
)

// subject is a watch with a handler of its events.
type subject struct {
	site *site
	selection

	watch  *clustercache.Watch
	handle *clustercache.Registration

	closed atomic.Bool
	busy   atomic.Bool // the handler has been called, and has not returned

	mu      sync.Mutex     // protects the fields below
	settled bool           // the handler is in place
	heard   int            // the number of events so far
	lastOf  map[string]int // the number of the last event of an object
	fold    map[string]state
	events  []told
	// unheard are deletes of objects that the handler had not received before:
	// a read must have shown them.
	unheard []told
}

// told is an event as the handler received it.
type told struct {
	at    string
	by    int // the moment of the chronicle
	what  informerpool.EventType
	state state
	again bool // a resync
}

func (t told) String() string { return fmt.Sprintf("%s %s %s", t.at, t.what, t.state) }

// follow takes a watch.
func (w *world) follow(s *site, sel selection) *subject {
	sub := &subject{site: s, selection: sel, fold: map[string]state{}, lastOf: map[string]int{}}
	var opts []client.ListOption
	if sel.namespace != "" {
		opts = append(opts, client.InNamespace(sel.namespace))
	}
	if sel.tier != "" {
		opts = append(opts, client.MatchingLabels{"tier": sel.tier})
	}
	if sel.name != "" {
		opts = append(opts, client.MatchingFields{"metadata.name": sel.name})
	}
	w.mu.Lock()
	w.subjects = append(w.subjects, sub)
	w.mu.Unlock()
	var err error
	if sub.watch, err = w.cc.Cluster(s.key).Watch(context.Background(), clustercache.Kind(sel.kind.gvk),
		opts...); err != nil {
		w.fail("watch %s: %v", sel, err)
		return sub
	}
	if sub.handle, err = sub.watch.AddEventHandler(
		informerpool.HandlerFunc(func(e informerpool.Event) { sub.take(w, e) })); err != nil {
		w.fail("handle %s: %v", sel, err)
		return sub
	}
	sub.mu.Lock()
	sub.settled = true
	sub.mu.Unlock()
	return sub
}

// leave gives up a watch.
func (w *world) leave(sub *subject) {
	w.trace("%s: leave %s", sub.site.name, sub.selection)
	w.mu.Lock()
	w.subjects = slices.DeleteFunc(w.subjects, func(x *subject) bool { return x == sub })
	w.left = append(w.left, sub)
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if w.chance(2) {
		err = sub.handle.Close(ctx)
		sub.watch.Release()
	} else {
		err = sub.watch.Close(ctx)
	}
	if err != nil {
		w.fail("close %s: %v", sub.selection, err)
	}
	sub.closed.Store(true)
}

// take is the handler.
func (s *subject) take(w *world, e informerpool.Event) {
	s.busy.Store(true)
	defer s.busy.Store(false)
	if g := w.gates[s.kind]; g != nil {
		g()
	}
	u, ok := e.Object().DeepCopyObject().(*unstructured.Unstructured)
	if !ok {
		w.fail("%s: an event without an object", s.selection)
		return
	}
	if u.GetKind() != s.kind.gvk.Kind || (e.New != nil && u.GetAPIVersion() != s.kind.gvk.GroupVersion().String()) {
		w.fail("%s: an event of a %s %s", s.selection, u.GetAPIVersion(), u.GetKind())
	}
	t := told{at: w.clock(), by: w.moment(s.site), what: e.Type, state: stateOf(u), again: e.Resync}
	if isForeign(s.kind, t.state) {
		return
	}
	if s.closed.Load() {
		w.fail("%s: called after it was closed: %s", s.selection, t)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.fold[t.state.key]
	switch {
	case e.Type == informerpool.Added && known:
		w.fail("%s: Added twice: %s, was %s", s.selection, t, was)
	case e.Type == informerpool.Updated && !known:
		w.fail("%s: Updated without Added: %s", s.selection, t)
	case e.Type == informerpool.Updated && was.uid != t.state.uid:
		w.fail("%s: Updated is of another object: %s, was %s", s.selection, t, was)
	case e.Type == informerpool.Deleted && !known:
		s.unheard = append(s.unheard, t)
	}
	if e.Type == informerpool.Deleted {
		delete(s.fold, t.state.key)
	} else {
		s.fold[t.state.key] = t.state
	}
	s.events = append(s.events, t)
	s.heard++
	s.lastOf[t.state.key] = s.heard
}

// count returns how many events the handler has received.
func (s *subject) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

// backlog bounds how long a slow handler takes for the events that wait for it.
const backlog = time.Minute

// catchUp waits until a handler has received the events that waited for it.
// Without a fault of the library, that takes less than backlog.
func (w *world) catchUp(sub *subject) {
	for began := time.Now(); time.Since(began) < backlog; w.pause(slowness) {
		synctest.Wait() // the next call has begun, if there is one
		if !sub.busy.Load() {
			return
		}
	}
}

// folded returns the state that the events add up to.
func (s *subject) folded() map[string]state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.fold)
}

// judge compares the events with the chronicle.
func (s *subject) judge(w *world, c *chronicle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind.bare {
		return
	}
	for _, t := range s.unheard {
		if !w.wasShown(t.state.uid) {
			w.fail("%s: Deleted without Added: %s", s.selection, t)
		}
	}
	lives, last, deleted := c.lives[s.kind], map[string]told{}, map[string]int{}
	for _, t := range s.events {
		if t.what == informerpool.Deleted {
			if !c.left(s.selection, t.state.uid) {
				w.fail("%s: told of a delete that never was: %s", s.selection, t)
			}
			last[t.state.key], deleted[t.state.uid] = t, t.by
			continue
		}
		if by, gone := deleted[t.state.uid]; gone && !t.again && c.revived(s.selection, t.state, by) {
			w.fail("%s: told of one that had gone: %s, after %s", s.selection, t, last[t.state.key])
		}
		is, known := lives[t.state]
		if !known {
			w.fail("%s: told of a state that never was: %s", s.selection, t)
			continue
		}
		if before, ok := last[t.state.key]; ok && before.what != informerpool.Deleted && !t.again {
			was := lives[before.state]
			switch {
			case before.state == t.state && !returned(lives, t.state):
				w.fail("%s: told twice: %s, and %s", s.selection, before, t)
			case is.last < was.first:
				w.fail("%s: told backwards: %s, then %s", s.selection, before, t)
			}
		}
		last[t.state.key] = t
	}
}

// returned reports whether an object was in a state, then in another one, and
// then in the first one again.
func returned(lives map[state]life, x state) bool {
	for y, l := range lives {
		if y.key == x.key && y != x && l.first > lives[x].first && l.first < lives[x].last {
			return true
		}
	}
	return false
}

// differ describes how two sets of states differ; empty if they do not.
func differ(want, got map[string]state, metadataOnly bool) string {
	var out []string
	for key, x := range want {
		y, ok := got[key]
		if metadataOnly {
			x.value, y.value = "", ""
		}
		switch {
		case !ok:
			out = append(out, "lacks "+x.String())
		case x != y:
			out = append(out, fmt.Sprintf("has %s and not %s", y, x))
		}
	}
	for key, y := range got {
		if _, ok := want[key]; !ok {
			out = append(out, "has in excess "+y.String())
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// TestSlowHandlersAreJudgedOnceTheyAreIdle: a handler that is behind lacks
// nothing, and one that a change never reaches does, however busy it was.
func TestSlowHandlersAreJudgedOnceTheyAreIdle(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			of, err := plan(1, "slow")
			require.NoError(t, err)
			w := newWorld(t, 1, of)
			of[0].begin(w, nil)
			s := w.add("one")
			w.run()
			sub := w.follow(s, selection{kind: configMaps})
			require.True(t, w.await(time.Minute, "first sync"))
			change := func(i int) {
				b := s.current()
				w.must(b.store(configMaps.object(space(i), fmt.Sprintf("stable-%d", i), "tin", w.value(b))))
				w.observe()
			}
			for i := range stable - 1 {
				change(i)
			}
			w.pause(slowness / 2)
			if lost {
				s.api().Freeze(everything)
			}
			change(stable - 1)
			w.pause(slowness / 2)
			behind := w.checkSubject(sub, false)
			wrong := slices.DeleteFunc(w.check(s, false), func(d string) bool {
				return !strings.HasPrefix(d, "handler of ")
			})
			s.api().Thaw(everything, false)
			for i := range stable {
				change(i)
			}
			w.await(time.Second, "sooner than the handler is idle")
			w.finish()
			require.False(t, w.failed(), w.report())
			require.NotEmpty(t, behind)
			if !lost {
				require.Empty(t, wrong)
				return
			}
			require.Len(t, wrong, 1)
			require.Contains(t, wrong[0], `has "b/stable-3"`)
			require.NotContains(t, wrong[0], "; has", "it lacks one change alone")
		})
	}
}
