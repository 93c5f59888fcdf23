// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

var (
	widgets        = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	capiClusters   = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1", Kind: "Cluster"}
	kustomizations = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
)

// remotes is a hub whose Secrets, in a namespace of the test's own, describe
// clusters as Cluster API's do.
type remotes struct {
	hub       *testenv.Cluster
	namespace string
	cc        *clustercache.ClusterCache
	stop      func()
}

func hubClient(t *testing.T, hub *testenv.Cluster) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(hub.Config(), client.Options{})
	require.NoError(t, err)
	return c
}

// newRemotes runs a ClusterCache for the clusters that are described in a new
// namespace, which is empty at first.
func newRemotes(t *testing.T, hub *testenv.Cluster, change ...func(*resolver.HubOptions)) *remotes {
	t.Helper()
	r := &remotes{hub: hub, namespace: namespace(t, hub)}
	o := resolver.HubOptions{Namespace: r.namespace, Grace: -1}
	for _, f := range change {
		f(&o)
	}
	found, err := resolver.ClusterAPI(hubClient(t, hub), o)
	require.NoError(t, err)
	r.cc, r.stop = run(t, resolved(t, found))
	return r
}

// resolved returns the options of the other tests, but with another resolver
// and a short grace period for access that disappears.
func resolved(t *testing.T, r resolver.Resolver) clustercache.Options {
	t.Helper()
	o := options(t, nil)
	o.Resolver, o.Discover, o.Grace, o.MetricsRegisterer = r, false, time.Second, prometheus.NewRegistry()
	return o
}

func (r *remotes) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: r.namespace, Name: name}
}

// secret returns the Secret that describes a cluster.
func (r *remotes) secret(name string, kubeconfig []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.namespace, Name: name + "-kubeconfig",
			Labels: map[string]string{"cluster.x-k8s.io/cluster-name": name},
		},
		Data: map[string][]byte{"value": kubeconfig},
	}
}

func (r *remotes) describe(t *testing.T, name string, kubeconfig []byte) {
	t.Helper()
	create(t, r.hub, r.secret(name, kubeconfig))
}

// unstructuredOf returns an empty object of a kind, with a namespace and a
// name.
func unstructuredOf(gvk schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// watchSynced watches a kind in a namespace of a cluster and waits until the
// watch has synced.
func watchSynced(t *testing.T, cc *clustercache.ClusterCache, cluster client.ObjectKey, kind client.Object,
	namespace string) *clustercache.Watch {
	t.Helper()
	w, err := cc.Cluster(cluster).Watch(t.Context(), kind, client.InNamespace(namespace))
	require.NoError(t, err)
	require.NoError(t, w.WaitForSync(t.Context()))
	return w
}

// readCached reads a ConfigMap only from the cache.
func readCached(t *testing.T, cc *clustercache.ClusterCache, cluster client.ObjectKey, namespace,
	name string) (*corev1.ConfigMap, error) {
	t.Helper()
	got := &corev1.ConfigMap{}
	err := cc.Cluster(cluster).Reader().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name},
		got, clustercache.CacheOnly)
	return got, err
}

// heard collects events of objects.
type heard struct {
	mu     sync.Mutex
	events []events.Object
}

// hear subscribes to the objects in one namespace until the test ends.
func hear(t *testing.T, cc *clustercache.ClusterCache, namespace string, kinds ...client.Object) *heard {
	t.Helper()
	h := &heard{}
	ctx, cancel := context.WithCancel(context.Background())
	seq, err := cc.ObjectEvents(ctx, events.Selection{Kinds: kinds})
	require.NoError(t, err)
	var done sync.WaitGroup
	done.Go(func() {
		for e := range seq {
			if e.Object().GetNamespace() == namespace {
				h.mu.Lock()
				h.events = append(h.events, e)
				h.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return h
}

// of returns the types of the events of one object, in order.
func (h *heard) of(cluster client.ObjectKey, gvk schema.GroupVersionKind, name string) []informerpool.EventType {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []informerpool.EventType
	for _, e := range h.events {
		if e.Cluster == cluster && e.GVK == gvk && e.Object().GetName() == name {
			out = append(out, e.Type)
		}
	}
	return out
}

// await waits until the last event of an object has the given type.
func (h *heard) await(t *testing.T, cluster client.ObjectKey, gvk schema.GroupVersionKind, name string,
	want informerpool.EventType) {
	t.Helper()
	eventually(t, string(want)+" of "+cluster.Name+" "+gvk.Kind+" "+name, func() bool {
		got := h.of(cluster, gvk, name)
		return len(got) > 0 && got[len(got)-1] == want
	})
}

// clusterEvents returns the events of clusters.
func clusterEvents(t *testing.T, cc *clustercache.ClusterCache) <-chan events.Cluster {
	t.Helper()
	out := make(chan events.Cluster, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for e := range cc.ClusterEvents(ctx) {
			out <- e
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return out
}

// next waits for a cluster's next event of the given type.
func next(t *testing.T, changes <-chan events.Cluster, cluster client.ObjectKey,
	want events.ClusterType) events.Cluster {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		select {
		case e := <-changes:
			if e.Cluster == cluster && e.Type == want {
				return e
			}
		case <-limit.C:
			require.FailNow(t, "event did not come", "%s of %s", want, cluster)
		}
	}
}

// received returns how many requests a server received from the test's
// ClusterCache.
func received(t *testing.T, c *testenv.Cluster) int {
	t.Helper()
	requests, err := c.Requests(testenv.UserAgent(userAgent(t)))
	require.NoError(t, err)
	return len(requests)
}

// failure returns the last error of a cluster.
func failure(cc *clustercache.ClusterCache, cluster client.ObjectKey) error {
	s, err := cc.Cluster(cluster).Status()
	return errors.Join(err, s.LastError)
}
