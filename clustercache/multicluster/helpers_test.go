// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// directory is a resolver controlled by a test. Unlike that of clustercachetest
// it can move a cluster to another server, and remove a cluster whose server
// keeps running, so that watches that are wrongly kept still receive events and
// are noticed.
type directory struct {
	mu      sync.Mutex
	configs map[client.ObjectKey]*rest.Config
	news    chan client.ObjectKey
}

func newDirectory() *directory {
	return &directory{configs: map[client.ObjectKey]*rest.Config{}, news: make(chan client.ObjectKey, 1000)}
}

// set makes a cluster reachable, or nonexistent if config is nil.
func (d *directory) set(key client.ObjectKey, config *rest.Config) {
	d.mu.Lock()
	if d.configs[key] = config; config == nil {
		delete(d.configs, key)
	}
	d.mu.Unlock()
	d.news <- key
}

func (d *directory) Resolve(_ context.Context, key client.ObjectKey) (resolver.Access, error) {
	d.mu.Lock()
	config := d.configs[key]
	d.mu.Unlock()
	if config == nil {
		return resolver.Access{}, resolver.ErrClusterNotFound
	}
	return resolver.NewAccess(config)
}

func (d *directory) Notify(ctx context.Context, changed func(client.ObjectKey)) error {
	for {
		select {
		case key := <-d.news:
			changed(key)
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *directory) Clusters(context.Context) ([]client.ObjectKey, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.configs)), nil
}

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: "fleet", Name: name} }

// next returns the next value of a channel, within a virtual day: a bubble in
// which clusters are probed never ends by itself.
func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	limit := time.NewTimer(24 * time.Hour)
	defer limit.Stop()
	select {
	case v := <-from:
		return v
	case <-limit.C:
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// apiServer is a fake cluster, named by a directory.
type apiServer struct {
	*clustercachetest.Cluster

	in string // the content of its ConfigMaps
}

// serve starts a server. Several servers may have the same name.
func serve(servers *clustercachetest.Fleet, in string) *apiServer {
	name := in
	for n := 2; servers.Cluster(client.ObjectKey{Name: name}) != nil; n++ {
		name = fmt.Sprint(in, "-", n)
	}
	return &apiServer{Cluster: servers.Add(name), in: in}
}

func (s *apiServer) configMap(name, value string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
		Data:       map[string]string{"value": value, "in": s.in},
	}
}

// put creates or updates a ConfigMap.
func (s *apiServer) put(name, value string) { s.Store(s.configMap(name, value, nil)) }

// remove deletes a ConfigMap.
func (s *apiServer) remove(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, s.Client().Delete(t.Context(), s.configMap(name, "", nil)))
}

// streams returns how many watches of all ConfigMaps began with a list.
func (s *apiServer) streams() int {
	return len(s.Requests(clustercachetest.Verb("watch"), allConfigMaps,
		func(r clustercachetest.Request) bool { return r.Initial }))
}

// allConfigMaps matches requests for the ConfigMaps of all namespaces, as
// informers make.
func allConfigMaps(r clustercachetest.Request) bool {
	return r.Resource == "configmaps" && r.Namespace == ""
}

// fleet is a running ClusterCache over a directory, with its clusters.
type fleet struct {
	*multicluster.Clusters

	t       *testing.T
	cc      *clustercache.ClusterCache
	d       *directory
	servers *clustercachetest.Fleet
	apis    map[string]*apiServer
}

func newFleet(t *testing.T, o multicluster.Options, edits ...func(*clustercache.Options)) *fleet {
	t.Helper()
	d := newDirectory()
	options := clustercache.Options{Resolver: d, Discover: true}
	for _, edit := range edits {
		edit(&options)
	}
	cc, err := clustercache.New(options)
	require.NoError(t, err)
	fleettest.Run(t, cc)
	return &fleet{
		Clusters: multicluster.New(cc, o), t: t, cc: cc,
		d: d, servers: clustercachetest.New(t, clustercachetest.Options{}),
		apis: map[string]*apiServer{},
	}
}

// add makes a cluster with the objects one and two.
func (f *fleet) add(name string) *apiServer {
	f.t.Helper()
	api := serve(f.servers, "uid-"+name)
	api.Store(api.configMap("one", "1", map[string]string{"app": "x"}))
	api.put("two", "2")
	f.apis[name] = api
	f.d.set(key(name), api.Config())
	return api
}

func (f *fleet) cluster(name string) cluster.Cluster {
	f.t.Helper()
	cl, err := f.Cluster(key(name))
	require.NoError(f.t, err)
	return cl
}

// watches returns the number of watches and of informers in a cluster.
func (f *fleet) watches(name string) (watches, informers int) {
	f.t.Helper()
	s, err := f.cc.Cluster(key(name)).Status()
	require.NoError(f.t, err)
	return s.Watches, s.Informers
}

// one runs a test in a bubble with one connected cluster, a.
func one(t *testing.T, o multicluster.Options, test func(t *testing.T, f *fleet, api *apiServer, cl cluster.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, o)
		api := f.add("a")
		cl := f.cluster("a")
		time.Sleep(time.Second)
		test(t, f, api, cl)
	})
}

// record is a handler that records its events.
type record struct {
	mu     sync.Mutex
	events []string
	types  map[string]bool
}

func (r *record) add(what string, obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj, what = gone.Obj, what+" unknown "+gone.Key
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.types == nil {
		r.types = map[string]bool{}
	}
	r.types[fmt.Sprintf("%T", obj)] = true
	r.events = append(r.events, what+" "+obj.(client.Object).GetName())
}

// take returns the events since the last call, sorted.
func (r *record) take() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	slices.Sort(events)
	return events
}

func (r *record) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if initial {
				r.add("initial", obj)
			} else {
				r.add("add", obj)
			}
		},
		UpdateFunc: func(before, after any) {
			if before.(client.Object).GetResourceVersion() == after.(client.Object).GetResourceVersion() {
				r.add("resync", after)
				return
			}
			r.add("update", after)
		},
		DeleteFunc: func(obj any) { r.add("delete", obj) },
	}
}
