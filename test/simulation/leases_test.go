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
	"github.com/fleetcache/fleetcache/clustercache/status"
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
		for _, api := range b.servers() {
			for _, o := range api.Open() {
				if time.Since(o.Since) > outlived {
					key := b.name + " " + keyOfRequest(&o.Request)
					out[key] = append(out[key], o)
				}
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
		w.shareNew(s, secrets, lists)
		subs := slices.DeleteFunc(w.watching(s), func(sub *subject) bool {
			return sub.kind.loose || sub.kind.fluid || sub.namespace+sub.tier+sub.name != ""
		})
		if len(subs) > 0 {
			w.shareOld(s, subs[0].kind)
		}
		w.pause(informerpool.DefaultLinger + outlived)
		w.write(s)
	}
	w.await(time.Minute, "after leases were shared")
}

// fits reports whether no informer of the cluster is over its budget. One that
// was keeps its objects until its next list, and no other fits beside it.
func (w *world) fits(s *site) bool {
	statuses, _ := w.cc.Cluster(s.key).WatchStatuses()
	return !slices.ContainsFunc(statuses, func(watch status.Watch) bool {
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

// shared is how many leases of one key are acquired at a time.
const shared = 5

// shareNew requires that leases of a key that has no informer yet cost one
// watch, and at least one and at most the given number of lists.
func (w *world) shareNew(s *site, k *kind, most int) {
	before := len(s.api().Requests(nil))
	w.acquire(s, k)
	lists, watches := requestsOf(s.api().Requests(nil)[before:], k)
	if lists < 1 || lists > most || watches > 1 {
		w.fail("%d leases of %s cost %d lists and %d watches, and may cost %d and 1", shared, k.gvk.Kind, lists,
			watches, most)
	}
}

// shareOld requires that leases of a key that has an informer cost nothing.
// While they are acquired, a watch of the kind may reach its time limit. What
// its informer requests to resume it, the history question in particular, is
// not their cost, and so they are acquired once more.
func (w *world) shareOld(s *site, k *kind) {
	var lists, watches int
	api := s.current().of(k.gvk.Group)
	apart := w.until(time.Minute, func() bool {
		open, before := openOf(api, k), len(api.Requests(nil))
		w.acquire(s, k)
		lists, watches = requestsOf(api.Requests(nil)[before:], k)
		return len(open) > 0 && slices.Equal(open, openOf(api, k))
	})
	if !apart || lists+watches > 0 {
		w.fail("%d leases of %s cost %d lists and %d watches, and may cost none; its watches stayed open: %t", shared,
			k.gvk.Kind, lists, watches, apart)
	}
}

// acquire acquires leases of one key, all at a time, waits until all have
// synced, and releases them.
func (w *world) acquire(s *site, k *kind) {
	var wait sync.WaitGroup
	watches := make([]*clustercache.Watch, shared)
	for i := range watches {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var err error
			if watches[i], err = w.cc.Cluster(s.key).Watch(ctx, clustercache.Kind(k.gvk)); err == nil {
				err = watches[i].WaitForSync(ctx)
			}
			if err != nil {
				w.fail("share %s: %v", k.gvk.Kind, err)
			}
		})
	}
	wait.Wait()
	w.pause(time.Second)
	for _, watch := range watches {
		if watch != nil {
			watch.Release()
			watch.Release()
		}
	}
}

// openOf returns the open watches of a kind, each with its beginning.
func openOf(api *fakeapi.Server, k *kind) []fakeapi.OpenWatch {
	return slices.DeleteFunc(api.Open(), func(o fakeapi.OpenWatch) bool { return !k.isOf(&o.Request) })
}

// isOf reports whether a request is one of the kind's resource. A custom kind is
// the only one of its group, and its resource may have got another name.
func (k *kind) isOf(r *fakeapi.Request) bool {
	return r.Group == k.gvk.Group && (r.Group != "" || r.Resource == strings.ToLower(k.gvk.Kind)+"s")
}

// requestsOf counts the lists of a kind, including streamed ones, and its
// watches. It leaves out the requests of audits, which request metadata alone.
func requestsOf(all []fakeapi.Request, k *kind) (lists, watches int) {
	for _, r := range all {
		if !k.isOf(&r) || strings.Contains(r.Accept, "as=") {
			continue
		}
		q, _ := url.ParseQuery(r.Query)
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
		for _, api := range s.current().servers() {
			asked[api] = len(api.Requests(nil))
		}
		for key, all := range s.open() {
			w.fail("%s: a watch of %s is open since %s, and all leases were released %s ago", s.name, key,
				time.Since(all[0].Since), keeps)
		}
	}
	w.pause(2 * auditInterval)
	for _, s := range w.living() {
		for _, api := range s.current().servers() {
			for _, r := range api.Requests(nil)[asked[api]:] {
				if r.Verb == "list" || r.Verb == "watch" {
					w.fail("%s: %s of %s, and all leases were released before", s.name, r.Verb, keyOfRequest(&r))
				}
			}
		}
	}
}
