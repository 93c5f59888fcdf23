// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// silence is how long a fault may stay until no answer may be wrong without an
// error.
const silence = 4 * time.Minute

// attempted is how long an informer may take to notice a fault that its next
// attempt meets: it may be waiting for 30 s because of an earlier one.
const attempted = 40 * time.Second

// audited bounds how long an answer may be wrong if only a comparison with the
// server can find that.
const audited = 2*auditInterval + 30*time.Second

// busyAudits is how much later an answer may be wrong if all requests but
// watches are refused: audits wait for five minutes, then the list that
// replaces them is refused, and from then on the informer is degraded.
const busyAudits = 5*time.Minute + silence

// slowness is how long a slow handler takes: less than the second that the
// library waits for a handler when it stops.
const slowness = 900 * time.Millisecond

// families returns all families.
func families() []*family {
	return slices.Concat(networkFamilies(), historyFamilies(), rightsFamilies(), contentFamilies(), kindFamilies(),
		soloFamilies(), secondFamilies(), serverFamilies(), oddFamilies(), hostileFamilies())
}

func everything(*fakeapi.Kind) bool { return true }

func only(k *kind) func(*fakeapi.Kind) bool {
	return func(x *fakeapi.Kind) bool { return x.Group == k.gvk.Group && x.Kind == k.gvk.Kind }
}

// bump advances the history by a change of an object that is not watched.
func (w *world) bump(b *backend) {
	w.serial++
	u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{}}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Secret"})
	u.SetNamespace("a")
	u.SetName("bump")
	u.SetLabels(map[string]string{"n": fmt.Sprint(w.serial)})
	w.must(b.store(u))
}

// interrupt ends all watches, either with their connections or alone.
func (w *world) interrupt(s *site) {
	if w.chance(2) {
		s.net.Reset()
	} else {
		s.current().cut()
	}
}

// restart restarts an API server: the versions from which watches could resume
// are gone.
func (w *world) restart(s *site) {
	s.net.Down()
	w.bump(s.current())
	s.api().Compact()
	s.net.Up()
}

func networkFamilies() []*family {
	return []*family{
		{name: "reset", strike: func(_ *world, s *site) func() { s.net.Reset(); return nil }},
		{name: "down", hold: silence, dead: true,
			strike: func(_ *world, s *site) func() { s.net.Down(); return s.net.Up }},
		{name: "mute", hold: silence, dead: true,
			strike: func(_ *world, s *site) func() { s.net.Mute(); return s.net.Up }},
		{name: "hang", hold: silence, bound: 3 * time.Minute, strike: func(_ *world, s *site) func() {
			b := s.current()
			s.put("hang", always(&fakeapi.Fault{Answer: fakeapi.Hang}))
			b.api.Silence(everything, true)
			return func() { s.lift("hang"); b.api.Silence(everything, false) }
		}},
		{name: "restart", strike: func(w *world, s *site) func() { w.restart(s); return nil }},
		{name: "lag", strike: func(w *world, s *site) func() {
			b := s.current()
			b.api.Freeze(everything)
			if w.chance(2) {
				s.net.Reset()
			}
			skip := w.chance(2)
			return func() { b.api.Thaw(everything, skip) }
		}},
		{name: "html", hold: silence, strike: func(w *world, s *site) func() {
			code := []int{http.StatusNotFound, http.StatusServiceUnavailable}[w.rng.IntN(2)]
			s.put("html", always(&fakeapi.Fault{Answer: body(code, "text/html", "<html>"+canary("html")+"</html>")}))
			w.interrupt(s)
			w.shortPause(20 * time.Second)
			return func() { s.lift("html") }
		}},
		{name: "too-many", hold: silence, delays: busyAudits, strike: tooMany, during: workedThroughTooMany},
		{name: "switched", bound: 3 * time.Minute, strike: switched},
		{name: "away", bound: 3 * time.Minute, strike: func(w *world, s *site) func() {
			w.names.Remove(s.key)
			w.shortPause(2 * time.Minute)
			w.excuse(s)
			return func() { w.excuse(s); w.names.Set(s.key, s.config) }
		}},
		{name: "slow", begin: func(w *world, s *site) {
			if s != nil {
				return
			}
			for _, k := range w.kinds {
				w.gates[k] = func() { time.Sleep(slowness) }
			}
		}},
	}
}

// tooMany is a server that serves only watches.
func tooMany(w *world, s *site) func() {
	lost := w.happened(s, events.Disconnected)
	s.put("too-many", func(r *fakeapi.Request) *fakeapi.Fault {
		if r.Verb == "watch" {
			return nil
		}
		return &fakeapi.Fault{Err: fakeapi.TooMany()}
	})
	return func() {
		s.lift("too-many")
		if n := w.happened(s, events.Disconnected); n > lost && len(w.families) == 1 {
			w.fail("a server that has too many requests counts as dead: %d times disconnected", n-lost)
		}
	}
}

func workedThroughTooMany(w *world, s *site) {
	if len(w.families) > 1 {
		return // other families may fail it, too
	}
	if w.paged {
		return // the first list of a new watch is refused
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.follow(s, selection{kind: roles}).watch.WaitForSync(ctx); err != nil {
		w.fail("watches are served, and a new one has not synced after %s: %v", time.Since(began), err)
	}
	for _, sub := range w.watching(s) {
		if d := w.checkSubject(sub, true); d != "" {
			w.fail("watches were served all the time: %s", d)
		}
	}
}

// switched is a proxy that keeps its clients' connections and switches to
// another cluster.
func switched(w *world, s *site) func() {
	s.mu.Lock()
	now, all := s.now, slices.Clone(s.backends)
	s.mu.Unlock()
	i := slices.IndexFunc(all, func(b *backend) bool { return b != now })
	var next *backend
	if i < 0 {
		next = s.addBackend()
		w.fill(next)
	} else {
		next = all[i]
	}
	w.trace("%s: %s takes the place of %s", s.name, next.name, now.name)
	s.become(next)
	s.switched = time.Now()
	if w.chance(2) {
		now.cut()
	}
	w.write(s)
	w.write(s)
	return nil
}

func historyFamilies() []*family {
	restored := func(restore func(w *world, s *site, to *fakeapi.Snapshot)) func(*world, *site) func() {
		return func(w *world, s *site) func() {
			to := s.api().Snapshot()
			for range 2 + w.rng.IntN(6) {
				w.write(s)
			}
			w.shortPause(5 * time.Second)
			s.net.Down()
			restore(w, s, to)
			w.trace("%s: restored, now %d", s.name, s.api().ResourceVersion())
			w.observe()
			s.net.Up()
			return nil
		}
	}
	return []*family{
		{name: "restore", bound: audited,
			strike: restored(func(_ *world, s *site, to *fakeapi.Snapshot) { s.api().Restore(to) })},
		{name: "restore-bumped", strike: restored(
			func(_ *world, s *site, to *fakeapi.Snapshot) { s.api().RestoreBumped(to, 1e9) })},
		{name: "restore-overtaken", bound: audited, strike: restored(func(w *world, s *site, to *fakeapi.Snapshot) {
			before, undone := s.api().ResourceVersion(), map[*kind]map[string]state{}
			for _, k := range w.kinds {
				undone[k], _ = s.truth(selection{kind: k})
			}
			s.api().Restore(to)
			w.observe()
			for s.api().ResourceVersion() <= before {
				w.write(s)
				w.bump(s.current())
			}
			for _, k := range w.kinds {
				w.distinguish(s.current(), k, undone[k])
			}
		})},
		{name: "restore-listed", bound: audited, strike: restored(restoreListed)},
		{name: "lost-events", hold: audited, strict: true, bound: audited, strike: func(w *world, s *site) func() {
			b, k := s.current(), w.kinds[w.rng.IntN(2)] // the kinds that have bookmarks
			b.api.Lose(only(k), true)
			for range 3 {
				w.writeOf(s, k)
			}
			return func() { b.api.Lose(only(k), false) }
		}},
		{name: "rewritten", strike: func(w *world, s *site) func() {
			b := s.current()
			err := b.api.Rewrite(configMaps.gvk.GroupKind(), "a", "stable-0", func(obj map[string]any) {
				obj["data"] = map[string]any{"v": w.value(b)}
			})
			w.must(err)
			w.observe()
			// Every server starts anew: one that lagged would list the content
			// from before under the same version, and no event would follow.
			b.api.Lag(0, nil)
			b.api.Thaw(everything, true)
			w.restart(s)
			return nil
		}},
		{name: "streams-off", hold: 2 * time.Minute, strict: true, strike: func(w *world, s *site) func() {
			b, code := s.current(), []int{http.StatusUnprocessableEntity, http.StatusBadRequest}[w.rng.IntN(2)]
			b.api.RefuseStreams(code)
			s.net.Reset()
			return func() { b.api.RefuseStreams(0); s.net.Reset() }
		}},
		{
			name:    "tokens",
			options: func(_ *world, o *clustercache.Options) { o.Informers.PagedLists, o.Informers.PageSize = true, 2 },
			begin: func(_ *world, s *site) {
				if s != nil {
					s.put("tokens", func(r *fakeapi.Request) *fakeapi.Fault {
						if r.Verb == "list" && strings.Contains(r.Query, "continue=") &&
							!strings.Contains(r.Query, "continue=eyJydiI6LTE") {
							s.forget()
						}
						return nil
					})
				}
			},
			strike: func(w *world, s *site) func() { w.restart(s); return nil },
		},
	}
}

// forget makes all versions and continue tokens given out so far too old.
func (s *site) forget() {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Secret"})
	u.SetNamespace("a")
	u.SetName("token") // one, since an informer of Secrets may have a budget
	u.SetLabels(map[string]string{"n": fmt.Sprint(s.serial.Add(1))})
	b := s.current()
	_ = b.store(u)
	b.api.Compact()
}

// distinguish changes the objects that got the versions of their undone states
// anew: audits compare versions, and if nothing else of the kind differs from
// what is cached, they find nothing, which is not promised.
func (w *world) distinguish(b *backend, k *kind, undone map[string]state) {
	wk, ok := writable(b, k)
	if !ok {
		return
	}
	stored, _ := b.objects(wk.gvk)
	for _, u := range stored {
		x := stateOf(u)
		was := undone[x.key]
		if was.uid == x.uid && was.rv == x.rv && was != x {
			w.must(b.store(wk.object(u.GetNamespace(), u.GetName(), x.tier, w.value(b))))
		}
	}
}

// restoreListed is a rollback that a list meets, because a watch cannot resume
// or a resource seems to be missing for a moment.
func restoreListed(w *world, s *site, to *fakeapi.Snapshot) {
	s.api().Restore(to)
	missing := w.chance(2)
	seen := map[string]*atomic.Bool{}
	for _, k := range w.kinds {
		seen[k.gvk.Group] = &atomic.Bool{}
	}
	name := "restore-listed"
	s.lift(name)
	s.put(name, func(r *fakeapi.Request) *fakeapi.Fault {
		first := seen[r.Group]
		if r.Verb != "watch" || r.Resource == "" || r.Resource == "secrets" || first == nil || first.Swap(true) {
			return nil
		}
		if missing {
			return &fakeapi.Fault{Err: apierrors.NewNotFound(r.GroupResource(), "")}
		}
		return &fakeapi.Fault{Err: apierrors.NewResourceExpired("too old resource version")}
	})
}

func rightsFamilies() []*family {
	forbid := func(which func(*fakeapi.Request) bool) func(*fakeapi.Request) *fakeapi.Fault {
		return func(r *fakeapi.Request) *fakeapi.Fault {
			if which(r) {
				return &fakeapi.Fault{Err: fakeapi.Forbidden(r)}
			}
			return nil
		}
	}
	return []*family{
		{name: "rights-by-name", begin: func(w *world, s *site) {
			w.limited = func(sel selection) bool {
				return sel.kind != configMaps || (sel.name == "stable-0" && sel.namespace == "a")
			}
			if s != nil {
				s.put("rights-by-name", forbid(func(r *fakeapi.Request) bool {
					return r.Resource == "configmaps" &&
						(r.Namespace != "a" || (r.Name != "stable-0" && r.Selected != "stable-0"))
				}))
			}
		}, strike: func(w *world, s *site) func() {
			s.net.Down()
			w.must(s.current().store(configMaps.object("a", "stable-0", tier(0), w.value(s.current()))))
			w.observe()
			s.net.Up()
			return nil
		}},
		{name: "rights-lost", hold: silence, strike: func(w *world, s *site) func() {
			k := w.kinds[w.rng.IntN(2)]
			name := "rights-lost-" + k.gvk.Kind
			s.put(name, forbid(func(r *fakeapi.Request) bool {
				return r.Resource == strings.ToLower(k.gvk.Kind)+"s" && r.Group == k.gvk.Group
			}))
			w.interrupt(s)
			return func() { s.lift(name) }
		}},
		{name: "rotated", strike: func(_ *world, s *site) func() { s.rotate(); return nil }},
		{name: "revoked", hold: silence, strike: func(w *world, s *site) func() {
			s.mu.Lock()
			s.token++
			s.mu.Unlock()
			s.net.Reset()
			return func() { w.names.Changed(s.key) }
		}},
	}
}

// core is the resource of ConfigMaps.
var core = []string{"configmaps"}

func contentFamilies() []*family {
	return []*family{
		{name: "wrong-kind", strike: wrongKind},
		{name: "refused", hold: attempted, concerns: core, strike: refusal, during: othersWentOn,
			options: func(_ *world, o *clustercache.Options) {
				o.Informers.Transforms = map[schema.GroupResource]informerpool.TransformFunc{{
					Resource: "configmaps"}: func(u *unstructured.Unstructured) error {
					if u.GetLabels()["tier"] == refusedTier {
						return errRefused
					}
					return nil
				}}
			}},
		{name: "flood", hold: attempted, concerns: core, strike: flood, during: boundedFlood, bound: 2 * time.Minute,
			options: func(_ *world, o *clustercache.Options) { o.Informers.MaxObjects = maxObjects }},
		{name: "big", hold: attempted, concerns: core, strike: tooBig, during: othersWentOn,
			options: func(_ *world, o *clustercache.Options) { o.Informers.MaxObjectBytes = 64 << 10 }},
	}
}

var errRefused = fmt.Errorf("refused by the simulation")

const refusedTier = "refused"

// refusal is an object that the transform refuses; in the end it is deleted, or
// acceptable again.
func refusal(w *world, s *site) func() {
	b := s.current()
	w.must(b.store(configMaps.object("a", "loose-0", refusedTier, w.value(b))))
	w.observe()
	return func() {
		var err error
		if w.chance(2) {
			_ = b.api.Delete(configMaps.gvk.GroupKind(), "a", "loose-0")
		} else {
			err = b.store(configMaps.object("a", "loose-0", "gold", w.value(b)))
		}
		w.must(err)
	}
}

// tooBig is an object that is too large.
func tooBig(w *world, s *site) func() {
	b := s.current()
	w.must(b.store(configMaps.object("a", "loose-0", "gold", w.value(b)+strings.Repeat("<", 30<<10))))
	w.observe()
	return func() { _ = b.api.Delete(configMaps.gvk.GroupKind(), "a", "loose-0") }
}

// othersWentOn compares the objects that handlers have received, except refused
// ones, with the truth.
func othersWentOn(w *world, s *site) {
	for _, sub := range w.watching(s) {
		if sub.kind.loose {
			continue
		}
		want, _ := s.truth(sub.selection)
		got := sub.folded()
		delete(want, "a/loose-0")
		delete(got, "a/loose-0")
		if d := differ(want, got, false); d != "" {
			w.fail("one object that is refused stops others: handler of %s: %s", sub.selection, d)
		}
	}
}

// maxObjects is the budget of an informer in the families that limit it.
const maxObjects = 30

// flood creates more objects than an informer may hold, one after the other.
func flood(w *world, s *site) func() {
	b := s.current()
	for i := range maxObjects + 20 {
		w.must(b.store(configMaps.object("b", fmt.Sprintf("flood-%d", i), "tin", w.value(b))))
	}
	w.observe()
	return func() {
		for i := range maxObjects + 20 {
			_ = b.api.Delete(configMaps.gvk.GroupKind(), "b", fmt.Sprintf("flood-%d", i))
		}
	}
}

func boundedFlood(w *world, s *site) {
	for _, sub := range w.watching(s) {
		if n := sub.watch.Status().Informer.Objects; n > maxObjects {
			w.fail("%s holds %d objects, and may hold %d", sub.selection, n, maxObjects)
		}
	}
}

// wrongKind is a server that begins lists with objects of another kind.
func wrongKind(w *world, s *site) func() {
	left := &atomic.Int32{}
	left.Store(2)
	frame := []byte(`{"type":"ADDED","object":{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"a",` +
		`"name":"stable-0","uid":"wrong","resourceVersion":"1"},"data":{"v":"eA=="}}}` + "\n")
	s.mu.Lock()
	s.prefix = func(r *http.Request) []byte {
		if strings.HasSuffix(r.URL.Path, "/configmaps") && r.URL.Query().Get("sendInitialEvents") == "true" &&
			!strings.Contains(r.URL.RawQuery, "fleetcache") && left.Add(-1) >= 0 {
			return frame
		}
		return nil
	}
	s.mu.Unlock()
	s.put("wrong-kind", func(r *fakeapi.Request) *fakeapi.Fault {
		if r.Resource != "configmaps" || r.Verb != "list" || !strings.Contains(r.Query, "limit=") || left.Add(-1) < 0 {
			return nil
		}
		return &fakeapi.Fault{Answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w,
				`{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[`+
					`{"metadata":{"namespace":"a","name":"stable-0","uid":"wrong","resourceVersion":"1"},`+
					`"data":{"v":"eA=="}}]}`, s.api().ResourceVersion())
		}}
	})
	w.restart(s)
	return func() {
		s.lift("wrong-kind")
		s.mu.Lock()
		s.prefix = nil
		s.mu.Unlock()
	}
}
