// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// outlived is how much longer than its informer a watch may be open at the
// server. A watch older than that is no history question.
const outlived = 15 * time.Second

// secrets is a kind that only share watches.
var secrets = &kind{gvk: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, loose: true}

// keyOfRequest returns the selection of a list or watch as one string.
func keyOfRequest(r *fakeapi.Request) string {
	q, _ := url.ParseQuery(r.Query)
	return strings.Join([]string{r.Path, q.Get("labelSelector"), q.Get("fieldSelector")}, " ")
}

// open returns the open watches of a site by selection. It leaves out recent
// ones, which may be history questions.
func (s *site) open() map[string][]fakeapi.OpenWatch {
	s.mu.Lock()
	backends := slices.Clone(s.backends)
	s.mu.Unlock()
	out := map[string][]fakeapi.OpenWatch{}
	for _, b := range backends {
		for _, o := range b.api.Open() {
			if time.Since(o.Since) > outlived {
				key := b.name + " " + keyOfRequest(&o.Request)
				out[key] = append(out[key], o)
			}
		}
	}
	return out
}

// share requires at rest that each key has one watch, that further leases of it
// cost no request, and that releasing them, even twice, does not end others.
func (w *world) share() {
	for _, s := range w.living() {
		w.oneEach(s)
		if !w.until(2*time.Minute, func() bool { return w.fits(s) }) {
			w.fail("%s: an informer is still over its budget", s.name)
		}
		lists := 1
		if slices.Contains(w.familyNames(), "tokens") {
			lists++ // a list whose pages expire starts over
		}
		w.shareOne(s, secrets, lists)
		subs := slices.DeleteFunc(w.watching(s), func(sub *subject) bool {
			return sub.kind.loose || sub.kind.fluid || sub.namespace+sub.tier+sub.name != ""
		})
		if len(subs) > 0 {
			w.shareOne(s, subs[0].kind, 0)
		}
		w.pause(informerpool.DefaultLinger + outlived)
		w.write(s)
	}
	w.await(time.Minute, "after leases were shared")
}

// fits reports whether no informer of the cluster is over its budget. One that
// was keeps its objects until its next list, and no other fits beside it.
func (w *world) fits(s *site) bool {
	statuses, _ := w.cc.WatchStatuses(s.key)
	return !slices.ContainsFunc(statuses, func(watch clustercache.WatchStatus) bool {
		return errors.Is(watch.Informer.LastError, informerpool.ErrBudget)
	})
}

// oneEach requires that no key has two watches, and that no unused watch is
// open.
func (w *world) oneEach(s *site) {
	if w.until(2*informerpool.DefaultLinger, func() bool { return len(w.excess(s)) == 0 }) {
		return
	}
	for _, x := range w.excess(s) {
		w.fail("%s: %s", s.name, x)
	}
}

// until waits until is returns true.
func (w *world) until(bound time.Duration, is func() bool) bool {
	for began := time.Now(); !is(); w.pause(5 * time.Second) {
		if time.Since(began) > bound {
			return false
		}
	}
	return true
}

// excess describes the superfluous watches.
func (w *world) excess(s *site) []string {
	var out []string
	watching := w.watching(s)
	for key, all := range s.open() {
		if len(all) > 1 {
			out = append(out, fmt.Sprintf("%d watches of %s are open", len(all), key))
		}
		wanted := slices.Contains(w.modes, clustercache.AutoWatch) ||
			slices.ContainsFunc(watching, func(sub *subject) bool { return sub.asks(&all[0].Request) })
		if !wanted {
			out = append(out, fmt.Sprintf("a watch of %s is open since %s, and nobody holds a lease of it", key,
				time.Since(all[0].Since)))
		}
	}
	return out
}

// asks reports whether a request has the selection of the subject's watch.
func (s *subject) asks(r *fakeapi.Request) bool {
	q, _ := url.ParseQuery(r.Query)
	tier := ""
	if s.tier != "" {
		tier = "tier=" + s.tier
	}
	return r.Group == s.kind.gvk.Group && r.Namespace == s.namespace && r.Selected == s.name &&
		q.Get("labelSelector") == tier
}

// shareOne acquires several leases of one key at a time, and requires that they
// cost the given number of lists and at most one watch: an existing informer
// may be resuming its own.
func (w *world) shareOne(s *site, k *kind, lists int) {
	before := len(s.api().Requests(nil))
	var wait sync.WaitGroup
	watches := make([]*clustercache.Watch, 5)
	for i := range watches {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var err error
			if watches[i], err = w.cc.Watch(ctx, s.key, clustercache.Kind(k.gvk)); err == nil {
				err = watches[i].WaitForSync(ctx)
			}
			if err != nil {
				w.fail("share %s: %v", k.gvk.Kind, err)
			}
		})
	}
	wait.Wait()
	w.pause(time.Second)
	listed, watched := requestsOf(s.api().Requests(nil)[before:], k)
	if listed > lists || watched > 1 || (lists > 0 && listed == 0) {
		w.fail("%d leases of %s cost %d lists and %d watches, and may cost %d", len(watches), k.gvk.Kind, listed,
			watched, lists)
	}
	for _, watch := range watches {
		if watch != nil {
			watch.Release()
			watch.Release()
		}
	}
}

// requestsOf counts the lists of a kind, including streamed ones, and its
// watches. It leaves out the requests of audits, which request metadata alone,
// and history questions.
func requestsOf(all []fakeapi.Request, k *kind) (lists, watches int) {
	for _, r := range all {
		q, _ := url.ParseQuery(r.Query)
		of := r.Group == k.gvk.Group && r.Resource == strings.ToLower(k.gvk.Kind)+"s" &&
			!strings.Contains(r.Accept, "as=")
		if !of || strings.Contains(r.Query, "fleetcache") {
			continue
		}
		if r.Stream || r.Verb == "list" && q.Get("continue") == "" {
			lists++
		}
		if r.Verb == "watch" {
			watches++
		}
	}
	return lists, watches
}

// letGo releases everything, and requires that nothing remains: no watch, and
// no request of one.
func (w *world) letGo() {
	for _, s := range w.living() {
		for _, sub := range w.watching(s) {
			w.leave(sub)
		}
	}
	keeps := informerpool.DefaultLinger + outlived
	if slices.Contains(w.modes, clustercache.AutoWatch) {
		keeps += 10 * time.Minute
	}
	w.pause(keeps)
	asked := map[*fakeapi.Server]int{}
	for _, s := range w.living() {
		asked[s.api()] = len(s.api().Requests(nil))
		for key, all := range s.open() {
			w.fail("%s: a watch of %s is open since %s, and all leases were released %s ago", s.name, key,
				time.Since(all[0].Since), keeps)
		}
	}
	w.pause(2 * auditInterval)
	for _, s := range w.living() {
		for _, r := range s.api().Requests(nil)[asked[s.api()]:] {
			if r.Verb == "list" || r.Verb == "watch" {
				w.fail("%s: %s of %s, and all leases were released before", s.name, r.Verb, keyOfRequest(&r))
			}
		}
	}
}
