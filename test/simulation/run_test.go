// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// family is one kind of fault.
type family struct {
	name string
	// options changes the library's options.
	options func(*world, *clustercache.Options)
	// begin prepares the clusters, before the library knows them, and sets the
	// kinds they hold.
	begin func(*world, *site)
	// strike applies the fault to a site. The function it returns, if any, ends
	// the fault.
	strike func(*world, *site) (heal func())
	// hold is how long the fault may stay until each read is either right or
	// fails. Zero means that this is not tested.
	hold time.Duration
	// dead requires that the cluster is not connected after hold.
	dead bool
	// strict requires that everything is right after hold, although the fault
	// stays.
	strict bool
	// during is checked after hold.
	during func(*world, *site)
	// bound is how long after healing everything must be right. Zero means a
	// minute.
	bound time.Duration
	// delays is how much later audits may find a difference while the fault
	// stays.
	delays time.Duration
	// mangles lists kinds of which objects may vanish as a whole.
	mangles []*kind
	// solo is a run of its own, in place of all of the above.
	solo func(*world)
	// concerns names the resources that are odd, as the log does, if all others
	// of the cluster must not notice.
	concerns []string
	// odd changes the aggregated API of the run, which it has then.
	odd func(*rand.Rand, *fakeapi.Kind, *kind)
	// apart families measure memory, and so run when nothing else does.
	apart bool
}

func always(f *fakeapi.Fault) func(*fakeapi.Request) *fakeapi.Fault {
	return func(*fakeapi.Request) *fakeapi.Fault { return f }
}

// live performs a run.
func (w *world) live() {
	names := []string{"one"}
	if w.chance(6) {
		names = append(names, "two")
	}
	for _, f := range w.families {
		if f.begin != nil {
			f.begin(w, nil)
		}
	}
	for _, name := range names {
		s := w.add(name)
		for _, f := range w.families {
			if f.begin != nil {
				f.begin(w, s)
			}
		}
	}
	w.run()
	for _, s := range w.sites {
		w.followAll(s)
	}
	if w.await(time.Minute, "first sync") {
		w.settle()
		w.storm()
	}
	w.finish()
}

// finish stops the library and judges the run.
func (w *world) finish() {
	w.expose()
	w.stop()
	w.alternate()
	for _, sub := range slices.Concat(w.subjects, w.left) {
		sub.judge(w, w.chronicles[sub.site])
	}
}

// followAll takes watches of each kind, wide and narrow ones.
func (w *world) followAll(s *site) {
	for _, k := range w.bystanders() {
		w.follow(s, selection{kind: k})
	}
	for _, k := range w.kinds {
		all := selection{kind: k}
		if w.limited != nil && !w.limited(all) {
			w.follow(s, selection{kind: k, namespace: "a", name: "stable-0"})
			continue
		}
		w.follow(s, all)
		if k.clusterScoped || k.loose || k.fluid {
			continue
		}
		if w.chance(2) {
			w.follow(s, w.narrow(k))
		}
	}
}

// storm goes through chaos, a fault that stays, healing and rest, and then
// requires that everything works.
func (w *world) storm() {
	w.chaos()
	for _, s := range w.living() {
		w.persist(s)
	}
	bound := time.Minute
	for _, f := range w.families {
		bound = max(bound, f.bound)
	}
	if !w.await(bound, "after healing") {
		return
	}
	w.pause(20 * time.Second)
	for _, s := range w.living() {
		for range 4 {
			w.write(s)
		}
	}
	if !w.await(time.Minute, "after the last writes") {
		return
	}
	for _, s := range w.living() {
		w.undisturbed(s)
	}
	w.wayBack()
	w.share()
	w.letGo()
}

// episode is a fault in progress.
type episode struct {
	of   *family
	site *site
	heal func()
}

// chaos writes, reads and strikes.
func (w *world) chaos() {
	var open []episode
	for range 8 + w.rng.IntN(10) {
		sites := w.living()
		s := sites[w.rng.IntN(len(sites))]
		switch w.rng.IntN(6) {
		case 0, 1:
			w.write(s)
		case 2:
			w.probe(s)
			w.create(s)
		case 5:
			w.churn(s)
		case 3:
			f := w.families[w.rng.IntN(len(w.families))]
			busy := slices.ContainsFunc(open, func(e episode) bool { return e.of == f && e.site == s })
			if f.strike == nil || busy {
				continue
			}
			w.trace("%s: strike of %s", s.name, f.name)
			if heal := f.strike(w, s); heal != nil {
				open = append(open, episode{f, s, heal})
			}
		case 4:
			if len(open) > 0 {
				i := w.rng.IntN(len(open))
				w.heal(open[i])
				open = slices.Delete(open, i, i+1)
			}
		}
		if w.chance(2) {
			w.shortPause(10 * time.Second)
		} else {
			w.shortPause(50 * time.Millisecond)
		}
		w.probe(s)
		if w.seed%3 > 0 { // the other seeds know better what reads have shown
			w.peek(s)
		}
	}
	for _, e := range open {
		w.heal(e)
	}
}

// churn takes one more watch, or gives one up.
func (w *world) churn(s *site) {
	subs := slices.DeleteFunc(w.watching(s), func(sub *subject) bool { return sub.kind.loose || sub.kind.fluid })
	if w.limited != nil || len(subs) == 0 {
		return
	}
	if k := w.kinds[w.rng.IntN(len(w.kinds))]; len(subs) < 3 && !k.loose && !k.fluid {
		w.follow(s, w.narrow(k))
		return
	}
	w.leave(subs[w.rng.IntN(len(subs))])
}

// narrow returns a part of a kind.
func (w *world) narrow(k *kind) selection {
	return []selection{
		{kind: k}, {kind: k, namespace: "a"}, {kind: k, tier: "gold"}, {kind: k, namespace: "b", tier: "gold"},
		{kind: k, namespace: "b", name: "stable-1"},
	}[w.rng.IntN(5)]
}

func (w *world) heal(e episode) {
	w.trace("%s: %s is healed", e.site.name, e.of.name)
	e.heal()
	w.observe()
}

// persist lets one fault stay.
func (w *world) persist(s *site) {
	able := slices.DeleteFunc(slices.Clone(w.families), func(f *family) bool { return f.hold == 0 })
	if len(able) == 0 {
		return
	}
	f := able[w.rng.IntN(len(able))]
	w.trace("%s: %s stays for %s", s.name, f.name, f.hold)
	heal := f.strike(w, s)
	for range 3 {
		w.write(s)
	}
	hold := f.hold
	for _, other := range w.families {
		if other != f { // its effects may still have to be found
			hold = max(hold, other.bound)
		}
	}
	if f.delays > 0 && w.audited() {
		hold = max(hold, audited+f.delays)
	}
	w.pause(hold)
	w.expose()
	wrong := w.check(s, f.strict)
	for _, d := range wrong {
		w.fail("%s for %s: %s", f.name, f.hold, d)
	}
	if f.dead {
		w.requireDisconnected(s)
	}
	if f.during != nil {
		f.during(w, s)
	}
	w.undisturbed(s)
	if heal != nil {
		w.heal(episode{f, s, heal})
	}
}

// requireDisconnected requires that the library knows that a dead server is
// dead.
func (w *world) requireDisconnected(s *site) {
	if status, err := w.cc.Cluster(s.key).Status(); err == nil && status.Connected {
		w.fail("%s does not answer, and is connected", s.key)
	}
}

// writable returns the kind in a version in which the server accepts it.
func writable(b *backend, k *kind) (*kind, bool) {
	if _, served := b.objects(k.gvk); served {
		return k, true
	}
	if k == widgets {
		other := *k
		other.gvk.Version = "v1beta1"
		if _, served := b.objects(other.gvk); served {
			return &other, true
		}
	}
	return nil, false
}

// write changes an object at a site.
func (w *world) write(s *site) { w.writeOf(s, w.kinds[w.rng.IntN(len(w.kinds))]) }

func (w *world) writeOf(s *site, k *kind) {
	b := s.current()
	wk, ok := writable(b, k)
	if !ok {
		return
	}
	api, i := b.of(k.gvk.Group), w.rng.IntN(6)
	name, at := fmt.Sprintf("loose-%d", i), space(i)
	op := "store"
	var err error
	switch w.rng.IntN(6) {
	case 0:
		op = "delete"
		err = client.IgnoreNotFound(api.Delete(k.gvk.GroupKind(), namespaceOf(k, at), name))
	case 1:
		op = "replace"
		if err = client.IgnoreNotFound(api.Delete(k.gvk.GroupKind(), namespaceOf(k, at), name)); err == nil {
			w.observe()
			err = b.store(wk.object(at, name, tier(w.rng.IntN(3)), w.value(b)))
		}
	case 2:
		i %= stable
		name, at = fmt.Sprintf("stable-%d", i), space(i)
		err = b.store(wk.object(at, name, tier(i), w.value(b)))
	default:
		err = b.store(wk.object(at, name, tier(w.rng.IntN(3)), w.value(b)))
	}
	w.trace("%s: %s %s %s/%s in %s: now %d", s.name, op, k.gvk.Kind, at, name, b.name, api.ResourceVersion())
	w.must(err)
	w.observe()
}

func namespaceOf(k *kind, namespace string) string {
	if k.clusterScoped {
		return ""
	}
	return namespace
}

// probe reads in the middle of everything: an answer may be old, but must be
// whole and of one cluster.
func (w *world) probe(s *site) {
	k := w.kinds[w.rng.IntN(len(w.kinds))]
	if k.bare || k.loose || (w.limited != nil && !w.limited(selection{kind: k})) {
		return
	}
	mode := w.modes[w.rng.IntN(len(w.modes))]
	f := k.forms()[w.rng.IntN(len(k.forms()))]
	var origin clustercache.Origin
	got, err := w.listFrom(s, selection{kind: k}, f, mode, &origin)
	if err != nil {
		w.trace("%s: probe %s %s: %v", s.name, k.gvk.Kind, mode, err)
		return
	}
	w.own(s, fmt.Sprintf("list %s %s %s, cached %t", k.gvk.Kind, f, mode, origin.Cached), origin.Epoch, got)
	if w.mangled(k) {
		return
	}
	var lost []string
	for i := range stable {
		if key := space(i) + "/" + fmt.Sprintf("stable-%d", i); got[key].key == "" {
			lost = append(lost, key)
		}
	}
	if len(lost) > 0 {
		w.fail("list %s %s %s without an error lacks what always was there: %s", k.gvk.Kind, f, mode,
			strings.Join(lost, ", "))
	}
}

func (w *world) mangled(k *kind) bool {
	return k.fluid || slices.ContainsFunc(w.families, func(f *family) bool { return slices.Contains(f.mangles, k) })
}

// proofAge is how long after a switch live reads and writes may be attributed
// to the wrong cluster: the library checks the server's identity once a minute.
const proofAge = 70 * time.Second

// own compares an answer with the known epochs: the answer belongs to one
// cluster, and so does an epoch, later than proofAge after a switch.
func (w *world) own(s *site, what, epoch string, got map[string]state) {
	w.mu.Lock()
	c := w.chronicles[s]
	owners := map[string]bool{}
	for _, x := range got {
		if owner := c.owners[x.uid]; owner != "" {
			owners[owner] = true
		}
	}
	before := c.epochs[epoch]
	for owner := range owners {
		if before == "" && time.Since(s.switched) > proofAge {
			c.epochs[epoch] = owner
		}
	}
	w.mu.Unlock()
	if len(owners) > 1 && time.Since(s.switched) > proofAge {
		w.fail("%s: objects of %d clusters", what, len(owners))
	}
	if before != "" && len(owners) == 1 && !owners[before] && time.Since(s.switched) > proofAge {
		w.fail("%s: said to be of epoch %s, which was that of %s, and of another cluster", what, epoch, before)
	}
}

// create writes by the library's client.
func (w *world) create(s *site) {
	if w.limited != nil {
		return
	}
	before, err := w.cc.Cluster(s.key).Status()
	if err != nil || !before.Connected {
		return
	}
	c, err := w.cc.Cluster(s.key).Client()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	u := configMaps.object("a", fmt.Sprintf("own-%d", w.rng.IntN(4)), "tin", w.value(s.current()))
	err = client.IgnoreAlreadyExists(w.lookAt("create", c.Create(ctx, u)))
	w.observe()
	w.trace("%s: create by the client: %v", s.name, err)
	after, _ := w.cc.Cluster(s.key).Status()
	if err == nil && u.GetUID() != "" && before.Epoch == after.Epoch {
		x := stateOf(u)
		w.own(s, "create", after.Epoch, map[string]state{x.key: x})
	}
}
