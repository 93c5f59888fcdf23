// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// secondFamilies are a fault that follows another one before it has ended.
func secondFamilies() []*family {
	return []*family{{
		name:    "second-fault",
		options: func(_ *world, o *clustercache.Options) { o.Informers.MaxObjects = maxObjects },
		solo:    secondFault,
	}}
}

// blow is one fault of a pair.
type blow struct {
	name   string
	strike func(*world, *site) (heal func())
	// back: what reads show may go back, since the history did.
	back bool
	// shows: alone, it has the cache refuse reads at once.
	shows bool
}

// distrusting is how many of the blows end the trust in an informer of
// ConfigMaps. The others say nothing about its rights.
const distrusting = 9

// blows are the faults of which pairs are made.
func blows() []blow {
	answering := func(name string, match func(*fakeapi.Request) bool,
		fault func(*fakeapi.Request) *fakeapi.Fault) blow {
		return blow{name: name, strike: func(w *world, s *site) func() {
			s.put(name, func(r *fakeapi.Request) *fakeapi.Fault {
				if !match(r) {
					return nil
				}
				return fault(r)
			})
			w.missOne(s)
			return func() { s.lift(name) }
		}}
	}
	failing := func(err func(*fakeapi.Request) error) func(*fakeapi.Request) *fakeapi.Fault {
		return func(r *fakeapi.Request) *fakeapi.Fault { return &fakeapi.Fault{Err: err(r)} }
	}
	with := func(err error) func(*fakeapi.Request) *fakeapi.Fault {
		return failing(func(*fakeapi.Request) error { return err })
	}
	watches := func(r *fakeapi.Request) bool { return follows(r) && r.Verb == "watch" && !r.Stream }
	lists := func(r *fakeapi.Request) bool { return follows(r) && (r.Verb == "list" || r.Stream) }
	all := func(*fakeapi.Request) bool { return true }
	health := func(r *fakeapi.Request) bool { return r.Path == "/readyz" || r.Path == "/livez" }
	net := func(name string, strike func(*site) func()) blow {
		return blow{name: name, strike: func(_ *world, s *site) func() { return strike(s) }}
	}
	shown := func(b blow) blow { b.shows = true; return b }
	busy := failing(func(*fakeapi.Request) error { return fakeapi.TooMany() })
	broken := errors.New("connection broken")
	hang := func(*fakeapi.Request) *fakeapi.Fault { return &fakeapi.Fault{Answer: fakeapi.Hang} }

	return []blow{
		shown(answering("forbidden", follows, failing(fakeapi.Forbidden))),
		shown(answering("watch-forbidden", watches, failing(fakeapi.Forbidden))),
		shown(answering("list-forbidden", lists, failing(fakeapi.Forbidden))),
		shown(answering("unauthorized", follows, with(apierrors.NewUnauthorized("who")))),
		shown(answering("not-found", follows, failing(func(r *fakeapi.Request) error {
			return apierrors.NewNotFound(r.GroupResource(), "")
		}))),
		{name: "foreign", shows: true, strike: func(w *world, s *site) func() {
			of := answering("foreign", follows, func(r *fakeapi.Request) *fakeapi.Fault { return foreign(s, r) })
			return of.strike(w, s)
		}},
		{name: "revoked", strike: func(w *world, s *site) func() {
			s.mu.Lock()
			s.token++
			s.mu.Unlock()
			s.net.Reset()
			return func() { w.names.Changed(s.key) }
		}},
		{name: "over-budget", strike: flood, shows: true},
		{name: "restored", back: true, strike: func(w *world, s *site) func() {
			to := s.api().Snapshot()
			w.write(s)
			s.net.Down()
			s.api().Restore(to)
			w.observe()
			s.net.Up()
			return func() {}
		}},

		answering("unavailable", follows, with(apierrors.NewServiceUnavailable("no"))),
		answering("all-unavailable", all, with(apierrors.NewServiceUnavailable("no"))),
		answering("busy", follows, busy),
		answering("all-busy", all, busy),
		answering("internal-error", follows, with(apierrors.NewInternalError(broken))),
		answering("broken", follows, with(broken)),
		answering("all-broken", all, with(broken)),
		answering("hang", follows, hang),
		answering("all-hang", all, hang),
		answering("unhealthy", health, with(apierrors.NewInternalError(broken))),
		answering("expired", watches, with(apierrors.NewResourceExpired("too old resource version"))),
		net("reset", func(s *site) func() { s.net.Reset(); return func() {} }),
		net("down", func(s *site) func() { s.net.Down(); return s.net.Up }),
		net("mute", func(s *site) func() { s.net.Mute(); return s.net.Up }),
	}
}

// follows reports whether a request is one with which an informer of ConfigMaps
// follows its server.
func follows(r *fakeapi.Request) bool {
	return r.Resource == "configmaps" && (r.Verb == "list" || r.Verb == "watch")
}

// foreignHeader marks responses that are none of the server's.
const foreignHeader = "X-Foreign"

// foreign answers with objects of another kind.
func foreign(s *site, req *fakeapi.Request) *fakeapi.Fault {
	return &fakeapi.Fault{Answer: func(w http.ResponseWriter, _ *http.Request) {
		const object = `"metadata":{"namespace":"a","name":"stable-0","uid":"wrong","resourceVersion":"1"}`
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(foreignHeader, "1")
		if req.Verb == "watch" {
			_, _ = fmt.Fprintln(w, `{"type":"ADDED","object":{"apiVersion":"v1","kind":"Secret",`+object+`}}`)
			return
		}
		_, _ = fmt.Fprintf(w,
			`{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[{%s}]}`,
			s.api().ResourceVersion(), object)
	}}
}

// missOne ends all watches, and has changed an object that they did not show.
// One time in two they cannot be resumed without a list.
func (w *world) missOne(s *site) {
	b := s.current()
	s.net.Down()
	w.must(b.store(configMaps.object("a", "stable-0", tier(0), w.value(b))))
	w.observe()
	if w.chance(2) {
		w.bump(b)
		b.api.Compact()
	}
	s.net.Up()
}

// pairs returns the ordered pairs of which one at least ends the trust in an
// informer. A seed has the pair of its number, and so each has its turn.
func pairs() (out [][2]blow) {
	all := blows()
	for i, first := range all {
		for j, second := range all {
			if i != j && min(i, j) < distrusting {
				out = append(out, [2]blow{first, second})
			}
		}
	}
	return out
}

// TestSecondFaults runs each pair of faults, in both orders; with -short, a
// part of them.
func TestSecondFaults(t *testing.T) {
	all := pairs()
	each := len(all) / repeat.Times(len(all))
	for i, of := range all {
		if i%each != 0 {
			continue
		}
		t.Run(of[0].name+" then "+of[1].name, func(t *testing.T) {
			t.Parallel()
			runSeed(t, uint64(i), "second-fault")
		})
	}
}

// secondFault has one fault follow another while that lasts. One of the two
// ends first, and then the other.
func secondFault(w *world) {
	all := pairs()
	of := all[w.seed%uint64(len(all))]
	w.trace("%s, then %s", of[0].name, of[1].name)
	s := w.add("one")
	w.run()
	w.follow(s, selection{kind: configMaps})
	w.follow(s, selection{kind: widgets})
	if !w.await(time.Minute, "first sync") {
		w.finish()
		return
	}
	w.pause(10 * time.Second)

	r := &reading{w: w, s: s, back: of[0].back || of[1].back, rng: rand.New(rand.NewPCG(w.seed, 6)),
		shown: map[bool]version{}}
	accepted := s.watchAccepted()
	heals := make([]func(), 0, 2)
	for i, f := range of {
		w.trace("%s: strike of %s", s.name, f.name)
		heals = append(heals, f.strike(w, s))
		r.sample(5*time.Second, accepted)
		w.writeOf(s, configMaps)
		r.sample(time.Duration(5+w.rng.IntN(60))*time.Second, accepted)
		if i == 0 && f.shows && !r.refused {
			w.fail("%s: the cache was read all the time", f.name)
		}
	}
	i := w.rng.IntN(2)
	for _, i := range []int{i, 1 - i} {
		b := s.current()
		w.must(b.store(configMaps.object("a", "stable-0", tier(0), w.value(b))))
		w.observe()
		r.sample(time.Second, accepted) // which a live read shows
		w.trace("%s: %s ends", s.name, of[i].name)
		heals[i]()
		w.observe()
		r.sample(time.Duration(1+w.rng.IntN(60))*time.Second, accepted)
	}
	if w.await(3*time.Minute, "after both") {
		r.sample(5*time.Second, accepted)
		w.wayBack()
	}
	w.finish()
}

// anyAge accepts an interruption of any length.
const anyAge = clustercache.MaxStaleness(time.Hour)

// reading reads one object throughout, in every mode and form.
type reading struct {
	w    *world
	s    *site
	rng  *rand.Rand
	back bool

	stands  error            // why the cache was not to be read, when that was last found
	since   int64            // how many lists and watches had been accepted before
	looked  int64            // and at the last look
	last    string           // what the cache answered
	refused bool             // it was ever found
	shown   map[bool]version // the newest, of all reads and of those that accept any age
}

// version is a version of an object.
type version struct {
	uid string
	rv  uint64
}

// sample reads for a time. While the cache is not to be read, and the server
// has accepted no list or watch since the look before, no other failure may
// change that: a watch has to last for a moment to count. And reads do not go
// back.
func (r *reading) sample(d time.Duration, accepted func() int64) {
	for began := time.Now(); time.Since(began) < d; {
		before := r.looked
		r.looked = accepted()
		_, _, err := r.get(clustercache.CacheOnly, anyAge)
		if text := fmt.Sprint(err); text != r.last {
			r.last = text
			r.w.trace("%s: the cache: %s", r.s.name, text)
		}
		switch verdict := refuses(err); {
		case verdict:
			r.stands, r.since, r.refused = err, before, true
		case accepted() != r.since:
			r.stands = nil
		case err == nil && r.stands != nil:
			r.w.fail("the cache answers, although no list or watch was accepted since: %v", r.stands)
		}
		for _, opts := range [][]client.GetOption{
			{clustercache.PreferCache}, {anyAge}, {clustercache.AutoWatch},
			{clustercache.CacheOnly},
		} {
			_, cached, err := r.get(opts...)
			if err == nil && cached && r.stands != nil && accepted() == r.since {
				r.w.fail("%v: the cache answers, although no list or watch was accepted since: %v", opts, r.stands)
			}
		}
		if time.Since(began) < 2*time.Second {
			r.w.pause(200 * time.Millisecond)
		} else {
			r.w.pause(time.Second)
		}
	}
}

// refuses reports whether an error says that the cache is known to be of no use.
func refuses(err error) bool {
	if !errors.Is(err, clustercache.ErrStale) {
		return false
	}
	for _, known := range []error{
		informerpool.ErrBudget, informerpool.ErrKind, informerpool.ErrHistory, informerpool.ErrRefused,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || meta.IsNoMatchError(err) ||
		strings.Contains(err.Error(), "not found") // which must not pass for the absence of the object
}

// get reads the object, and requires that it is not older than before.
func (r *reading) get(opts ...client.GetOption) (x state, cached bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	forms := configMaps.forms()
	o, origin := configMaps.one(forms[r.rng.IntN(len(forms))]), clustercache.Origin{}
	err = r.w.cc.Cluster(r.s.key).Reader().Get(ctx, client.ObjectKey{Namespace: "a", Name: "stable-0"}, o,
		append(opts, &origin)...)
	if err != nil {
		return state{}, false, err
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return state{}, false, err
	}
	x = stateOf(&unstructured.Unstructured{Object: raw})
	r.w.show(x)
	rv, err := strconv.ParseUint(x.rv, 10, 64)
	r.w.must(err)
	r.advance(version{x.uid, rv}, opts, origin.Cached)
	return x, origin.Cached, nil
}

// advance requires that reads do not go back. A read that accepts any age may
// be answered by the cache after another one has asked the server for lack of a
// watch: it is compared with its own kind.
func (r *reading) advance(now version, opts []client.GetOption, cached bool) {
	aged := slices.Contains(opts, client.GetOption(anyAge))
	before := r.shown[aged]
	if !r.back && now.uid == before.uid && now.rv < before.rv {
		r.w.fail("%v, cached %t: reads went back from %d to %d", opts, cached, before.rv, now.rv)
	}
	for _, of := range []bool{aged, false} {
		if r.shown[of].uid != now.uid || r.shown[of].rv < now.rv {
			r.shown[of] = now
		}
	}
}

// watchAccepted counts the lists and watches of ConfigMaps that the server
// accepts from now on, without the questions of the library.
func (s *site) watchAccepted() func() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = true
	return s.accepted.Load
}

// accepting counts a response if it is a success of the server's own.
type accepting struct {
	http.ResponseWriter

	site *site
	done bool
}

// accepts returns the writer for a response that counts if it is a success.
func (s *site) accepts(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	s.mu.Lock()
	counts := s.counts
	s.mu.Unlock()
	if !counts || r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/configmaps") ||
		strings.Contains(r.URL.RawQuery, "fleetcache") {
		return w
	}
	return &accepting{ResponseWriter: w, site: s}
}

// WriteHeader implements http.ResponseWriter.
func (a *accepting) WriteHeader(code int) {
	if !a.done && code < http.StatusMultipleChoices && a.Header().Get(foreignHeader) == "" {
		a.site.accepted.Add(1)
	}
	a.done = true
	a.ResponseWriter.WriteHeader(code)
}

func (a *accepting) Write(b []byte) (int, error) {
	if !a.done {
		a.WriteHeader(http.StatusOK)
	}
	return a.ResponseWriter.Write(b)
}

// Flush implements http.Flusher.
func (a *accepting) Flush() {
	if !a.done {
		a.WriteHeader(http.StatusOK)
	}
	if f, ok := a.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}
