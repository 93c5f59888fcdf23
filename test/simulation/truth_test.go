// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// kind is a kind of objects that clusters hold.
type kind struct {
	gvk           schema.GroupVersionKind
	clusterScoped bool
	typed         bool // it has a Go type here
	// loose kinds need not be cached: a cached read may fail.
	loose bool
	// bare kinds have neither uid nor resourceVersion.
	bare bool
	// versionless kinds have no resourceVersion.
	versionless bool
	// fluid kinds are removed and re-created with another scope.
	fluid bool
}

var (
	configMaps = &kind{gvk: corev1.SchemeGroupVersion.WithKind("ConfigMap"), typed: true}
	widgets    = &kind{gvk: schema.GroupVersionKind{Group: "sim.example.com", Version: "v1", Kind: "Widget"}}
	// meters can be listed, and not watched.
	meters = &kind{gvk: schema.GroupVersionKind{Group: "meters.example.com", Version: "v1", Kind: "Meter"}, loose: true}
	// samples have no identity, like metrics.
	samples = &kind{gvk: schema.GroupVersionKind{Group: "samples.example.com", Version: "v1", Kind: "Sample"},
		loose: true, bare: true}
	// quiets have no watch cache, and so no bookmarks.
	quiets = &kind{gvk: schema.GroupVersionKind{Group: "quiet.example.com", Version: "v1", Kind: "Quiet"}, loose: true}
	roles  = &kind{gvk: schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
		clusterScoped: true, loose: true}
)

func widgetKind() fakeapi.Kind {
	return fakeapi.Kind{Group: "sim.example.com", Kind: "Widget", Versions: []string{"v1", "v1beta1"},
		Resource: "widgets"}
}

// gadgetKind returns the fluid kind with its current scope.
func (w *world) gadgetKind() fakeapi.Kind {
	scoped := slices.ContainsFunc(w.kinds, func(k *kind) bool { return k.fluid && k.clusterScoped })
	return fakeapi.Kind{Group: "fluid.example.com", Kind: "Gadget", Resource: "gadgets", ClusterScoped: scoped}
}

func quietKind() fakeapi.Kind {
	return fakeapi.Kind{Group: "quiet.example.com", Kind: "Quiet", Resource: "quiets", NoBookmarks: true}
}

func (w *world) served() []fakeapi.Kind {
	noWatch := []string{"get", "list"}
	out := []fakeapi.Kind{
		widgetKind(),
		w.gadgetKind(),
		quietKind(),
		{Group: "meters.example.com", Kind: "Meter", Resource: "meters", Verbs: noWatch},
		{Group: "samples.example.com", Kind: "Sample", Resource: "samples", Verbs: noWatch, NoUID: true,
			NoVersions: true},
		{Group: loungers.gvk.Group, Kind: loungers.gvk.Kind, Resource: "loungers"},
	}
	if w.aggregated != nil {
		out = append(out, apiService()...)
	}
	return out
}

// object creates an object of the kind.
func (k *kind) object(namespace, name, tier, value string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(k.gvk)
	if !k.clusterScoped {
		u.SetNamespace(namespace)
	}
	u.SetName(name)
	u.SetLabels(map[string]string{"tier": tier})
	switch k {
	case configMaps:
		u.Object["data"] = map[string]any{"v": value}
	case roles, accounts:
		u.SetAnnotations(map[string]string{"v": value})
	default:
		u.Object["spec"] = map[string]any{"v": value}
	}
	withCanary(u.Object, k)
	return u
}

// state is the compared part of an object.
type state struct {
	key   string // namespace/name
	uid   string
	rv    string
	tier  string
	value string // empty if only metadata is known
}

func (s state) String() string {
	return fmt.Sprintf("%q %s@%s %s=%s", s.key, short(s.uid), s.rv, s.tier, s.value)
}

func short(uid string) string { return uid[:min(len(uid), 8)] }

func stateOf(u *unstructured.Unstructured) state {
	s := state{
		key: u.GetNamespace() + "/" + u.GetName(), uid: string(u.GetUID()), rv: number(u.GetResourceVersion()),
		tier: u.GetLabels()["tier"],
	}
	for _, path := range [][]string{{"data", "v"}, {"spec", "v"}, {"metadata", "annotations", "v"}} {
		if v, ok, _ := unstructured.NestedString(u.Object, path...); ok {
			s.value = v
		}
	}
	if len(s.value) > 100 {
		s.value = fmt.Sprintf("%s…%d", s.value[:20], len(s.value))
	}
	return s
}

// number returns the number in a version, which may be a longer string.
func number(rv string) string { return rv[strings.LastIndexByte(rv, '.')+1:] }

// selection is a part of a kind.
type selection struct {
	kind      *kind
	namespace string
	tier      string
	name      string
}

func (s selection) String() string {
	return strings.Join(append([]string{s.kind.gvk.Kind + "." + s.kind.gvk.Version}, s.namespace, s.tier, s.name), "/")
}

func (s selection) matches(x state) bool {
	namespace, name, _ := strings.Cut(x.key, "/")
	return (s.namespace == "" || s.namespace == namespace) && (s.tier == "" || s.tier == x.tier) &&
		(s.name == "" || s.name == name)
}

// truth returns the objects of a selection that a server stores. served is
// false if the server does not serve the kind in this version, in which case
// the objects may exist nevertheless.
func (s *site) truth(sel selection) (objects map[string]state, served bool) {
	return s.current().truth(sel)
}

func (b *backend) truth(sel selection) (objects map[string]state, served bool) {
	stored, served := b.objects(sel.kind.gvk)
	objects = map[string]state{}
	for _, u := range stored {
		if x := stateOf(u); sel.matches(x) && !isForeign(sel.kind, x) {
			if sel.kind.bare {
				x.uid, x.rv = "", ""
			}
			if sel.kind.versionless {
				x.rv = ""
			}
			objects[x.key] = x
		}
	}
	return objects, served
}

// isForeign reports whether an object was not created by the simulation.
func isForeign(k *kind, x state) bool { return k == roles && x.tier == "" }

// life is when a state of an object was the truth: from the first to the last
// moment at which it was observed.
type life struct{ first, last int }

// chronicle records the truth at a site over time. Moments are numbered.
type chronicle struct {
	moment int
	// lives are the lives of each state of each object.
	lives map[*kind]map[state]life
	// vanished holds the last moment at which an object, identified by its uid,
	// was found deleted.
	vanished map[*kind]map[string]int
	ended    map[*kind]map[string]int // the first of those moments
	present  map[*kind]map[string]bool
	owners   map[string]string // uid to server
	epochs   map[string]string // epoch to server
	// turns are the successive states of each object. shown are the earliest
	// moments that reads can have shown.
	turns map[*kind]map[string][]turn
	shown map[view]map[string]int
}

func newChronicle() *chronicle {
	return &chronicle{
		lives: map[*kind]map[state]life{}, vanished: map[*kind]map[string]int{}, ended: map[*kind]map[string]int{},
		present: map[*kind]map[string]bool{},
		owners:  map[string]string{}, epochs: map[string]string{},
		turns: map[*kind]map[string][]turn{}, shown: map[view]map[string]int{},
	}
}

// note records a moment.
func (c *chronicle) note(s *site, k *kind) {
	truth, _ := s.truth(selection{kind: k})
	c.turned(k, truth)
	if c.lives[k] == nil {
		c.lives[k], c.vanished[k], c.ended[k] = map[state]life{}, map[string]int{}, map[string]int{}
	}
	now := map[string]bool{}
	for _, x := range truth {
		l, known := c.lives[k][x]
		if !known {
			l.first = c.moment
		}
		l.last = c.moment
		c.lives[k][x] = l
		now[x.uid] = true
		c.owners[x.uid] = s.current().name
	}
	for uid := range c.present[k] {
		if !now[uid] {
			c.vanish(k, uid)
		}
	}
	c.present[k] = now
	c.aside(s, k)
}

// aside records the states that came to be in a cluster after another one took
// its place. Watches that were kept show them until the switch is noticed, and
// then all the objects as deleted.
func (c *chronicle) aside(s *site, k *kind) {
	for _, b := range s.former() {
		truth, _ := b.truth(selection{kind: k})
		for _, x := range truth {
			if _, known := c.lives[k][x]; known {
				continue
			}
			c.lives[k][x] = life{c.moment, c.moment}
			c.owners[x.uid] = b.name
			c.vanish(k, x.uid)
		}
	}
}

// vanish records that an object was found deleted at this moment.
func (c *chronicle) vanish(k *kind, uid string) {
	c.vanished[k][uid] = c.moment
	if c.ended[k][uid] == 0 {
		c.ended[k][uid] = c.moment
	}
}

// revived reports whether a state, delivered after a delete of the object that
// was delivered by a moment, had ended before the object first left the
// selection: it is from before the delete. If the object had not left by then,
// the delete was of another history, in which the object was not, and the state
// is the correction of that.
func (c *chronicle) revived(sel selection, x state, by int) bool {
	gone := c.ended[sel.kind][x.uid]
	for y, l := range c.lives[sel.kind] {
		if y.uid == x.uid && !sel.matches(y) && (gone == 0 || l.first < gone) {
			gone = l.first
		}
	}
	return c.lives[sel.kind][x].last < gone && gone <= by
}

// left reports whether an object was ever outside a selection after it had
// existed.
func (c *chronicle) left(sel selection, uid string) bool {
	if c.vanished[sel.kind][uid] > 0 {
		return true
	}
	for y := range c.lives[sel.kind] {
		if y.uid == uid && !sel.matches(y) {
			return true
		}
	}
	return false
}

// moment returns the number of the last moment of a site.
func (w *world) moment(s *site) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.chronicles[s].moment
}

// observe records the current truth. It is called after each change.
func (w *world) observe() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sites {
		c := w.chronicles[s]
		c.moment++
		for _, k := range slices.Concat(w.kinds, w.bystanders(), []*kind{roles}) {
			c.note(s, k)
		}
	}
}

// excuse records that all objects of a site may be delivered as deleted: the
// cluster was removed.
func (w *world) excuse(s *site) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.chronicles[s]
	c.moment++
	for k, present := range c.present {
		for uid := range present {
			c.vanish(k, uid)
		}
	}
}

// TestKeptWatchesShowTheFormerCluster: a proxy that switches to another cluster
// keeps the watches of the former one. What changes there is true, until the
// switch is noticed.
func TestKeptWatchesShowTheFormerCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of, err := plan(1, "switched")
		require.NoError(t, err)
		w := newWorld(t, 1, of)
		s := w.add("one")
		w.run()
		sub := w.follow(s, selection{kind: configMaps})
		require.True(t, w.await(time.Minute, "first sync"))
		former, next := s.current(), s.addBackend()
		w.fill(next)
		s.become(next)
		s.switched = time.Now()
		w.must(former.store(configMaps.object("a", "late", "gold", w.value(former))))
		w.observe()
		w.pause(time.Second)
		require.Contains(t, sub.folded(), "a/late")
		w.await(3*time.Minute, "after the switch")
		w.finish()
		require.False(t, w.failed(), w.report())
	})
}
