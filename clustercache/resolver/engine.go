// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// engine keeps a copy of the objects that a convention needs, and answers from
// it:
//
//	listWatch (one per kind) --event--> apply --dirty clusters--> compute --> answers
//	                                      ^                          |           |
//	                                      +--- watches to start -----+        Resolve
//
// One goroutine owns the copy and computes; only the answers are shared. Each
// call of run has its own engine.
type engine struct {
	h      *HubResolver
	events chan event
	wg     sync.WaitGroup
	ctx    context.Context //nolint:containedctx // of run; only its goroutine starts watches

	// Owned by the goroutine of run.
	whole   []*listWatch // of the kinds that are watched as a whole; the first is the primary kind's
	unheard map[*listWatch]struct{}
	named   map[ObjectRef]*listWatch
	objects map[ObjectRef]*held
	claims  map[Cluster]map[ObjectRef]struct{} // primary objects that describe a cluster
	uses    map[Cluster][]ObjectRef            // objects an answer was made of, existing or not
	users   map[ObjectRef]map[Cluster]struct{} // the inverse of uses

	unknown map[ObjectRef]found // objects of the primary kind whose clusters are unknown

	mu      sync.Mutex // protects the fields below
	synced  bool
	answers map[Cluster]answer
	doubt   *found // one of unknown
}

// held is an object of the copy.
type held struct {
	found
	from *listWatch
	gone time.Time // when it vanished; zero while it exists
}

// answer is what Resolve returns.
type answer struct {
	access Access
	err    error
	// pending means that the watches have not reported an object that matters
	// yet.
	pending bool
}

func (a answer) equal(b answer) bool {
	if a.pending != b.pending || (a.err == nil) != (b.err == nil) {
		return false
	}
	if a.err != nil {
		return a.err.Error() == b.err.Error()
	}
	return a.access.Revision() == b.access.Revision()
}

func newEngine(h *HubResolver) *engine {
	return &engine{
		h:       h,
		events:  make(chan event),
		unheard: map[*listWatch]struct{}{},
		named:   map[ObjectRef]*listWatch{},
		objects: map[ObjectRef]*held{},
		claims:  map[Cluster]map[ObjectRef]struct{}{},
		uses:    map[Cluster][]ObjectRef{},
		users:   map[ObjectRef]map[Cluster]struct{}{},
		unknown: map[ObjectRef]found{},
		answers: map[Cluster]answer{},
	}
}

// answer returns the current answer; false if only the hub can answer.
func (e *engine) answer(cluster Cluster) (answer, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()

	found, ok := e.answers[cluster]
	switch {
	case ok:
		return found, !found.pending
	case e.doubt != nil:
		return answer{err: e.doubt.mayStandFor(cluster)}, true
	}

	return answer{err: e.h.missing(cluster)}, true
}

func (e *engine) isSynced() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.synced
}

func (e *engine) clusters() []Cluster {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.answers))
}

// run watches and computes until ctx ends.
func (e *engine) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer e.wg.Wait()
	defer cancel()
	e.ctx = ctx
	for _, k := range e.h.kinds() {
		w := e.start(k)
		e.whole = append(e.whole, w)
		e.unheard[w] = struct{}{}
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()

	for {
		timer.Reset(e.untilNextExpiry())
		select {
		case <-ctx.Done():
			return
		case got := <-e.events:
			e.apply(got)
		case <-timer.C:
			e.expire()
		}
	}
}

func (e *engine) start(k kind) *listWatch {
	ctx, cancel := context.WithCancel(e.ctx)
	w := &listWatch{
		hub:    e.h.hub,
		kind:   k,
		logger: e.h.options.Logger,
		cancel: cancel,
		emit: func(ctx context.Context, got event) {
			select {
			case e.events <- got:
			case <-ctx.Done():
			}
		},
	}
	e.wg.Go(func() {
		defer cancel()
		w.run(ctx)
	})
	return w
}

// apply updates the copy, and then the answers that depend on the changes.
func (e *engine) apply(got event) {
	if !e.follows(got.from) {
		return // stopped while it was sending
	}
	dirty := map[Cluster]struct{}{}
	listed := map[ObjectRef]struct{}{}
	for _, object := range got.objects {
		f, ours := e.selects(got.from, object)
		if ours && got.what != eventRemove {
			listed[f.ref] = struct{}{}
			e.put(f, got.from, dirty)
		} else {
			e.lose(f.ref, got.from)
		}
	}

	if got.what == eventList {
		for ref, object := range e.objects {
			if _, there := listed[ref]; !there && object.from == got.from {
				e.lose(ref, got.from)
			}
		}
		if _, waited := e.unheard[got.from]; waited {
			e.hear(got.from, dirty)
		}
	}

	if e.h.options.Grace < 0 {
		e.expireInto(dirty)
	}
	e.compute(dirty)
}

func (e *engine) follows(w *listWatch) bool {
	if slices.Contains(e.whole, w) {
		return true
	}
	for _, other := range e.named {
		if w == other {
			return true
		}
	}
	return false
}

func (e *engine) selects(from *listWatch, object client.Object) (found, bool) {
	if from == e.whole[0] {
		return e.h.primary(object)
	}
	return from.kind.selects(object)
}

// hear records the first list of a watch.
func (e *engine) hear(w *listWatch, dirty map[Cluster]struct{}) {
	delete(e.unheard, w)
	for ref, other := range e.named {
		if w == other {
			e.markUsers(ref, dirty)
		}
	}
}

// put adds or updates an object.
func (e *engine) put(f found, from *listWatch, dirty map[Cluster]struct{}) {
	old := e.objects[f.ref]
	_, unknown := e.unknown[f.ref]
	switch {
	case f.failed == nil:
		delete(e.unknown, f.ref)
	case old != nil && !unknown:
		f.keep(old.found)
	case from == e.whole[0]:
		e.unknown[f.ref] = f
	}

	if old != nil {
		e.unclaim(old.found, dirty)
	}
	e.objects[f.ref] = &held{found: f, from: from}
	for _, cluster := range f.clusters {
		if e.claims[cluster] == nil {
			e.claims[cluster] = map[ObjectRef]struct{}{}
		}
		e.claims[cluster][f.ref] = struct{}{}
		dirty[cluster] = struct{}{}
	}

	e.markUsers(f.ref, dirty)
}

// lose records that an object vanished. It counts as existing until its grace
// period is over.
func (e *engine) lose(ref ObjectRef, from *listWatch) {
	if object := e.objects[ref]; object != nil && object.from == from && object.gone.IsZero() {
		object.gone = time.Now()
	}
}

func (e *engine) unclaim(f found, dirty map[Cluster]struct{}) {
	for _, cluster := range f.clusters {
		delete(e.claims[cluster], f.ref)
		dirty[cluster] = struct{}{}
	}
}

func (e *engine) markUsers(ref ObjectRef, dirty map[Cluster]struct{}) {
	for cluster := range e.users[ref] {
		dirty[cluster] = struct{}{}
	}
}

func (e *engine) expire() {
	dirty := map[Cluster]struct{}{}
	e.expireInto(dirty)
	e.compute(dirty)
}

// expireInto forgets objects whose grace period is over.
func (e *engine) expireInto(dirty map[Cluster]struct{}) {
	for ref, object := range e.objects {
		if object.gone.IsZero() || time.Since(object.gone) < e.h.options.Grace {
			continue
		}
		delete(e.objects, ref)
		delete(e.unknown, ref)
		e.unclaim(object.found, dirty)
		e.markUsers(ref, dirty)
	}
}

// untilNextExpiry returns the time until the next grace period ends, or an hour
// if there is none.
func (e *engine) untilNextExpiry() time.Duration {
	out := time.Hour
	for _, object := range e.objects {
		if !object.gone.IsZero() {
			out = min(out, max(0, e.h.options.Grace-time.Since(object.gone)))
		}
	}
	return out
}
