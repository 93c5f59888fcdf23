// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// An aggregated API has a server of its own behind the cluster's, with a history
// of its own. It serves gauges, in odd ways, and dials.
var (
	aggregated = schema.GroupVersion{Group: "odd.example.com", Version: "v1"}
	gauge      = aggregated.WithKind("Gauge")
	dials      = &kind{gvk: aggregated.WithKind("Dial"), loose: true}

	// gaugesAlone and wholeAPI are what a family concerns.
	gaugesAlone = []string{"gauges.v1.odd.example.com"}
	wholeAPI    = []string{aggregated.Group}
)

func isGauge(r *fakeapi.Request) bool { return r.Group == gauge.Group && r.Resource == "gauges" }

// oddFamilies are the ways in which the server of an aggregated API is odd. Two
// of them are one server that is odd in both ways.
func oddFamilies() []*family {
	steady := func(name string, odd func(*rand.Rand, *fakeapi.Kind, *kind)) *family {
		return &family{name: name, hold: 90 * time.Second, strict: true, bound: 2 * time.Minute, concerns: gaugesAlone,
			odd: odd, strike: parted, during: steadily}
	}
	return []*family{
		steady("repeating", func(_ *rand.Rand, api *fakeapi.Kind, _ *kind) { api.Repeats = true }),
		steady("stale-deletes", func(_ *rand.Rand, api *fakeapi.Kind, _ *kind) { api.StaleDeletes = true }),
		steady("long-versions", func(rng *rand.Rand, api *fakeapi.Kind, _ *kind) {
			lengths := []int{20, 128, 129, 1000, 4 << 10}
			api.VersionBytes = lengths[rng.IntN(len(lengths))]
			if rng.IntN(2) == 0 {
				api.ObjectVersionBytes = api.VersionBytes
			}
		}),
		steady("unversioned-lists", func(_ *rand.Rand, api *fakeapi.Kind, _ *kind) { api.NoListVersions = true }),
		steady("versionless", func(_ *rand.Rand, api *fakeapi.Kind, k *kind) {
			api.NoVersions, api.NoBookmarks = true, true
			k.loose, k.versionless = true, true
		}),
		{name: "recounted", bound: audited, concerns: wholeAPI, odd: plain, strike: recounted},
		{name: "withdrawn", hold: silence, bound: 2 * time.Minute, concerns: wholeAPI, odd: plain,
			strike: withdrawn},
	}
}

func plain(*rand.Rand, *fakeapi.Kind, *kind) {}

// join adds the aggregated API to the run if one of its families has it.
func (w *world) join() {
	rng := rand.New(rand.NewPCG(w.seed, 7))
	for _, f := range w.families {
		if f.odd == nil {
			continue
		}
		if w.gauges == nil {
			w.gauges = &kind{gvk: gauge}
			w.kinds = append(w.kinds, w.gauges)
			w.aggregated = &fakeapi.Kind{Group: gauge.Group, Kind: gauge.Kind, NoBookmarks: rng.IntN(3) == 0,
				Overlooks: rng.IntN(4) == 0}
			// Without the end of a streamed list, an idle watch without bookmarks
			// shows no sign of life: it counts as stale, and reads ask the server.
			if slices.ContainsFunc(w.families, func(f *family) bool { return f.name == "endless" }) {
				w.aggregated.NoBookmarks = false
			}
			w.streams = []int{0, 0, http.StatusBadRequest, http.StatusUnprocessableEntity}[rng.IntN(4)]
		}
		f.odd(rng, w.aggregated, w.gauges)
	}
}

// aside returns the server of the aggregated API of a cluster, or nil.
func (s *site) aside(cluster string) *fakeapi.Server {
	if s.w.aggregated == nil {
		return nil
	}
	kinds := apiService()
	kinds[0] = *s.w.aggregated
	api := fakeapi.New(fakeapi.Options{Identity: cluster + "-aside", Kinds: kinds, Authenticate: s.authenticate,
		Intercept: s.intercept})
	if s.w.streams != 0 {
		api.RefuseStreams(s.w.streams)
	}
	return api
}

// apiService returns the kinds of the aggregated API as the cluster's own server
// knows them.
func apiService() (kinds []fakeapi.Kind) {
	for _, gvk := range []schema.GroupVersionKind{gauge, dials.gvk} {
		kinds = append(kinds, fakeapi.Kind{Group: gvk.Group, Kind: gvk.Kind, Aggregated: true})
	}
	return kinds
}

// serverFor returns the server that answers requests for a path.
func (b *backend) serverFor(path string) *fakeapi.Server {
	if b.aside != nil && strings.HasPrefix(path, "/apis/"+aggregated.String()+"/") {
		if _, served := b.api.Objects(gauge); served {
			return b.aside
		}
	}
	return b.api
}

// of returns the server that stores the objects of a group.
func (b *backend) of(group string) *fakeapi.Server {
	if group == aggregated.Group {
		return b.aside
	}
	return b.api
}

// servers returns the cluster's servers.
func (b *backend) servers() []*fakeapi.Server {
	if b.aside == nil {
		return []*fakeapi.Server{b.api}
	}
	return []*fakeapi.Server{b.api, b.aside}
}

// objects returns the objects of a kind, and whether it is served.
func (b *backend) objects(gvk schema.GroupVersionKind) (stored []*unstructured.Unstructured, served bool) {
	stored, served = b.of(gvk.Group).Objects(gvk)
	if served && gvk.Group == aggregated.Group {
		_, served = b.api.Objects(gvk)
	}
	return stored, served
}

// cut ends all watches, without their connections.
func (b *backend) cut() {
	for _, api := range b.servers() {
		api.Cut(func(*fakeapi.Request) bool { return true })
	}
}

// unreachable has requests of the aggregated API fail, as the cluster's own
// server reports that or without a word, and ends their watches. The function
// that it returns ends that.
func (w *world) unreachable(s *site, match func(*fakeapi.Request) bool) (lift func()) {
	fault := &fakeapi.Fault{Err: errors.New("broken")}
	if w.chance(2) {
		fault.Err = apierrors.NewServiceUnavailable("error trying to reach service")
	}
	s.put("unreachable", func(r *fakeapi.Request) *fakeapi.Fault {
		if !match(r) {
			return nil
		}
		return fault
	})
	s.current().aside.Cut(match)
	return func() { s.lift("unreachable") }
}

// parted has objects change, and some end, while the watches of gauges are
// ended, or before the next one begins.
func parted(w *world, s *site) func() {
	if !w.storeLoose(s) {
		return nil // it is not served
	}
	if w.chance(2) {
		var first sync.Once
		s.put("parted", func(r *fakeapi.Request) *fakeapi.Fault {
			if isGauge(r) && r.Verb == "watch" && !strings.Contains(r.Query, "fleetcache") {
				first.Do(func() { w.endLoose(s) })
			}
			return nil
		})
		s.current().aside.Cut(isGauge)
		w.shortPause(2 * time.Second)
		s.lift("parted")
		return nil
	}
	lift := w.unreachable(s, isGauge)
	for range 1 + w.rng.IntN(4) {
		w.writeOf(s, w.gauges)
	}
	w.endLoose(s)
	w.shortPause(2 * time.Second)
	lift()
	return nil
}

// storeLoose stores every second gauge that is not permanent, and has handlers
// learn of them. It reports whether gauges are served.
func (w *world) storeLoose(s *site) bool {
	b := s.current()
	if _, served := writable(b, w.gauges); !served {
		return false
	}
	for i := range 3 {
		w.must(b.store(w.gauges.object(space(2*i), fmt.Sprint("loose-", 2*i), tier(i), w.value(b))))
	}
	w.observe()
	w.pause(time.Second)
	return true
}

// endLoose deletes every second gauge that is not permanent.
func (w *world) endLoose(s *site) {
	b := s.current()
	for i := range 3 {
		_ = b.aside.Delete(gauge.GroupKind(), space(2*i), fmt.Sprint("loose-", 2*i))
	}
	w.observe()
}

// recounted is a restart of the aggregated API, which counts versions in memory.
// The new count stays behind the old one, or has overtaken it before the API
// answers again.
func recounted(w *world, s *site) func() {
	aside := s.current().aside
	before, overtaken := aside.ResourceVersion(), w.chance(2)
	lift := w.unreachable(s, func(r *fakeapi.Request) bool { return r.Group == aggregated.Group })
	aside.Recount()
	w.observe()
	for overtaken && aside.ResourceVersion() <= before {
		if _, served := writable(s.current(), w.gauges); !served {
			break
		}
		w.writeOf(s, w.gauges)
	}
	w.trace("%s: recounted, was %d, is %d", s.name, before, aside.ResourceVersion())
	w.shortPause(5 * time.Second)
	lift()
	return nil
}

// withdrawn deletes the APIService, and makes it again: the objects behind it
// exist all the time.
func withdrawn(w *world, s *site) func() {
	b := s.current()
	for _, k := range apiService() {
		b.api.Unregister(schema.GroupKind{Group: k.Group, Kind: k.Kind})
	}
	b.aside.Cut(func(*fakeapi.Request) bool { return true })
	w.observe()
	w.shortPause([]time.Duration{time.Second, time.Minute}[w.rng.IntN(2)])
	return func() {
		for _, k := range apiService() {
			b.api.Register(k)
		}
	}
}

// steadyLines is how many lines an hour a steady oddity may cost.
const steadyLines = 10

// steadyLists is how many lists one watch may cost that ends and begins anew: one
// behind its beginning, and another if a watch cannot be resumed.
const steadyLists = 2

// steadily lets an hour pass in which objects change and watches end, and
// requires that everything stays right, for a few lists and lines of log. No
// history is taken for another one.
func steadily(w *world, s *site) {
	const times = 12
	aside := s.current().aside
	lines, requests, rollbacks := len(w.lines()), len(aside.Requests(nil)), w.rollbacks(s)
	for range times {
		w.pause(5 * time.Minute)
		w.storeLoose(s)
		w.writeOf(s, w.gauges)
		w.endLoose(s)
		w.pause(time.Second)
		aside.Cut(isGauge)
	}
	if !w.victims() {
		return // other families may fail it, too
	}
	w.pause(10 * time.Second)
	if n := w.rollbacks(s) - rollbacks; n > 0 {
		w.fail("%s was taken for another history %d times in an hour", w.familyNames(), n)
	}
	watches := len(w.watching(s)) // and those that reads keep, of which there are fewer
	lists, _ := followings(aside.Requests(nil)[requests:], w.gauges)
	ends := times + int(time.Hour/(w.timeLimit/2)) // a watch is cut, or reaches its limit
	if most := steadyLists * watches * ends; lists > most && !w.gauges.loose {
		w.fail("%s cost %d lists in an hour, and may cost %d", w.familyNames(), lists, most)
	}
	w.await(time.Minute, "after an hour")
	if all := w.lines()[lines:]; len(all) > steadyLines*len(w.families) {
		w.fail("%d lines in an hour: %s", len(all), strings.Join(all, "\n"))
	}
}

// rollbacks counts how often the watches of gauges have taken the history for
// another one.
func (w *world) rollbacks(s *site) (n int64) {
	for _, sub := range w.watching(s) {
		if sub.kind == w.gauges {
			n += sub.watch.Status().Informer.Rollbacks
		}
	}
	return n
}
