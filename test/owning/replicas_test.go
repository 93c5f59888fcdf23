// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package owning_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// group is a hub, its replicas, and the clusters that they share. Each replica
// copies the value of each ConfigMap to another field, which the clusters
// count.
type group struct {
	t        *testing.T
	hub      *rest.Config
	standbys int
	provider bool // the controllers are of a provider of multicluster-runtime
	d        *fleettest.Directory
	clusters []client.ObjectKey
	apis     []*fleettest.API

	mu       sync.Mutex // protects the fields below
	replicas map[string]*replica
	copied   map[string]int // by cluster, object and value
	wrong    []string       // writes that arrived from a replica that was not the owner
}

// replica is one process.
type replica struct {
	name     string
	sharding *sharding.Sharding
	cc       *clustercache.ClusterCache
	ready    healthz.Checker // of the manager, about the sharding
	stop     func()
	net      network
}

// network is that between a replica and the hub. It can be cut.
type network struct {
	next http.RoundTripper
	cut  chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-n.cut:
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	default:
		return n.next.RoundTrip(r)
	}
}

func newGroup(t *testing.T, clusters int) *group {
	t.Helper()
	server := fakeapi.New(fakeapi.Options{Identity: "hub"})
	g := &group{
		t:        t,
		hub:      &rest.Config{Host: "http://hub", Transport: server.Transport()},
		d:        fleettest.NewDirectory(),
		replicas: map[string]*replica{},
		copied:   map[string]int{},
	}
	for i := range clusters {
		key := fleettest.Key(fmt.Sprint("c", i))
		api := fleettest.NewAPI(t, "uid-"+key.Name)
		api.Put("one", "0", nil)
		api.Set(func(r *http.Request) http.HandlerFunc { return g.judge(key, r) })
		g.d.Set(key, api.Config())
		g.clusters, g.apis = append(g.clusters, key), append(g.apis, api)
	}
	return g
}

// judge notes writes that arrive from a replica that does not own the cluster.
func (g *group) judge(cluster client.ObjectKey, r *http.Request) http.HandlerFunc {
	if r.Method == http.MethodGet {
		return nil
	}
	name, _, _ := strings.Cut(r.UserAgent(), "/")
	g.mu.Lock()
	from := g.replicas[name]
	g.mu.Unlock()

	// A server sees the end of requests that it has read.
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	g.expectOwner(r.Context(), from, cluster, "write")
	return nil
}

// start starts a replica with the way into the hub of its own.
func (g *group) start(name string) *replica {
	g.t.Helper()
	r := &replica{name: name, net: network{next: g.hub.Transport, cut: make(chan struct{})}}
	hub := rest.CopyConfig(g.hub)
	hub.Transport = &r.net
	var err error
	r.sharding, err = sharding.New(hub, sharding.Options{
		Namespace: "default",
		Name:      "operator",
		Identity:  name,
		Slots:     32,
		Standbys:  g.standbys,
	})
	require.NoError(g.t, err)
	o := fleettest.Silent(g.d)
	o.Discover, o.Sharding, o.UserAgent, o.ResolveInterval = true, r.sharding, name, time.Minute
	o.GC.InUse = func(context.Context, clustercache.Owner) (bool, error) { return true, nil }
	mgr := fleettest.NewManager()
	r.cc, err = clustercache.SetupWithManager(mgr, o)
	require.NoError(g.t, err)
	r.ready = mgr.Readyz["fleetcache-sharding"]
	run := g.provided(r)
	if !g.provider {
		mgr := fleettest.NewManager()
		err = controller.NewControllerManagedBy(mgr, r.cc).For(&corev1.ConfigMap{}).
			Complete(func(c client.Client) reconcile.Reconciler { return &copier{g: g, r: r, c: c} })
		require.NoError(g.t, err)
		run = mgr.Added[0].Start
	}

	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.sharding.Start(ctx) })
	wg.Go(func() { _ = r.cc.Start(ctx) })
	wg.Go(func() { _ = run(ctx) })
	r.stop = func() { cancel(); wg.Wait() }
	g.t.Cleanup(r.stop) // goroutines that a failed test leaves behind would hide its message
	g.mu.Lock()
	g.replicas[name] = r
	g.mu.Unlock()

	return r
}

// copier copies the value of a ConfigMap.
type copier struct {
	g       *group
	r       *replica
	c       client.Client
	cluster client.ObjectKey // if the context does not name it
}

// Reconcile implements reconcile.Reconciler.
func (r *copier) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cluster, ok := controller.ClusterFromContext(ctx)
	if !ok {
		cluster = r.cluster
	}
	r.g.expectOwner(ctx, r.r, cluster, "request")
	m := &corev1.ConfigMap{}
	if err := r.c.Get(ctx, request.NamespacedName, m); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if m.Data["copy"] == m.Data["value"] {
		return reconcile.Result{}, nil
	}
	m.Data["copy"] = m.Data["value"]
	if err := r.c.Update(ctx, m); err != nil {
		return reconcile.Result{}, err
	}
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	r.g.copied[fmt.Sprint(cluster.Name, " ", m.Name, " ", m.Data["value"])]++
	return reconcile.Result{}, nil
}

// expectOwner notes what a replica does that does not own the cluster. What was
// begun before the ownership ended is canceled at once: the scheduler may have it
// arrive after that.
func (g *group) expectOwner(ctx context.Context, r *replica, cluster client.ObjectKey, what string) {
	if _, owned := r.sharding.Lease(cluster); owned {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(time.Millisecond):
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wrong = append(g.wrong, what+" of "+r.name+" "+cluster.Name)
}

// change gives the objects of all clusters a new value.
func (g *group) change(value int) {
	for _, api := range g.apis {
		o := api.Stored()["one"].DeepCopy()
		data, _ := o.Object["data"].(map[string]any)
		data["value"] = fmt.Sprint(value)
		require.NoError(g.t, api.Fake.Seed(o))
	}
}

// settled waits until every copy is up to date, and returns how long it took.
func (g *group) settled(within time.Duration) time.Duration {
	g.t.Helper()
	begin := time.Now()
	for {
		behind := 0
		for _, api := range g.apis {
			data, _ := api.Stored()["one"].Object["data"].(map[string]any)
			if data["copy"] != data["value"] {
				behind++
			}
		}
		took := time.Since(begin)
		if behind == 0 {
			return took
		}
		require.Less(g.t, took, within, "%d clusters are behind", behind)
		time.Sleep(50 * time.Millisecond)
	}
}

// verdict fails if a write came from a replica that was not the owner, or was
// made twice.
func (g *group) verdict() {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Empty(g.t, g.wrong)
	for change, times := range g.copied {
		require.Equal(g.t, 1, times, change)
	}
}

// lists returns how many lists and streamed lists of ConfigMaps were requested.
func (g *group) lists() int {
	n := 0
	for _, api := range g.apis {
		n += api.Count("stream /api/v1/configmaps") + api.Count("get /api/v1/configmaps")
	}
	return n
}

// TestEachChangeIsHandledByExactlyOneReplica has replicas join, leave, and lose
// the hub, while objects change in all clusters.
func TestEachChangeIsHandledByExactlyOneReplica(t *testing.T) { testEachChange(t, false) }

// TestEachChangeIsHandledByExactlyOneReplicaOfAProvider has controllers of
// multicluster-runtime: each replica has a manager with a provider of its own.
func TestEachChangeIsHandledByExactlyOneReplicaOfAProvider(t *testing.T) { testEachChange(t, true) }

func testEachChange(t *testing.T, provider bool) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 12)
		g.provider = provider
		a, b := g.start("operator-0"), g.start("operator-1")
		value := 0
		during := func(d time.Duration) {
			pause := d / time.Duration(repeat.Times(int(d/(70*time.Millisecond))))
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(pause) {
				value++
				g.change(value)
			}
		}
		during(20 * time.Second)
		require.Less(t, g.settled(time.Second), time.Second)
		g.verdict()

		c := g.start("operator-2")
		during(20 * time.Second)
		require.Less(t, g.settled(time.Second), time.Second)
		g.verdict()

		var stopping sync.WaitGroup
		stopping.Go(b.stop)
		during(5 * time.Second)
		stopping.Wait()
		require.Less(t, g.settled(time.Second), time.Second)
		g.verdict()

		close(a.net.cut) // it is taken for dead
		during(20 * time.Second)
		require.Less(t, g.settled(time.Second), time.Second)
		g.verdict()
		for _, key := range g.clusters {
			require.True(t, c.cc.Cluster(key).Owned())
			require.False(t, a.cc.Cluster(key).Owned())
		}
		a.stop()
		c.stop()
		synctest.Wait()
	})
}

// TestTakingOverFromAReplicaCostsNoList is for those that stand by.
func TestTakingOverFromAReplicaCostsNoList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 12)
		g.standbys = 1
		a, b := g.start("operator-0"), g.start("operator-1")
		time.Sleep(time.Minute)
		g.settled(time.Second)
		before := g.lists()
		require.Equal(t, 2*len(g.clusters), before, "each replica lists each cluster")

		a.stop()
		g.change(1)
		require.Less(t, g.settled(2*time.Second), 2*time.Second)
		require.Equal(t, before, g.lists())
		g.verdict()
		b.stop()
	})
}

// TestNothingIsWrittenWhileTheHubIsAway: reads go on.
func TestNothingIsWrittenWhileTheHubIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 4)
		a := g.start("operator-0")
		time.Sleep(20 * time.Second)
		g.settled(time.Second)
		close(a.net.cut)
		time.Sleep(11 * time.Second)
		g.change(1)
		time.Sleep(5 * time.Minute)
		for _, key := range g.clusters {
			m := &corev1.ConfigMap{}
			one := client.ObjectKey{Namespace: "default", Name: "one"}
			require.NoError(t, a.cc.Cluster(key).Reader().Get(t.Context(), one, m))
			require.Equal(t, "1", m.Data["value"])
			require.NotEqual(t, "1", m.Data["copy"])
		}
		a.stop()
		g.verdict()
	})
}
