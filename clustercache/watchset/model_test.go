// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/watchset"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

var (
	modelSeeds = flag.Int("seeds", 24, "how many seeds the model test runs, and a fifth of them with -short")
	modelFirst = flag.Uint64("seed", 1, "the first seed of the model test")
)

// TestModel replaces the content of a set at random, while objects change,
// clusters disconnect and the handler fails and dawdles. Whenever all is quiet,
// what the handler has accepted of each entry is what the servers have.
func TestModel(t *testing.T) {
	seeds := uint64(repeat.Times(*modelSeeds)) //nolint:gosec // a small number
	for seed := *modelFirst; seed < *modelFirst+seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runModel(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

// object identifies an object as an entry delivers it.
type object struct {
	entry, cluster, kind, name string
}

// model is the handler of the test, with what it knows.
type model struct {
	*fleet

	rand *rand.Rand // of the test's goroutine
	set  *watchset.Set
	left bool

	mu      sync.Mutex // protects the fields below
	chaos   *rand.Rand // of the handler; nil if it neither fails nor dawdles
	content entries
	gone    map[string]bool // entries whose removal has returned
	has     map[object]*informerpool.Object
	tried   map[object]bool // the handler received it, and failed
	perhaps map[object]bool // in has, and perhaps forgotten without an event
	busy    map[object]bool
	faults  []string
}

func runModel(t *testing.T, r *rand.Rand) {
	m := &model{
		fleet:   newFleet(t),
		rand:    r,
		left:    r.IntN(2) == 0,
		content: entries{},
		gone:    map[string]bool{},
		has:     map[object]*informerpool.Object{},
		tried:   map[object]bool{},
		perhaps: map[object]bool{},
		busy:    map[object]bool{},
	}
	m.set = m.newSet(watchset.Options{
		Handle:      m.handle,
		DeliverLeft: m.left,
		Concurrency: 1 + r.IntN(3),
	})
	for range 8 {
		m.mu.Lock()
		m.chaos = rand.New(rand.NewPCG(r.Uint64(), 0))
		m.mu.Unlock()
		for range 12 {
			m.step()
		}
		m.check()
	}
}

func (m *model) handle(ctx context.Context, e watchset.Event) error {
	o := object{entry: e.Entry, cluster: e.Cluster.Name, kind: e.GVK.Kind, name: e.Object().GetName()}
	m.mu.Lock()
	m.begin(o, e)
	if m.left && m.gone[e.Entry] && ctx.Err() != nil {
		m.faults = append(m.faults, "what left is delivered with a context that has ended: "+line(e))
	}
	var dawdle time.Duration
	fail := false
	if m.chaos != nil {
		dawdle, fail = time.Duration(m.chaos.IntN(3))*time.Second, m.chaos.IntN(4) == 0
	}
	m.mu.Unlock()

	select {
	case <-time.After(dawdle):
	case <-ctx.Done():
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.busy, o)
	if fail {
		m.tried[o] = true
		return errors.New("not now")
	}
	delete(m.tried, o)
	delete(m.perhaps, o)
	if m.has[o] = e.New; e.New == nil {
		delete(m.has, o)
	} else if !m.left && !m.selects(o, e.New, m.content) {
		m.perhaps[o] = true // the entry was changed meanwhile
	}
	return nil
}

// begin checks what must hold whenever the handler is called.
func (m *model) begin(o object, e watchset.Event) {
	fault := func(text string) { m.faults = append(m.faults, fmt.Sprint(text, ": ", line(e))) }
	if m.busy[o] {
		fault("two calls for one object")
	}
	m.busy[o] = true
	if m.gone[e.Entry] && (!m.left || e.Type != informerpool.Deleted) {
		fault("delivered after the entry was removed")
	}
	if e.Left && !m.left {
		fault("left was not asked for")
	}
	if !m.left {
		return // the handler is not notified of all that it should forget
	}
	known := m.has[o]
	switch {
	case e.Type == informerpool.Added && known != nil:
		fault("added twice")
	case e.Type == informerpool.Updated && known != e.Old:
		fault("updated from another state")
	case e.Type == informerpool.Deleted && known == nil && !m.tried[o]:
		fault("deleted, and never delivered")
	}
}

// step does something at random.
func (m *model) step() {
	cluster := m.a
	if m.rand.IntN(2) == 0 {
		cluster = m.b
	}
	switch m.rand.IntN(10) {
	case 0, 1, 2:
		m.replaceAtRandom()
	case 3:
		cluster.Disconnect()
	case 4:
		cluster.Connect()
	case 5:
		time.Sleep(time.Duration(m.rand.IntN(20)) * time.Second)
	default:
		m.change(cluster)
	}
	if m.rand.IntN(3) == 0 {
		synctest.Wait()
	}
}

// change writes or deletes an object.
func (m *model) change(c *clustercachetest.Cluster) {
	meta := metav1.ObjectMeta{
		Namespace: "default",
		Name:      fmt.Sprint("o", m.rand.IntN(5)),
		Labels:    map[string]string{"app": []string{"x", "y", "z"}[m.rand.IntN(3)]},
	}
	var o client.Object = &corev1.ConfigMap{ObjectMeta: meta}
	if m.rand.IntN(3) == 0 {
		o = &corev1.Secret{ObjectMeta: meta}
	}
	ctx := m.t.Context()
	err := c.Client().Delete(ctx, o)
	if m.rand.IntN(3) > 0 {
		if err != nil || m.rand.IntN(2) == 0 {
			err = c.Client().Create(ctx, o)
		}
		o.SetAnnotations(map[string]string{"n": fmt.Sprint(m.rand.Int())})
		o.SetResourceVersion("")
		if err == nil {
			err = c.Client().Update(ctx, o)
		}
	}
	require.NoError(m.t, client.IgnoreNotFound(err))
}

// replaceAtRandom changes some of the entries.
func (m *model) replaceAtRandom() {
	next := maps.Clone(m.content)
	for range m.rand.IntN(4) {
		name := fmt.Sprint("e", m.rand.IntN(4))
		if m.rand.IntN(3) == 0 {
			delete(next, name)
			continue
		}
		e := of([]string{"a", "b"}[m.rand.IntN(2)], []string{"", "app=x", "app in (x,y)", "app!=x"}[m.rand.IntN(4)])
		if old, ok := next[name]; ok && m.rand.IntN(2) == 0 {
			e.Cluster, e.GVK = old.Cluster, old.GVK // narrowed differently, and nothing else
		} else if m.rand.IntN(3) == 0 {
			e.GVK = secrets
		}
		next[name] = e
	}
	m.mu.Lock()
	for name := range next {
		delete(m.gone, name)
	}
	m.mu.Unlock()

	change, err := m.set.Replace(m.t.Context(), next)
	require.NoError(m.t, err)

	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range change.Removed {
		m.gone[name] = true
	}
	for o, known := range m.has {
		now, exists := next[o.entry]
		switch {
		case m.left:
		case !exists || now.Cluster.Name != o.cluster || now.GVK.Kind != o.kind:
			delete(m.has, o) // forgotten without an event
		case !m.selects(o, known, next):
			m.perhaps[o] = true
		}
	}
	m.content = next
}

// check compares what the handler has with the servers, once all is quiet.
func (m *model) check() {
	m.mu.Lock()
	m.chaos = nil
	m.mu.Unlock()
	m.a.Connect()
	m.b.Connect()
	time.Sleep(5 * time.Minute)
	synctest.Wait()

	before := m.requests()
	change, err := m.set.Replace(m.t.Context(), m.content)
	require.NoError(m.t, err)
	require.Zero(m.t, change)
	synctest.Wait()
	require.Equal(m.t, before, m.requests(), "requests for entries that are unchanged")

	m.mu.Lock()
	defer m.mu.Unlock()
	require.Empty(m.t, m.faults)
	want, got := map[object]string{}, map[object]string{}
	for name, e := range m.content {
		for o, version := range m.stored(e) {
			o.entry = name
			want[o] = version
		}
	}
	for o, known := range m.has {
		if _, exists := want[o]; exists || !m.perhaps[o] {
			got[o] = known.GetResourceVersion()
		}
	}
	require.Equal(m.t, want, got)
}

// selects reports whether the entry of an object selects it.
func (m *model) selects(o object, known *informerpool.Object, in entries) bool {
	selector, err := labels.Parse(in[o.entry].LabelSelector)
	require.NoError(m.t, err)
	return selector.Matches(labels.Set(known.GetLabels()))
}

// stored returns the versions of the objects that a cluster has for an entry.
func (m *model) stored(e watchset.Entry) map[object]string {
	var list client.ObjectList = &corev1.ConfigMapList{}
	if e.GVK == secrets {
		list = &corev1.SecretList{}
	}
	selector, err := labels.Parse(e.LabelSelector)
	require.NoError(m.t, err)
	c := m.Cluster(e.Cluster).Client()
	require.NoError(m.t, c.List(m.t.Context(), list, client.MatchingLabelsSelector{Selector: selector}))

	versions := map[object]string{}
	require.NoError(m.t, meta.EachListItem(list, func(item runtime.Object) error {
		o := item.(client.Object)
		versions[object{cluster: e.Cluster.Name, kind: e.GVK.Kind, name: o.GetName()}] = o.GetResourceVersion()
		return nil
	}))
	return versions
}
