// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

var (
	configMaps  = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	deployments = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
)

// TestControllers proves what controllers that share streams need (001), and
// what an engine needs whose sources change while it runs (004). It is not
// parallel, because one of its tests counts the remaining goroutines.
func TestControllers(t *testing.T) {
	clusters := testenv.Start(t, 2)
	for _, b := range []struct {
		name  string
		prove func(t *testing.T, east, west *testenv.Cluster)
	}{
		{"001.1 root, owned and watched objects are mapping functions", rootOwnedAndWatched},
		{"001.2 one informer serves all controllers and each has every event", oneInformerForAllControllers},
		{"001.3 late subscriber is told of everything, without a gap", lateSubscriber},
		{"001.4 slow subscriber holds back nobody and is bounded", slowSubscriber},
		{"001.5 burst is at most two deliveries and its last state is seen", burst},
		{"001.6 one key or all keys are triggered by hand", trigger},
		{"001.7 one key is never handled twice at once, different ones are", concurrency},
		{"001.8 of two delays the earliest wins", earliestWins},
		{"001.9 whoever is told of an object finds it in the cache", toldIsFound},
		{"001.10 watch errors are shown, retried with back-off, and heal", watchErrors},
		{"001.12 stop waits for the running call up to a deadline, and none begins after", gracefulShutdown},
		{"001.13 who waits for readiness gets an error when the informer is dropped", waitersAreReleased},
		{"001.14 controllers are loaded and unloaded, and the last takes the informer along", loadAndUnload},
		{"004.8 a pause keeps the cache", pauseKeepsCache},
		{"004.9 everything is delivered once more from time to time", periodicResync},
		{"004.10 mapping functions are swapped while running, and the end leaves nothing", swapAndEnd},
		{"004.11 a delete carries the last known state", deleteCarriesState},
		{"001.11 after an outage only what is gone is deleted", relistAfterOutage}, // restarts a server: last
	} {
		t.Run(b.name, func(t *testing.T) { b.prove(t, clusters[0], clusters[1]) })
	}
}

func both(east, west *testenv.Cluster) map[string]*rest.Config {
	return map[string]*rest.Config{"east": east.Config(), "west": west.Config()}
}

func in(cluster string, gvk schema.GroupVersionKind, namespace, name string) Request {
	return Request{Cluster: key(cluster), GVK: gvk, ObjectKey: client.ObjectKey{Namespace: namespace, Name: name}}
}

func rootOwnedAndWatched(t *testing.T, east, west *testenv.Cluster) {
	ns := namespace(t, east, west)
	cc, _ := run(t, options(t, both(east, west)))
	seen := newJournal()
	control(t, seen, 1,
		controller.ObjectSource(cc, selection(ns, &appsv1.Deployment{}), controller.EnqueueObject),
		controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}), controller.EnqueueOwner(deployments)),
		controller.ObjectSource(cc, selection(ns, &corev1.Secret{}), func(_ context.Context, cluster client.ObjectKey,
			o client.Object) []Request {
			return []Request{{Cluster: cluster, GVK: deployments,
				ObjectKey: client.ObjectKey{Namespace: ns, Name: o.GetLabels()["for"]}}}
		}))
	web, api := in("east", deployments, ns, "web"), in("east", deployments, ns, "api")
	for _, r := range []Request{web, api} {
		labels := map[string]string{"app": r.Name}
		seen.after(t, func() {
			create(t, east, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
				Name: r.Name}, Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				},
			}})
		}, r)
	}
	owned := configMap(ns, "owned", "1")
	ownedBy := func(name string) {
		owned.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1beta1", Kind: "Deployment", Name: name, UID: "u"},
			{APIVersion: "v1", Kind: "Deployment", Name: "foreign", UID: "v"},
		}
	}
	ownedBy("web")
	seen.after(t, func() { create(t, east, owned) }, web)
	ownedBy("api")
	seen.after(t, func() { update(t, east, owned) }, web, api)
	seen.after(t, func() { require.NoError(t, east.Client().Delete(t.Context(), owned)) }, api)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "s",
		Labels: map[string]string{"for": "web"}}}
	seen.after(t, func() { create(t, east, secret.DeepCopy()) }, web)
	seen.after(t, func() { create(t, west, secret) }, in("west", deployments, ns, "web"))
	require.Zero(t, seen.count(in("east", deployments, ns, "foreign")))
}

func oneInformerForAllControllers(t *testing.T, east, west *testenv.Cluster) {
	ns := namespace(t, east, west)
	cc, _ := run(t, options(t, both(east, west)))
	forms := []client.Object{
		&corev1.ConfigMap{}, clustercache.Kind(configMaps),
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}},
	}
	journals := []*journal{}
	for i := range 6 {
		j := newJournal()
		journals = append(journals, j)
		control(t, j, 1, controller.ObjectSource(cc, selection(ns, forms[i%len(forms)]), controller.EnqueueObject))
	}
	for _, c := range []*testenv.Cluster{east, west} {
		name := map[*testenv.Cluster]string{east: "east", west: "west"}[c]
		for _, object := range []string{"a", "b"} {
			for _, change := range []func(){
				func() { create(t, c, configMap(ns, object, "1")) },
				func() { update(t, c, configMap(ns, object, "2")) },
				func() { require.NoError(t, c.Client().Delete(t.Context(), configMap(ns, object, ""))) },
			} {
				before := []int{}
				r := in(name, configMaps, ns, object)
				for _, j := range journals {
					before = append(before, j.count(r))
				}
				change()
				for i, j := range journals {
					eventually(t, r.String(), func() bool { return j.count(r) > before[i] })
				}
			}
		}
		lists, _ := listed(t, c, "configmaps")
		require.Equal(t, 1, lists, name)
	}
}

func lateSubscriber(t *testing.T, east, west *testenv.Cluster) {
	const existing = 100
	ns := namespace(t, east, west)
	for i := range existing {
		create(t, east, configMap(ns, fmt.Sprint("o", i), "0"))
	}
	cc, _ := run(t, options(t, both(east, west)))
	w, err := cc.Cluster(key("east")).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace(ns))
	require.NoError(t, err)
	require.NoError(t, w.WaitForSync(t.Context()))

	// A writer changes, creates and deletes objects while subscribers join
	// late, one after the other.
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			err := east.Client().Update(t.Context(), configMap(ns, fmt.Sprint("o", i%existing), strconv.Itoa(i+1)))
			if err == nil && i%10 == 0 {
				err = east.Client().Create(t.Context(), configMap(ns, fmt.Sprint("new", i), "0"))
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	type late struct {
		mu    sync.Mutex
		state map[string]string
		wrong []string
	}
	var lates []*late
	for range 5 {
		l := &late{state: map[string]string{}}
		lates = append(lates, l)
		reg, err := w.AddEventHandler(informerpool.HandlerFunc(func(e informerpool.Event) {
			l.mu.Lock()
			defer l.mu.Unlock()
			name := e.Object().GetName()
			if _, known := l.state[name]; known != (e.Type != informerpool.Added) {
				l.wrong = append(l.wrong, string(e.Type)+" "+name)
			}
			l.state[name] = e.Object().GetResourceVersion()
		}))
		require.NoError(t, err)
		eventually(t, "the subscriber has synced", reg.HasSynced)
		l.mu.Lock()
		require.GreaterOrEqual(t, len(l.state), existing, "synced means told of everything")
		l.mu.Unlock()
	}
	close(stop)
	writer.Wait()
	list := &corev1.ConfigMapList{}
	require.NoError(t, east.Client().List(t.Context(), list, client.InNamespace(ns)))
	for _, l := range lates {
		for _, o := range list.Items {
			eventually(t, "no gap: "+o.Name, func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.state[o.Name] == o.ResourceVersion
			})
		}
		l.mu.Lock()
		require.Empty(t, l.wrong, "added first, once")
		l.mu.Unlock()
	}
}

func slowSubscriber(t *testing.T, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	cc, _ := run(t, options(t, map[string]*rest.Config{"east": east.Config()}))
	fast, slow := newJournal(), newJournal()
	block := make(chan struct{})
	var calls atomic.Int64
	last := sync.Map{}
	control(t, fast, 1, controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}), controller.EnqueueObject))
	control(t, slow, 1, controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}), func(_ context.Context,
		_ client.ObjectKey, o client.Object) []Request {
		calls.Add(1)
		<-block
		last.Store(o.GetName(), o.GetResourceVersion())
		return nil
	}))
	objects := []*corev1.ConfigMap{configMap(ns, "a", "0"), configMap(ns, "b", "0"), configMap(ns, "c", "0")}
	for _, o := range objects {
		fast.after(t, func() { create(t, east, o) }, in("east", configMaps, ns, o.Name))
	}
	for i := range 50 {
		for _, o := range objects {
			o.Data["value"] = strconv.Itoa(i + 1)
			fast.after(t, func() { update(t, east, o) }, in("east", configMaps, ns, o.Name))
		}
	}
	require.EqualValues(t, 1, calls.Load())
	close(block)
	for _, o := range objects {
		eventually(t, "the last state", func() bool { rv, _ := last.Load(o.Name); return rv == o.ResourceVersion })
	}
	require.LessOrEqual(t, calls.Load(), int64(2*len(objects)+1), "memory was bounded by the number of objects")
}

func burst(t *testing.T, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	cc, _ := run(t, options(t, map[string]*rest.Config{"east": east.Config()}))
	o := configMap(ns, "busy", "0")
	r := in("east", configMaps, ns, "busy")
	seen := newJournal()
	var value atomic.Value
	reconciler := reconcile.TypedFunc[Request](func(ctx context.Context, r Request) (reconcile.Result, error) {
		got := &corev1.ConfigMap{}
		if err := cc.Cluster(r.Cluster).Reader().Get(ctx, r.ObjectKey, got, clustercache.CacheOnly); err != nil {
			return reconcile.Result{}, err
		}
		value.Store(got.Data["value"])
		return seen.Reconcile(ctx, r)
	})
	control(t, reconciler, 1, controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}),
		controller.EnqueueObject,
		controller.ObjectSourceOptions{Debounce: 2 * time.Second, MaxDelay: time.Minute}))
	seen.after(t, func() { create(t, east, o) }, r)
	before := seen.count(r)
	for i := range 20 {
		o.Data["value"] = strconv.Itoa(i + 1)
		update(t, east, o)
	}
	eventually(t, "the last state is seen", func() bool { return value.Load() == "20" })
	require.LessOrEqual(t, seen.count(r)-before, 2)
}

func trigger(t *testing.T, east, west *testenv.Cluster) {
	ns := namespace(t, east, west)
	create(t, east, configMap(ns, "a", "1"), configMap(ns, "b", "1"))
	create(t, west, configMap(ns, "a", "1"))
	cc, _ := run(t, options(t, both(east, west)))
	seen := newJournal()
	s := controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}), controller.EnqueueObject)
	a, b, other := in("east", configMaps, ns, "a"), in("east", configMaps, ns, "b"), in("west", configMaps, ns, "a")
	seen.after(t, func() { control(t, seen, 1, s) }, a, b, other)
	before := seen.total()
	seen.after(t, func() { s.Trigger(b) }, b)
	require.Equal(t, before+1, seen.total())
	seen.after(t, s.TriggerAll, a, b, other)
	for _, c := range []*testenv.Cluster{east, west} {
		lists, _ := listed(t, c, "configmaps")
		require.Equal(t, 1, lists, "no server was asked")
	}
}

func concurrency(t *testing.T, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	cc, _ := run(t, options(t, map[string]*rest.Config{"east": east.Config()}))
	var mu sync.Mutex
	running, most, twice := map[Request]bool{}, 0, false
	reconciler := reconcile.TypedFunc[Request](func(ctx context.Context, r Request) (reconcile.Result, error) {
		mu.Lock()
		twice = twice || running[r]
		running[r] = true
		most = max(most, len(running))
		mu.Unlock()
		select { // long enough for others to arrive
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
		mu.Lock()
		delete(running, r)
		mu.Unlock()
		return reconcile.Result{}, nil
	})
	control(t, reconciler, 4, controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}),
		controller.EnqueueObject))
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		create(t, east, configMap(ns, name, "0"))
	}
	for i := range 20 {
		for _, name := range names {
			update(t, east, configMap(ns, name, strconv.Itoa(i+1)))
		}
	}
	eventually(t, "different keys at once", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return most > 1 && len(running) == 0
	})
	mu.Lock()
	defer mu.Unlock()
	require.False(t, twice, "one key at once")
}
