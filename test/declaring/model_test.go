// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/directory"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

var (
	wayBackSeeds = flag.Int("wayback.seeds", 8, "how many seeds TestGuaranteeWayBack runs")
	wayBackSteps = flag.Int("wayback.steps", 120, "how many steps each seed takes")
	wayBackSeed  = flag.Uint64("wayback.seed", 1, "the first seed of TestGuaranteeWayBack")
)

// TestGuaranteeWayBack does random things to declarations, owners, objects,
// kinds, rights and clusters. At each quiet point, what the last Reconcile of
// each owner read is what a read returns now: the objects, the error, and
// whether the cache answers. At the end, when nothing is wrong any more, it is
// what the servers have. Nothing but a DeclarerSource, and a change of the owner
// itself, leads to a Reconcile; requests that failed on their way are repeated,
// as any controller does.
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
				m.requireTruth()
			})
		})
	}
}

// wayBack is the state of the test.
type wayBack struct {
	t       *testing.T
	rnd     *rand.Rand
	fleet   *clustercachetest.Fleet // the API servers
	places  *places
	at      map[string]*clustercachetest.Cluster // the server of each cluster that exists
	cc      *clustercache.ClusterCache
	queue   workqueue.TypedRateLimitingInterface[clustercache.Owner]
	heals   map[string]func() // by what is wrong
	added   int               // objects
	began   time.Time
	history []string // what was done

	mu       sync.Mutex // protects the fields below
	delays   *rand.Rand
	specs    map[clustercache.Owner][]need  // what each owner needs; nil: nothing is left to do
	recorded map[clustercache.Owner]reading // what its last Reconcile has read
	objects  map[string]life                // of the hub: the owners, by name
	hub      string                         // how it answers whether owners exist
	runs     int                            // of a reconciler
	running  bool                           // one of them
}

// need is a target, and how it is read.
type need struct {
	clustercache.Target

	form string // list, list metadata, or get
	name string // for get
}

// life is the state of an object of the hub.
type life string

const (
	absent   life = ""
	exists   life = "exists"
	deleting life = "deleting" // it has a finalizer for each of its controllers
)

// reading is what a Reconcile has read, and the watches that it relies on.
type reading struct {
	answers []answer
	watches []string // that the owner declares, with the reason for which the cache does not answer
}

// answer is the answer to a read of one cluster.
type answer struct {
	read    string
	objects string // with their versions
	reason  string // of the error
	cached  bool
	waits   bool // for an event of the library
	watched bool // the watch of the target answers
}

// places says which API server each cluster is, and with which labels.
type places struct {
	*directory.Directory

	mu     sync.Mutex // protects labels
	labels map[string]map[string]string
}

// Resolve implements resolver.Resolver.
func (p *places) Resolve(ctx context.Context, key client.ObjectKey) (resolver.Access, error) {
	access, err := p.Directory.Resolve(ctx, key)
	p.mu.Lock()
	defer p.mu.Unlock()
	return access.WithLabels(p.labels[key.Name]), err
}

var (
	nodes    = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	clusters = []string{"a", "b"}
	servers  = []string{"first", "second", "third"}
	prod     = labels.Set{"env": "prod"}
	owners   = []clustercache.Owner{ownerOf("one"), ownerOf("one", "other"), ownerOf("two"), ownerOf("three")}
)

func ownerOf(name string, controller ...string) clustercache.Owner {
	owner := fleettest.Owner(name)
	owner.Controller = strings.Join(controller, "")
	return owner
}

func newWayBack(t *testing.T, seed uint64) *wayBack {
	t.Helper()
	m := &wayBack{
		t:        t,
		rnd:      rand.New(rand.NewPCG(seed, 0)),
		fleet:    clustercachetest.New(t, clustercachetest.Options{}),
		places:   &places{Directory: directory.New(), labels: map[string]map[string]string{}},
		at:       map[string]*clustercachetest.Cluster{},
		queue:    fleettest.QueueOf[clustercache.Owner](t),
		heals:    map[string]func(){},
		began:    time.Now(),
		delays:   rand.New(rand.NewPCG(seed, 1)),
		specs:    map[clustercache.Owner][]need{},
		recorded: map[clustercache.Owner]reading{},
		objects:  map[string]life{},
	}
	for _, name := range servers {
		m.fleet.Add(name)
	}
	for i, name := range clusters {
		m.move(name, m.server(servers[i]))
	}
	m.cc = fleettest.Start(t, clustercache.Options{
		Resolver: m.places,
		Discover: true,
		QPS:      -1,
		GC:       clustercache.GC{InUse: m.inUse},
	})
	for _, name := range []string{"", "other"} {
		m.control(name)
	}
	var worker sync.WaitGroup
	worker.Go(m.work) // one: controller-runtime's client locks a mutex while it reads discovery
	t.Cleanup(func() {
		m.queue.ShutDown()
		worker.Wait()
		if t.Failed() {
			t.Log(strings.Join(m.history, "\n"))
		}
	})

	return m
}

// control calls the owners of a controller.
func (m *wayBack) control(name string) {
	called := controller.EnqueueDeclarer(fleettest.Owner("").GVK, name)
	mapping := func(ctx context.Context, o clustercache.Owner) (requests []clustercache.Owner) {
		for _, r := range called(ctx, o) {
			requests = append(requests, ownerOf(r.Name, name))
		}
		return requests
	}
	s := controller.DeclarerSource(m.cc, mapping)
	require.NoError(m.t, s.Start(m.t.Context(), m.queue))
	m.t.Cleanup(func() { require.NoError(m.t, s.Close(context.Background())) })
}

// move lets a cluster be at a server.
func (m *wayBack) move(cluster string, to *clustercachetest.Cluster) {
	m.at[cluster] = to
	m.places.Set(fleettest.Key(cluster), to.Config)
}

func (m *wayBack) server(name string) *clustercachetest.Cluster {
	return m.fleet.Cluster(client.ObjectKey{Name: name})
}

// inUse is what the hub answers.
func (m *wayBack) inUse(_ context.Context, owner clustercache.Owner) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.hub {
	case "fails":
		return false, errors.New("the hub fails")
	case "lacks " + owner.Name:
		return false, nil
	}
	return m.objects[owner.Name] != absent, nil
}

func (m *wayBack) work() {
	for {
		owner, shutdown := m.queue.Get()
		if shutdown {
			return
		}
		m.mu.Lock()
		m.runs++
		m.running = true
		m.mu.Unlock()
		m.reconcile(owner)
		m.queue.Done(owner)
		m.mu.Lock()
		m.running = false
		m.mu.Unlock()
	}
}

// reconcile declares what an owner needs and reads it, in any order, in one
// step or two, and as slow as a reconciler may be. An owner that is being
// deleted waits until nothing is left of what it needs.
func (m *wayBack) reconcile(owner clustercache.Owner) {
	m.mu.Lock()
	spec, state := m.specs[owner], m.objects[owner.Name]
	before, pause := m.delays.IntN(3) == 0, time.Duration(m.delays.IntN(2)*m.delays.IntN(2000))*time.Millisecond
	first := m.delays.IntN(6) // what it does before it declares
	m.mu.Unlock()

	if spec == nil || state == absent {
		m.finish(owner)
		return
	}
	var now reading
	var errs error
	if before {
		now.answers, errs = m.read(owner, spec)
		time.Sleep(pause)
	}
	switch first {
	case 0:
		m.cc.Drop(owner)
		time.Sleep(pause)
	case 1:
		m.declare(owner, spec[len(spec)/2:])
		time.Sleep(pause)
	}
	m.declare(owner, spec)
	now.watches = m.watches(owner)
	if !before {
		now.answers, errs = m.read(owner, spec)
		time.Sleep(pause)
	}
	if state == deleting && !slices.ContainsFunc(now.answers, answer.left) {
		m.finish(owner)
		return
	}
	m.mu.Lock()
	m.recorded[owner] = now
	m.mu.Unlock()
	if errs != nil {
		m.queue.AddAfter(owner, 10*time.Second)
	}
}

func (m *wayBack) declare(owner clustercache.Owner, spec []need) {
	var targets []clustercache.Target
	for _, n := range spec {
		targets = append(targets, n.Target)
	}
	if _, err := m.cc.Declare(context.Background(), owner, targets...); err != nil {
		m.t.Errorf("declare %s: %v", owner, err)
	}
}

// finish ends an owner, and its object with the last finalizer.
func (m *wayBack) finish(owner clustercache.Owner) {
	m.cc.Drop(owner)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.specs[owner], m.recorded[owner] = nil, reading{}
	waits := slices.ContainsFunc(owners, func(o clustercache.Owner) bool {
		return o.Name == owner.Name && m.specs[o] != nil
	})
	if m.objects[owner.Name] == deleting && !waits {
		m.objects[owner.Name] = absent
	}
}

// left reports whether there may be an object.
func (a answer) left() bool { return a.objects != "" || a.reason != "" && a.reason != "NotFound" }

// read reads each target. The error is that of a request which failed on its
// way: any reconciler returns such errors.
func (m *wayBack) read(owner clustercache.Owner, spec []need) (answers []answer, errs error) {
	for _, n := range spec {
		for _, cluster := range m.selected(n.Target) {
			a, err := m.readOne(cluster, n)
			a.watched = !slices.ContainsFunc(m.cc.Declared(owner), func(u clustercache.Use) bool {
				return u.Key.Cluster == cluster && u.Key.GVK == n.Kind.GetObjectKind().GroupVersionKind() && !u.Synced
			})
			var status apierrors.APIStatus
			if err != nil && !clustercache.IsWaiting(err) && !meta.IsNoMatchError(err) && !errors.As(err, &status) {
				errs = errors.Join(errs, err)
			}
			answers = append(answers, a)
		}
	}
	return answers, errs
}

// watches returns the state of what an owner declares: whether the cache
// answers, or else what forbids it.
func (m *wayBack) watches(owner clustercache.Owner) (states []string) {
	for _, u := range m.cc.Declared(owner) {
		state := "answers"
		if !u.Synced {
			state = "does not answer"
		}
		if reason := clustercache.ReasonOf(u.LastError); !u.Synced && (reason == "Forbidden" || reason == "NotServed") {
			state = reason
		}
		states = append(states, u.Key.String()+": "+state)
	}
	return states
}

// selected returns the clusters of a target.
func (m *wayBack) selected(target clustercache.Target) (keys []client.ObjectKey) {
	if target.ClusterSelector == nil {
		return []client.ObjectKey{target.Cluster}
	}
	for _, key := range m.cc.Clusters() {
		if has, known := m.cc.Cluster(key).Labels(); known && target.ClusterSelector.Matches(labels.Set(has)) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (m *wayBack) readOne(cluster client.ObjectKey, n need) (answer, error) {
	gvk := n.Kind.GetObjectKind().GroupVersionKind()
	origin, lo := clustercache.Origin{}, client.ListOptions{}
	lo.ApplyOptions(n.Options)
	var found []client.Object
	var err error
	switch n.form {
	case "get":
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(gvk)
		key := client.ObjectKey{Namespace: lo.Namespace, Name: n.name}
		if err = m.cc.Cluster(cluster).Reader().Get(context.Background(), key, o, &origin); err == nil {
			found = append(found, o)
		}
	case "list metadata":
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		err = m.cc.Cluster(cluster).Reader().List(context.Background(), list,
			append(slices.Clone(n.Options), &origin)...)
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	default:
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		err = m.cc.Cluster(cluster).Reader().List(context.Background(), list,
			append(slices.Clone(n.Options), &origin)...)
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	}

	var objects []string
	for _, o := range found {
		objects = append(objects, nameOf(o))
	}
	slices.Sort(objects)
	return answer{
		read:    n.String() + " in " + cluster.Name,
		objects: strings.Join(objects, " "),
		reason:  clustercache.ReasonOf(err),
		waits:   clustercache.IsWaiting(err) || meta.IsNoMatchError(err),
		cached:  origin.Cached && (err == nil || apierrors.IsNotFound(err)),
	}, err
}

// nameOf returns the name of an object with its version.
func nameOf(o client.Object) string {
	return fmt.Sprintf("%s/%s@%s/%s", o.GetNamespace(), o.GetName(), o.GetResourceVersion(), o.GetUID())
}

// String names the read.
func (n need) String() string {
	kind := n.Kind.GetObjectKind().GroupVersionKind().Kind
	return fmt.Sprint(n.form, " ", n.Cluster.Name, n.ClusterSelector, " ", kind, n.Options)
}

// settle lets nothing be done for 20 minutes, and compares. The hub answers
// rightly again: an owner that is given up and exists would be called for ever.
func (m *wayBack) settle() {
	m.t.Helper()
	m.doubtAs("")
	time.Sleep(20 * time.Minute)
	for _, owner := range owners {
		for !m.compare(owner) { // a cache that is trusted now and then, and a server that is slow to refuse
			time.Sleep(time.Second)
		}
	}
}

// specLocked returns what an owner needs, or nil if it does not exist any more.
func (m *wayBack) specLocked(owner clustercache.Owner) []need {
	if m.objects[owner.Name] == absent {
		return nil
	}
	return m.specs[owner]
}

// compare compares what an owner has read with what is read now. It reports
// false if an owner is called meanwhile, which may be this one. What the server
// answers because the watch of the target does not is not compared, but why that
// does not: no stream has events of it until the cache is trusted again.
func (m *wayBack) compare(owner clustercache.Owner) bool {
	m.t.Helper()
	synctest.Wait()
	m.mu.Lock()
	spec, runs := m.specLocked(owner), m.runs
	m.mu.Unlock()

	now, _ := m.read(owner, spec)
	watches := m.watches(owner)
	synctest.Wait()
	m.mu.Lock()
	recorded := m.recorded[owner] // not before: a run that had begun records what it read only at its end
	ended := spec != nil && m.specLocked(owner) == nil
	quiet := m.runs == runs && !m.running && m.queue.Len() == 0 && !ended
	m.mu.Unlock()
	if !quiet {
		return false
	}

	at := fmt.Sprintf("%s at %v", owner, time.Since(m.began))
	if spec == nil {
		require.Empty(m.t, watches, at)
		return true
	}
	require.Equal(m.t, watches, recorded.watches, at)
	require.Len(m.t, recorded.answers, len(now), at)
	for i, want := range now {
		got := recorded.answers[i]
		got.watched = want.watched
		if !want.watched || !want.cached {
			got.cached = want.cached // another watch answers now and then, or contradicts
		}
		if !want.cached && !want.waits && !want.watched {
			continue
		}
		require.Equal(m.t, want, got, "%s: want what is read now", at)
	}
	return true
}
