// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

var (
	wayBackSeeds = flag.Int("wayback.seeds", 8, "how many seeds TestGuaranteeWayBack runs")
	wayBackSteps = flag.Int("wayback.steps", 120, "how many steps each seed takes")
	wayBackSeed  = flag.Uint64("wayback.seed", 1, "the first seed of TestGuaranteeWayBack")
)

// TestGuaranteeWayBack does random things to declarations, objects, kinds,
// rights and clusters. At each quiet point, what the last Reconcile of each
// owner read is what a read returns now. Nothing but a DeclarerSource, and a
// change of the owner itself, leads to a Reconcile; requests that failed on
// their way are repeated, as any controller does.
func TestGuaranteeWayBack(t *testing.T) {
	for i := range repeat.Times(*wayBackSeeds) {
		seed := *wayBackSeed + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newWayBack(t, seed)
				for step := range *wayBackSteps {
					m.step()
					if step%12 == 11 {
						m.settle()
					}
				}
				m.heal()
				m.settle()
			})
		})
	}
}

// wayBack is the state of the test.
type wayBack struct {
	t       *testing.T
	rnd     *rand.Rand
	fleet   *clustercachetest.Fleet
	cc      *clustercache.ClusterCache
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	heals   map[string]func() // by what is wrong
	added   int               // objects
	began   time.Time
	history []string // what was done

	mu       sync.Mutex // protects the fields below
	delays   *rand.Rand
	specs    map[string][]clustercache.Target // what each owner needs
	recorded map[string][]answer              // what its last Reconcile has read
}

// answer is the answer to a read.
type answer struct {
	target  string
	objects string // with their versions
	waits   string // why the library does not answer
	failed  bool
	cached  bool
}

var (
	nodes       = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	wayBackName = []string{"a", "b"}
	owners      = []string{"one", "two", "three", "four"}
)

func newWayBack(t *testing.T, seed uint64) *wayBack {
	t.Helper()
	f := clustercachetest.New(t, clustercachetest.Options{})
	m := &wayBack{
		t:        t,
		rnd:      rand.New(rand.NewPCG(seed, 0)),
		fleet:    f,
		cc:       f.ClusterCache(),
		queue:    fleettest.QueueOf[reconcile.Request](t),
		heals:    map[string]func(){},
		began:    time.Now(),
		delays:   rand.New(rand.NewPCG(seed, 1)),
		specs:    map[string][]clustercache.Target{},
		recorded: map[string][]answer{},
	}
	for _, name := range wayBackName {
		f.Add("fleet/" + name)
	}
	s := controller.DeclarerSource(m.cc, controller.EnqueueDeclarer(fleettest.Owner("").GVK))
	require.NoError(t, s.Start(t.Context(), m.queue))
	var worker sync.WaitGroup
	worker.Go(m.work) // one: controller-runtime's client locks a mutex while it reads discovery
	t.Cleanup(func() {
		m.queue.ShutDown()
		worker.Wait()
		require.NoError(t, s.Close(context.Background()))
		if t.Failed() {
			t.Log(strings.Join(m.history, "\n"))
		}
	})

	return m
}

func (m *wayBack) work() {
	for {
		r, shutdown := m.queue.Get()
		if shutdown {
			return
		}
		m.reconcile(r.Name)
		m.queue.Done(r)
	}
}

// reconcile declares what an owner needs and reads it, in any order, in one step
// or two, and as slow as a reconciler may be.
func (m *wayBack) reconcile(name string) {
	m.mu.Lock()
	spec := m.specs[name]
	before, pause := m.delays.IntN(3) == 0, time.Duration(m.delays.IntN(2)*m.delays.IntN(2000))*time.Millisecond
	first := m.delays.IntN(6) // what it does before it declares
	m.mu.Unlock()

	owner := fleettest.Owner(name)
	if spec == nil {
		m.cc.Drop(owner)
		m.record(name, nil)
		return
	}
	var answers []answer
	var errs error
	if before {
		answers, errs = m.read(spec)
		time.Sleep(pause)
	}
	switch first {
	case 0:
		m.cc.Drop(owner)
		time.Sleep(pause)
	case 1:
		if _, err := m.cc.Declare(context.Background(), owner, spec[len(spec)/2:]...); err != nil {
			m.t.Errorf("declare half of %s: %v", name, err)
		}
		time.Sleep(pause)
	}
	if _, err := m.cc.Declare(context.Background(), owner, spec...); err != nil {
		m.t.Errorf("declare %s: %v", name, err)
	}
	if !before {
		answers, errs = m.read(spec)
		time.Sleep(pause)
	}
	m.record(name, answers)
	if errs != nil {
		m.queue.AddAfter(reconcile.Request{NamespacedName: owner.ObjectKey}, 10*time.Second)
	}
}

func (m *wayBack) record(name string, answers []answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recorded[name] = answers
}

// read lists each target. The error is that of a request which failed on its
// way: any reconciler returns such errors.
func (m *wayBack) read(spec []clustercache.Target) (answers []answer, errs error) {
	for _, target := range spec {
		gvk := target.Kind.GetObjectKind().GroupVersionKind()
		list, origin := &unstructured.UnstructuredList{}, clustercache.Origin{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		options := append(slices.Clone(target.Options), &origin)
		err := m.cc.Reader(target.Cluster).List(context.Background(), list, options...)
		var status apierrors.APIStatus
		a := answer{target: nameOf(target), failed: err != nil, cached: origin.Cached}
		switch {
		case clustercache.IsWaiting(err), meta.IsNoMatchError(err):
			a.waits = clustercache.ReasonOf(err)
		case err != nil && !errors.As(err, &status):
			errs = errors.Join(errs, err)
		}
		var objects []string
		for _, o := range list.Items {
			objects = append(objects,
				fmt.Sprintf("%s/%s@%s/%s", o.GetNamespace(), o.GetName(), o.GetResourceVersion(), o.GetUID()))
		}
		slices.Sort(objects)
		a.objects = strings.Join(objects, " ")
		answers = append(answers, a)
	}
	return answers, errs
}

// settle waits until nothing happens any more, and compares. What the server
// answers because the cache may not is not compared: no stream has events of it
// until the cache is trusted again.
func (m *wayBack) settle() {
	m.t.Helper()
	time.Sleep(20 * time.Minute)
	synctest.Wait()
	m.mu.Lock()
	specs, recorded := maps.Clone(m.specs), maps.Clone(m.recorded)
	m.mu.Unlock()

	for _, name := range owners {
		now, _ := m.read(specs[name])
		require.Len(m.t, recorded[name], len(now), "%s at %v", name, time.Since(m.began))
		for i, want := range now {
			if !want.cached && want.waits == "" {
				continue
			}
			got := recorded[name][i]
			got.cached = want.cached // or equal, from the server
			require.Equal(m.t, want, got, "%s at %v: want what is read now", name, time.Since(m.began))
		}
	}
}

func nameOf(target clustercache.Target) string {
	return fmt.Sprint(target.Cluster.Name, target.Kind.GetObjectKind().GroupVersionKind().Kind, target.Options)
}

func (m *wayBack) note(format string, args ...any) {
	m.history = append(m.history, fmt.Sprint(time.Since(m.began), " ", fmt.Sprintf(format, args...)))
}

// heal ends all that is wrong.
func (m *wayBack) heal() {
	for what, heal := range m.heals {
		m.note("heal %s", what)
		heal()
	}
	clear(m.heals)
}

func pick[T any](m *wayBack, of ...T) T { return of[m.rnd.IntN(len(of))] }

// step does something random, and waits for some time.
func (m *wayBack) step() {
	pick(m, m.respec, m.respec, m.respec, m.object, m.object, m.object, m.object, m.object, m.fault, m.fault,
		m.reach, m.kind, m.member, m.rewrite)()
	if m.rnd.IntN(3) > 0 {
		time.Sleep(time.Duration(m.rnd.IntN(3000)) * time.Millisecond)
	}
	if m.rnd.IntN(8) == 0 {
		time.Sleep(time.Duration(m.rnd.IntN(300)) * time.Second)
	}
}

// respec changes what an owner needs, or ends it.
func (m *wayBack) respec() {
	name := pick(m, owners...)
	var spec []clustercache.Target
	if m.rnd.IntN(6) > 0 {
		spec = []clustercache.Target{}
		for range m.rnd.IntN(3) + 1 {
			target := clustercache.Target{
				Cluster: fleettest.Key(pick(m, wayBackName...)),
				Kind:    clustercache.Kind(pick(m, fleettest.ConfigMap, fleettest.ConfigMap, nodes, gadgets)),
			}
			if m.rnd.IntN(2) == 0 {
				target.Options = append(target.Options, client.InNamespace(pick(m, "default", "other")))
			}
			if m.rnd.IntN(3) == 0 {
				target.Options = append(target.Options, client.MatchingLabels{"color": pick(m, "red", "green")})
			}
			spec = append(spec, target)
		}
	}
	var needs []string
	for _, target := range spec {
		needs = append(needs, nameOf(target))
	}
	m.note("%s needs %q", name, needs)
	m.mu.Lock()
	m.specs[name] = spec
	m.mu.Unlock()
	m.queue.Add(reconcile.Request{NamespacedName: fleettest.Owner(name).ObjectKey})
}

// cluster returns a random cluster, or nil if it is removed.
func (m *wayBack) cluster() *clustercachetest.Cluster {
	return m.fleet.Cluster(fleettest.Key(pick(m, wayBackName...)))
}

// object creates, changes or deletes one object.
func (m *wayBack) object() {
	c := m.cluster()
	if c == nil {
		return
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(pick(m, fleettest.ConfigMap, fleettest.ConfigMap, nodes, gadgets))
	o.SetName(pick(m, "x", "y", "z"))
	if o.GetKind() != "Node" {
		o.SetNamespace(pick(m, "default", "default", "other"))
	}
	o.SetLabels(map[string]string{"color": pick(m, "red", "green", "none")})
	var err error
	verb := pick(m, "delete", "write", "write", "write and delete")
	if strings.Contains(verb, "write") {
		m.added++
		o.SetAnnotations(map[string]string{"n": fmt.Sprint(m.added)})
		if err = c.Client().Create(m.t.Context(), o.DeepCopy()); err != nil {
			err = c.Client().Update(m.t.Context(), o)
		}
	}
	if strings.Contains(verb, "delete") {
		if strings.Contains(verb, "write") {
			time.Sleep(time.Duration(m.rnd.IntN(1000)) * time.Millisecond)
		}
		err = c.Client().Delete(m.t.Context(), o)
	}
	m.note("%s %s %s %s/%s: %v", verb, c.Key().Name, o.GetKind(), o.GetNamespace(), o.GetName(), err)
}

// toggle begins a fault, or ends it.
func (m *wayBack) toggle(what string, begin func() (heal func())) {
	if heal := m.heals[what]; heal != nil {
		m.note("heal %s", what)
		delete(m.heals, what)
		heal()
		return
	}
	m.note("%s", what)
	m.heals[what] = begin()
}

// fault lets requests for a resource fail.
func (m *wayBack) fault() {
	c := m.cluster()
	if c == nil {
		return
	}
	resource := pick(m, "configmaps", "nodes", "gadgets")
	code := pick(m, 403, 503, 503)
	verbs := pick(m, []string{"list", "watch"}, []string{"list", "watch", "get"}, []string{"watch"})
	m.toggle(fmt.Sprint(c.Key().Name, " answers ", verbs, " of ", resource, " with ", code), func() func() {
		return c.Fail(clustercachetest.Status(code),
			clustercachetest.Resource(resource), clustercachetest.Verb(verbs...))
	})
}

// reach breaks the network or the credentials of a cluster.
func (m *wayBack) reach() {
	c := m.cluster()
	if c == nil {
		return
	}
	switch fault := pick(m, "is down", "hangs", "knows no token", "is silent", "resets"); fault {
	case "is down":
		m.toggle(c.Key().Name+" "+fault, func() func() { c.Disconnect(); return c.Connect })
	case "hangs":
		m.toggle(c.Key().Name+" "+fault, func() func() { c.Hang(); return c.Connect })
	case "knows no token":
		m.toggle(c.Key().Name+" "+fault, func() func() { c.Revoke(); return c.Rotate })
	case "is silent":
		m.toggle(c.Key().Name+" "+fault, func() func() {
			c.SetStale(true)
			return func() { c.SetStale(false) }
		})
	default:
		m.note("%s %s", c.Key().Name, fault)
		c.Reset()
	}
}

// kind installs the kind Gadget without an object, or removes it.
func (m *wayBack) kind() {
	c := m.cluster()
	if c == nil {
		return
	}
	crd := gadgetDefinition()
	if err := c.Client().Create(m.t.Context(), crd); err != nil {
		m.note("%s serves Gadget no more: %v", c.Key().Name, c.Client().Delete(m.t.Context(), crd))
		return
	}
	m.note("%s serves Gadget", c.Key().Name)
}

// gadgetDefinition returns the CustomResourceDefinition of the kind Gadget.
func gadgetDefinition() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": "gadgets." + gadgets.Group},
		"spec": map[string]any{
			"group": gadgets.Group,
			"names": map[string]any{
				"kind":     gadgets.Kind,
				"listKind": "GadgetList",
				"plural":   "gadgets",
				"singular": "gadget",
			},
			"scope": "Namespaced",
			"versions": []any{map[string]any{
				"name":    gadgets.Version,
				"served":  true,
				"storage": true,
				"schema":  map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
}

// member removes a cluster, or adds it again.
func (m *wayBack) member() {
	name := pick(m, wayBackName...)
	c := m.fleet.Cluster(fleettest.Key(name))
	if c == nil {
		m.note("add %s", name)
		m.fleet.Add("fleet/" + name)
		return
	}
	m.note("remove %s", name)
	for what := range m.heals {
		if strings.HasPrefix(what, name+" ") {
			delete(m.heals, what)
		}
	}
	c.Remove()
}

// rewrite changes the history of a cluster.
func (m *wayBack) rewrite() {
	c := m.cluster()
	if c == nil {
		return
	}
	switch what := pick(m, "is compacted", "is another cluster", "is rolled back"); what {
	case "is compacted":
		m.note("%s %s", c.Key().Name, what)
		c.Compact()
		c.Reset()
	case "is another cluster":
		m.note("%s %s", c.Key().Name, what)
		c.NewEpoch(fleettest.ColoredConfigMap("x", "red"))
	default:
		before := c.Snapshot()
		m.object()
		m.object()
		m.note("%s %s", c.Key().Name, what)
		c.Rollback(before)
	}
}
