// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// custom is the resource of Widgets, whatever its plural.
var custom = []string{"sim.example.com"}

func kindFamilies() []*family {
	return []*family{
		{name: "unserved", concerns: custom, hold: silence, bound: 2 * time.Minute,
			strike: func(w *world, s *site) func() {
				b := s.current()
				b.define("v1beta1")
				w.observe()
				return func() { b.define() }
			}},
		{name: "half-404", concerns: custom, strike: func(w *world, s *site) func() {
			var n atomic.Int32
			s.put("half-404", func(r *fakeapi.Request) *fakeapi.Fault {
				if r.Group != widgets.gvk.Group || (r.Verb != "list" && r.Verb != "watch") || n.Add(1)%4 == 0 {
					return nil
				}
				return &fakeapi.Fault{Err: apierrors.NewNotFound(r.GroupResource(), "")}
			})
			s.api().Cut(func(r *fakeapi.Request) bool { return r.Group == widgets.gvk.Group })
			w.shortPause(20 * time.Second)
			return func() { s.lift("half-404") }
		}},
		{name: "redefined", concerns: custom, bound: 2 * time.Minute, mangles: []*kind{widgets}, strike: func(w *world,
			s *site) func() {
			b := s.current()
			b.api.Unregister(widgets.gvk.GroupKind())
			w.observe()
			w.shortPause([]time.Duration{time.Second, time.Minute}[w.rng.IntN(2)])
			b.plural = []string{"widgets", "widgetses", "gizmos"}[w.rng.IntN(3)]
			b.define()
			w.fill(b)
			return nil
		}},
		{name: "undefined", concerns: custom, hold: silence, bound: 2 * time.Minute, mangles: []*kind{widgets},
			strike: undefined, during: toldOfTheEnd},
		{name: "rescoped", concerns: []string{"fluid.example.com"}, bound: 2 * time.Minute,
			begin: func(w *world, s *site) {
				if s == nil { // of this run alone, since it changes
					w.kinds = append(w.kinds, &kind{
						gvk:   schema.GroupVersionKind{Group: "fluid.example.com", Version: "v1", Kind: "Gadget"},
						fluid: true,
					})
				}
			}, strike: func(w *world, s *site) func() {
				k := w.kinds[slices.IndexFunc(w.kinds, func(k *kind) bool { return k.fluid })]
				b := s.current()
				if len(w.living()) > 1 || len(s.backends) > 1 {
					return nil // the scope is tracked for a single server
				}
				b.api.Unregister(k.gvk.GroupKind())
				w.observe()
				w.shortPause([]time.Duration{time.Second, time.Minute}[w.rng.IntN(2)])
				k.clusterScoped = !k.clusterScoped
				b.api.Register(w.gadgetKind())
				w.fill(b)
				w.observe()
				return nil
			}},
		{name: "no-bookmarks", hold: 20 * time.Minute, during: stayedCalm,
			strike: func(*world, *site) func() { return nil },
			begin: func(w *world, s *site) {
				if s == nil {
					w.kinds = append(w.kinds, quiets)
					return
				}
				s.put("no-bookmarks", compaction(s))
			}},
		{name: "unwatchable", concerns: []string{meters.gvk.Group}, bound: 2 * time.Minute,
			begin: func(w *world, s *site) {
				if s == nil {
					w.kinds = append(w.kinds, meters)
				}
			}},
		{name: "bare", concerns: []string{samples.gvk.Group}, bound: 2 * time.Minute,
			begin: func(w *world, s *site) {
				if s == nil {
					w.kinds = append(w.kinds, samples)
				}
			}},
		{name: "odd-names", begin: func(w *world, s *site) {
			if s == nil {
				w.kinds = append(w.kinds, roles)
				return
			}
			for _, name := range oddNames {
				w.must(s.current().store(roles.object("", name, "gold", w.value(s.current()))))
			}
			w.observe()
		}, strike: func(w *world, s *site) func() {
			b := s.current()
			w.must(b.store(roles.object("", oddNames[w.rng.IntN(len(oddNames))], tier(w.rng.IntN(3)), w.value(b))))
			w.observe()
			return nil
		}},
	}
}

// undefined deletes the definition, and defines the kind anew. The watches show
// the end of the objects, or just end. A definition lives for long enough to be
// read: one that was not is not known to be gone.
func undefined(w *world, s *site) func() {
	b := s.current()
	w.pause(max(0, 5*time.Second-time.Since(b.since)))
	b.api.Lose(only(widgets), w.chance(2))
	b.api.Unregister(widgets.gvk.GroupKind())
	w.observe()
	return func() { b.define(); w.fill(b) }
}

// toldOfTheEnd requires that the objects of a definition that is gone were
// delivered as deleted.
func toldOfTheEnd(w *world, s *site) {
	for _, sub := range w.watching(s) {
		if left := sub.folded(); sub.kind == widgets && len(left) > 0 && w.victims() {
			w.fail("the definition is gone, and handler of %s was not told: %v", sub.selection, left)
		}
	}
}

// oddNames are names that real servers accept for ClusterRoles.
var oddNames = []string{"system:node", "a b", "new\nline", "tab\tbed", "ünicøde", `quo"te`, "UPPER",
	fmt.Sprintf("%0300d", 1)}

// compaction compacts the history as kube-apiserver makes etcd do, whatever was
// written meanwhile: a watch of an idle resource without a watch cache can then
// no longer resume.
func compaction(s *site) func(*fakeapi.Request) *fakeapi.Fault {
	const every = 5 * time.Minute
	began := time.Now()
	var due atomic.Int64
	due.Store(int64(every))
	return func(r *fakeapi.Request) *fakeapi.Fault {
		at := due.Load()
		if age := int64(time.Since(began)); r.Group == quiets.gvk.Group && age > at &&
			due.CompareAndSwap(at, age+int64(every)) {
			s.forget()
		}
		return nil
	}
}

// stayedCalm requires that a watch without bookmarks and changes is not taken
// for a stalled one. Beside other faults a few stalls are permitted.
func stayedCalm(w *world, s *site) {
	for _, sub := range w.watching(s) {
		if sub.kind != quiets {
			continue
		}
		// A watch that has reached its limit may be resuming at a version that
		// is too old by now. Then it lists.
		healthy := w.until(30*time.Second, func() bool { return sub.watch.Status().LastError == nil })
		ws := sub.watch.Status()
		stalled := len(w.families) == 1 && ws.Informer.Stalls > 1
		if !healthy || stalled {
			w.fail("%s: a watch without bookmarks was cut %d times, last error %v", sub.selection, ws.Informer.Stalls,
				ws.LastError)
		}
	}
	if is, err := w.cc.Cluster(s.key).Status(); err == nil && len(w.families) == 1 &&
		(is.Stale || is.Phase != status.PhaseReady) {
		w.fail("%s: stale %t, %s, for the sake of a watch without bookmarks", s.key, is.Stale, is.Phase)
	}
}
