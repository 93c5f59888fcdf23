// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// What is odd about one resource costs that resource. If all families of a run
// concern single resources, others of the same clusters have one watch each from
// the first sync on, which nothing ends but its time limit: they are not listed,
// each change is one event, and neither they nor their cluster have a line in
// the log, another epoch or another connection.
var (
	accounts = &kind{gvk: corev1.SchemeGroupVersion.WithKind("ServiceAccount"), loose: true}
	loungers = &kind{gvk: schema.GroupVersionKind{Group: "beside.example.com", Version: "v1", Kind: "Lounger"},
		loose: true}
)

// victims reports whether all families of the run concern single resources.
func (w *world) victims() bool {
	return len(w.families) > 0 && !slices.ContainsFunc(w.families, func(f *family) bool { return f.concerns == nil })
}

// bystanders returns the resources that no family of the run concerns.
func (w *world) bystanders() []*kind {
	if !w.victims() {
		return nil
	}
	out := []*kind{accounts, loungers}
	whole := func(f *family) bool { return slices.Contains(f.concerns, aggregated.Group) }
	if w.aggregated != nil && !slices.ContainsFunc(w.families, whole) {
		out = append(out, dials)
	}
	return out
}

// calm is what a cluster and the bystanders in it had seen when the first sync
// was over.
type calm struct {
	since      time.Time
	bystanders []*bystander
	status     status.Cluster
	events     int // of the cluster
	lines      int
}

// bystander is the watch of a resource that nothing but this concerns.
type bystander struct {
	*subject

	requests int // of its server, when the first sync was over
	changes  int
}

// settle records what the bystanders have seen by now.
func (w *world) settle() {
	w.before = map[*site]*calm{}
	for _, s := range w.sites {
		if len(w.bystanders()) == 0 {
			return
		}
		c := &calm{since: time.Now()}
		for _, sub := range w.watching(s) {
			if !slices.Contains(w.bystanders(), sub.kind) {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			if err := sub.watch.WaitForSync(ctx); err != nil {
				w.fail("%s: %v", sub.selection, err)
			}
			cancel()
			w.pause(time.Second)
			c.bystanders = append(c.bystanders,
				&bystander{sub, len(s.current().of(sub.kind.gvk.Group).Requests(nil)), sub.count()})
		}
		var err error
		c.status, err = w.cc.Cluster(s.key).Status()
		w.must(err)
		c.events, c.lines = len(w.eventsOf(s)), len(w.lines())
		w.before[s] = c
	}
}

// eventsOf returns the events of a cluster.
func (w *world) eventsOf(s *site) []events.Cluster {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.phases[s.key])
}

// undisturbed requires that the bystanders have seen nothing but their own
// changes, of which this is one.
func (w *world) undisturbed(s *site) {
	c := w.before[s]
	if c == nil {
		return
	}
	b := s.current()
	for _, x := range c.bystanders {
		w.must(b.store(x.kind.object("a", "stable-0", "gold", w.value(b))))
		x.changes++
	}
	w.observe()
	w.pause(time.Second)
	for _, x := range c.bystanders {
		if n, d := x.count(), w.checkSubject(x.subject, false); n != x.changes || d != "" {
			w.fail("beside %s: handler of %s: %d events, and there were %d changes; %s",
				w.familyNames(), x.selection, n,
				x.changes, d)
		}
		lists, watches := followings(b.of(x.kind.gvk.Group).Requests(nil)[x.requests:], x.kind)
		if limit := int(time.Since(c.since) / (w.timeLimit / 2)); lists > 0 || watches > limit {
			w.fail("beside %s: %d lists and %d watches of %s", w.familyNames(), lists, watches, x.selection)
		}
	}
	is, err := w.cc.Cluster(s.key).Status()
	w.must(err)
	received := w.eventsOf(s)[c.events:]
	if is.Epoch != c.status.Epoch || is.Connects != c.status.Connects || is.HistoryResets != c.status.HistoryResets ||
		is.Phase != c.status.Phase || len(received) > 0 {
		w.fail("beside %s: epoch %s, was %s; %d connects, were %d; %d resets, were %d; %s, was %s; events %v",
			w.familyNames(), is.Epoch, c.status.Epoch, is.Connects, c.status.Connects, is.HistoryResets,
			c.status.HistoryResets, is.Phase, c.status.Phase, received)
	}
	for _, line := range w.lines()[c.lines:] {
		if !w.concerned(line) {
			w.fail("beside %s: a line about what is as before: %s", w.familyNames(), line)
		}
	}
}

// followings counts the lists and watches of a kind, without audits, which
// request metadata alone, and history questions.
func followings(all []fakeapi.Request, k *kind) (lists, watches int) {
	for _, r := range all {
		q, _ := url.ParseQuery(r.Query)
		switch {
		case r.Group != k.gvk.Group, r.Resource != strings.ToLower(k.gvk.Kind)+"s",
			strings.Contains(r.Accept, "as="), strings.Contains(r.Query, "fleetcache"), q.Get("limit") == "1",
			q.Has("continue"): // a further page
		case r.Stream, r.Verb == "list":
			lists++
		case r.Verb == "watch":
			watches++
		}
	}
	return lists, watches
}

// concerned reports whether a line of the log is about a resource, by its
// informer or kind, that a family concerns.
func (w *world) concerned(line string) bool {
	return (strings.Contains(line, `"informer"=`) || strings.Contains(line, `"kind"=`)) &&
		slices.ContainsFunc(w.families, func(f *family) bool {
			return slices.ContainsFunc(f.concerns, func(x string) bool { return strings.Contains(line, x) })
		})
}

// lines returns the lines that were logged at the usual verbosity.
func (w *world) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.loud)
}

// isLoud reports whether a line has the usual verbosity, or is an error.
func isLoud(args string) bool {
	return !strings.HasPrefix(args, `"level"=`) || strings.HasPrefix(args, `"level"=0 `)
}
