// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// serverFamilies are faults of API servers in pairs, under load and by design.
func serverFamilies() []*family {
	return []*family{
		{name: "left-behind", strike: leftBehind},
		{name: "replica", hold: 30 * time.Second, strict: true, strike: replica},
		{name: "forgotten", hold: noticed, strike: forgotten, during: func(w *world, s *site) {
			for _, d := range w.check(s, len(w.families) == 1) {
				w.fail("connections were forgotten %s ago: %s", noticed, d)
			}
		}},
		{name: "uneven", hold: attempted + 2*lateness, strict: true, strike: uneven},
		{name: "endless", hold: silence, strict: true, bound: 2 * time.Minute, strike: endless,
			// Without the end of a streamed list, each watch begins half a minute
			// late: one of a minute may see no bookmark, and show no sign of life.
			options: func(w *world, o *clustercache.Options) {
				w.timeLimit = max(w.timeLimit, 2*time.Minute)
				o.Informers.WatchTimeout = w.timeLimit
			}},
		{name: "replayed", hold: 10 * time.Second, strike: replayed, during: func(w *world, s *site) {
			for _, d := range w.check(s, len(w.families) == 1) {
				w.fail("replayed: %s", d)
			}
		}},
		{name: "creeping", hold: attempted, bound: 2 * time.Minute, strike: creeping, during: crept,
			options: func(_ *world, o *clustercache.Options) { o.Informers.MaxClusterBytes = creepingBudget }},
	}
}

// replica is a pair of servers behind one address that take turns; the watches
// of one of them lag by a second.
func replica(_ *world, s *site) func() {
	b := s.current()
	var n atomic.Int32
	b.api.Lag(time.Second, func(*fakeapi.Request) bool { return n.Add(1)%2 == 0 })
	s.net.Reset()
	return func() {
		b.api.Lag(0, nil)
		s.net.Reset()
	}
}

// replayed is a proxy that repeats parts of live streams: one or more changes,
// of objects that exist and of one that is deleted.
func replayed(w *world, s *site) func() {
	b, k := s.current(), w.kinds[w.rng.IntN(2)]
	wk, served := writable(b, k)
	if !served {
		return nil
	}
	for range 2 {
		w.must(b.store(wk.object("a", "loose-0", tier(w.rng.IntN(3)), w.value(b))))
		w.observe()
		w.writeOf(s, k)
	}
	_ = b.api.Delete(k.gvk.GroupKind(), "a", "loose-0")
	w.observe()
	w.writeOf(s, k)
	w.shortPause(2 * time.Second)
	back := 2 + w.rng.IntN(6)
	count := 1 + w.rng.IntN(back)
	w.trace("%s: %d changes from %d ago once more", s.name, count, back)
	b.api.Replay(only(k), back, count)
	return nil
}

// noticed is how long it may take until watches whose connection is dead
// continue: the death is detected within 45 s, and informers try again within a
// few.
const noticed = 55 * time.Second

// forgotten is a router that has forgotten one of the connections, or all:
// probes are answered over others.
func forgotten(w *world, s *site) func() {
	which := w.rng.IntN(3)
	w.trace("%s: connection %d is forgotten, of 2 or all", s.name, which)
	return s.net.Forget(func(number int) bool { return which == 2 || number%2 == which })
}

// lateness is how far one of a pair of servers lags.
const lateness = 5 * time.Second

// uneven is a pair of servers of which one is late. The late one serves the
// watches of whole kinds, or those of parts of them. In the end the watches of
// the other server are given up, or refused.
func uneven(w *world, s *site) func() {
	b, whole := s.current(), w.chance(2)
	late := func(r *fakeapi.Request) bool {
		return (r.Namespace == "" && !strings.Contains(r.Query, "Selector=")) == whole
	}
	if w.limited == nil {
		for _, k := range []*kind{configMaps, widgets} {
			w.follow(s, selection{kind: k})
			w.follow(s, selection{kind: k, namespace: "a"})
		}
		w.pause(time.Second)
	}
	b.api.Lag(lateness, func(r *fakeapi.Request) bool { return r.Verb == "watch" && late(r) })
	s.net.Reset()
	w.pause(lateness + time.Second)
	for range 5 {
		w.write(s)
		w.pause(time.Second / 5)
		w.peek(s)
	}
	w.without(s, func(r *fakeapi.Request) bool { return !late(r) }, whole)
	return func() {
		b.api.Lag(0, nil)
		s.net.Reset()
	}
}

// without keeps reading without the matching watches: they are given up, or
// refused for a while.
func (w *world) without(s *site, match func(*fakeapi.Request) bool, parts bool) {
	refuse := w.chance(2)
	if refuse {
		s.put("uneven", func(r *fakeapi.Request) *fakeapi.Fault {
			if r.Verb != "watch" && r.Verb != "list" || r.Resource == "" || !match(r) {
				return nil
			}
			return &fakeapi.Fault{Err: fakeapi.Forbidden(r)}
		})
		s.api().Cut(match)
	} else {
		for _, sub := range w.watching(s) {
			if (sub.selection != selection{kind: sub.kind}) == parts {
				w.leave(sub)
			}
		}
	}
	for range 5 {
		w.pause(time.Second / 5)
		w.peek(s)
	}
	if refuse {
		s.lift("uneven")
	}
}

// endless is a server that begins streamed lists and never ends them.
func endless(w *world, s *site) func() {
	s.put("endless", func(r *fakeapi.Request) *fakeapi.Fault {
		if !r.Stream {
			return nil
		}
		return &fakeapi.Fault{Answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			fakeapi.Hang(w, r)
		}}
	})
	w.restart(s)
	return func() { s.lift("endless") }
}

const (
	creepingBudget = 300 << 10
	creepingObject = 8 << 10
	// creepingSeen bounds the additional memory for objects that only reads
	// have shown.
	creepingSeen = 8 << 20
)

// creeping exceeds a cluster's budget by objects that are each far smaller than
// the budget.
func creeping(w *world, s *site) func() {
	b := s.current()
	for i := range 2 * creepingBudget / creepingObject {
		raw := make([]byte, creepingObject*3/4)
		for j := range raw {
			raw[j] = byte(w.rng.Uint32())
		}
		w.must(b.store(configMaps.object("b", fmt.Sprintf("creep-%d", i), "tin",
			base64.StdEncoding.EncodeToString(raw))))
	}
	w.observe()
	return func() {
		for i := range 2 * creepingBudget / creepingObject {
			_ = b.api.Delete(configMaps.gvk.GroupKind(), "b", fmt.Sprintf("creep-%d", i))
		}
	}
}

// crept checks the memory while the informers try again.
func crept(w *world, s *site) {
	for range 20 {
		w.pause(7 * time.Second)
		status, err := w.cc.Cluster(s.key).Status()
		if err == nil && status.Bytes-status.SeenBytes > creepingBudget+1<<10 {
			w.fail("%s: takes %d bytes, of a budget of %d", s.key, status.Bytes-status.SeenBytes, creepingBudget)
			return
		}
		if err == nil && status.SeenBytes > creepingSeen {
			w.fail("%s: takes %d bytes for what reads have shown", s.key, status.SeenBytes)
			return
		}
	}
}
