// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fleetcache/fleetcache/informerpool"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	east       = types.NamespacedName{Namespace: "fleet", Name: "east"}
)

// A pool reads and watches one kind of one cluster; the cluster is client-go's
// fake here.
func Example() {
	ctx, client := context.Background(), newFake("a", "b")
	pool, err := informerpool.New(informerpool.Options{
		Source: informerpool.FromDynamic(func(types.NamespacedName) (dynamic.Interface, error) {
			return client, nil
		}),
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = pool.Close(ctx) }()

	// The informer starts with its first lease, and ends after its last one.
	lease, err := pool.Acquire(ctx, informerpool.Key{Cluster: east, Resource: configMaps})
	if err != nil {
		panic(err)
	}
	defer lease.Release()
	if err := lease.WaitForSync(ctx); err != nil { // such as Forbidden
		panic(err)
	}

	configMap := &corev1.ConfigMap{}
	if err := lease.GetInto("default", "a", configMap); err != nil {
		panic(err)
	}
	fmt.Println(configMap.Name, configMap.Data["key"])
	// Output: a value
}

// A second lease on a key shares the informer of the first, and so does one on
// a narrower key.
func ExamplePool_Acquire() {
	ctx := context.Background()
	pool := newPool(newFake("a", "b"))
	defer func() { _ = pool.Close(ctx) }()

	all, err := pool.AcquireAs(ctx, "billing", informerpool.Key{Cluster: east, Resource: configMaps})
	if err != nil {
		panic(err)
	}
	defer all.Release()
	if err := all.WaitForSync(ctx); err != nil {
		panic(err)
	}
	some, err := pool.AcquireAs(ctx, "audit", informerpool.Key{
		Cluster:   east,
		Resource:  configMaps,
		Namespace: "default",
	})
	if err != nil {
		panic(err)
	}
	defer some.Release()

	for _, s := range pool.Status() {
		fmt.Println(s.Key, s.State, s.Objects, s.Owners)
	}
	// Output: fleet/east configmaps.v1 Synced 2 [audit billing]
}

// All iterates over objects without decoding them. Objects that the query does
// not select are skipped without being decoded, too.
func ExampleLease_All() {
	ctx := context.Background()
	pool := newPool(newFake("a", "b", "c"))
	defer func() { _ = pool.Close(ctx) }()
	lease, err := pool.Acquire(ctx, informerpool.Key{Cluster: east, Resource: configMaps})
	if err != nil {
		panic(err)
	}
	defer lease.Release()
	if err := lease.WaitForSync(ctx); err != nil {
		panic(err)
	}

	objects, err := lease.All(informerpool.Query{
		Namespace: "default",
		Labels:    labels.SelectorFromSet(labels.Set{"name": "b"}),
	})
	if err != nil {
		panic(err)
	}
	for o := range objects {
		fmt.Println(o.GetName(), o.GetLabels())
	}
	// Output: b map[name:b]
}

// An index finds objects by a value that a function computes once per state.
func ExampleLease_AddIndex() {
	ctx := context.Background()
	pool := newPool(newFake("web-1", "web-2", "db-1"))
	defer func() { _ = pool.Close(ctx) }()
	lease, err := pool.Acquire(ctx, informerpool.Key{Cluster: east, Resource: configMaps})
	if err != nil {
		panic(err)
	}
	defer lease.Release()
	if err := lease.WaitForSync(ctx); err != nil {
		panic(err)
	}

	err = lease.AddIndex("app", func(o *informerpool.Object) []string {
		app, _, _ := strings.Cut(o.GetName(), "-")
		return []string{app}
	})
	if err != nil {
		panic(err)
	}
	found, _, err := lease.List(informerpool.Query{Index: "app", Value: "web"})
	if err != nil {
		panic(err)
	}
	fmt.Println(len(found))
	// Output: 2
}

// A subscription delivers the objects of its leases, and then their changes,
// one event at a time.
func ExamplePool_Subscribe() {
	ctx, client := context.Background(), newFake("a")
	pool := newPool(client)
	defer func() { _ = pool.Close(ctx) }()
	events := make(chan informerpool.Event, 10)
	sub := pool.Subscribe(informerpool.HandlerFunc(func(e informerpool.Event) { events <- e }))
	lease, err := pool.Acquire(ctx, informerpool.Key{Cluster: east, Resource: configMaps})
	if err != nil {
		panic(err)
	}
	if err := sub.Add(lease); err != nil {
		panic(err)
	}
	fmt.Println((<-events).Type)

	// After Close, no call of the handler begins.
	defer func() { _ = sub.Close(ctx) }()
	err = client.Resource(configMaps).Namespace("default").Delete(ctx, "a", metav1.DeleteOptions{})
	if err != nil {
		panic(err)
	}
	e := <-events
	fmt.Println(e.Type, e.Object().GetName())
	// Output:
	// Added
	// Deleted a
}

// A handler that was written for client-go's informers works unchanged.
func ExampleResourceEventHandler() {
	ctx := context.Background()
	pool := newPool(newFake("a"))
	defer func() { _ = pool.Close(ctx) }()
	added := make(chan string, 1)
	sub := pool.Subscribe(informerpool.ResourceEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			key, _ := cache.MetaNamespaceKeyFunc(obj)
			added <- key
		},
	}))
	lease, err := pool.Acquire(ctx, informerpool.Key{Cluster: east, Resource: configMaps})
	if err != nil {
		panic(err)
	}
	if err := sub.Add(lease); err != nil {
		panic(err)
	}
	fmt.Println(<-added)
	// Output: default/a
}

// The shortest way to a single cluster. Pods are kept without their
// managedFields, for a minute after their last use.
func ExampleFromConfig() {
	config, err := rest.InClusterConfig()
	if err != nil {
		panic(err)
	}
	source, err := informerpool.FromConfig(config)
	if err != nil {
		panic(err)
	}
	pool, err := informerpool.New(informerpool.Options{
		Source:            source,
		Linger:            time.Minute,
		DropManagedFields: true,
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = pool.Close(context.Background()) }()
}

// A source of many clusters: connect names the endpoint of each. It is called
// for every request, so that it can return another client once a credential was
// replaced. The epoch identifies the cluster, such as by the uid of its
// namespace kube-system.
func ExampleFromREST() {
	endpoints := map[types.NamespacedName]informerpool.Endpoint{
		east: {
			Client: http.DefaultClient, // yours has the cluster's credentials
			URL:    "https://east.example.com:6443",
			Epoch:  "5d1c9a7e-6f0b-4f0e-9c53-0a2f5f6a1b11",
		},
	}
	source := informerpool.FromREST(func(
		_ context.Context, cluster types.NamespacedName,
	) (informerpool.Endpoint, error) {
		endpoint, ok := endpoints[cluster]
		if !ok {
			return endpoint, fmt.Errorf("cluster %s is not known", cluster)
		}
		return endpoint, nil
	})
	pool, err := informerpool.New(informerpool.Options{Source: source})
	if err != nil {
		panic(err)
	}
	defer func() { _ = pool.Close(context.Background()) }()
}

// Trust reports whether what a lease reads may be taken for the server's state;
// here, a watch may be away for half a minute.
func ExampleLease_Trust() {
	ctx := context.Background()
	pool := newPool(newFake("a"))
	defer func() { _ = pool.Close(ctx) }()
	lease, err := pool.Acquire(ctx, informerpool.Key{Cluster: east, Resource: configMaps})
	if err != nil {
		panic(err)
	}
	defer lease.Release()
	if err := lease.WaitForSync(ctx); err != nil {
		panic(err)
	}

	fmt.Println(lease.Trust(30 * time.Second))
	lease.Release()
	fmt.Println(lease.Trust(30 * time.Second))
	// Output:
	// <nil>
	// fleet/east configmaps.v1: lease released
}

func newPool(client dynamic.Interface) *informerpool.Pool {
	pool, err := informerpool.New(informerpool.Options{
		Source: informerpool.FromDynamic(func(types.NamespacedName) (dynamic.Interface, error) {
			return client, nil
		}),
	})
	if err != nil {
		panic(err)
	}
	return pool
}

// newFake returns a cluster with ConfigMaps of the given names.
func newFake(names ...string) dynamic.Interface {
	var objects []runtime.Object
	for _, name := range names {
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1",
			"kind":       "ConfigMap",
			"metadata": map[string]any{
				"namespace": "default",
				"name":      name,
				"labels":    map[string]any{"name": name},
			},
			"data": map[string]any{"key": "value"},
		}})
	}
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{configMaps: "ConfigMapList"}, objects...)
}
