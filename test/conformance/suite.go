// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// Cluster is a cluster, real or fake, that a test controls. Its methods fail
// the test if they fail.
type Cluster interface {
	// Key returns the cluster's key.
	Key() client.ObjectKey
	// Admin returns a client with all rights that does not use the
	// ClusterCache's connection.
	Admin() client.Client
	// Disconnect cuts the network until Connect.
	Disconnect()
	Connect()
	// Rotate replaces the current credentials.
	Rotate()
	// Forbid revokes the right to a resource until Allow.
	Forbid(resource string)
	// Limit restricts the right to a resource to objects with one name until
	// Allow.
	Limit(resource, name string)
	Allow()
	// Replace replaces the cluster with another, empty one at the same address.
	Replace()
	// Snapshot returns a function that restores the current contents.
	Snapshot() (rollback func())
	// Lists returns how many lists of a resource were requested, streamed or
	// not. Watches returns the number of watches that are not lists.
	Lists(resource string) int
	Watches(resource string) int
	// Streams reports whether the cluster streams lists, so that a list
	// continues as the watch.
	Streams() bool
	// Remove makes the resolver forget the cluster.
	Remove()
}

// Bed is an environment in which behaviors are tested.
type Bed interface {
	// Cluster returns a cluster that is reachable, the same one each time.
	Cluster() Cluster
	// Resolver returns a resolver that knows the cluster.
	Resolver() resolver.Resolver
}

// Scheme contains the built-in types and CustomResourceDefinition.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// Behaviour is one test.
type Behaviour struct {
	Name string
	// Destroys reports that the behavior leaves the cluster changed.
	Destroys bool
	run      func(e *env)
}

// Run tests the behavior.
func (b Behaviour) Run(t *testing.T, bed Bed) {
	t.Helper()
	b.run(newEnv(t, bed))
}

// Resources returns the resources that the behaviors use, as resource.group.
func Resources() []string {
	return []string{"configmaps", "secrets", "namespaces", "pods", "services", "deployments.apps",
		"gadgets.suite.example.com", "customresourcedefinitions.apiextensions.k8s.io"}
}

// Behaviours returns all behaviors. Those that destroy come last.
func Behaviours() []Behaviour {
	all := [][]Behaviour{reads(), eventBehaviours(), writes(), kinds(), connections()}
	var out, last []Behaviour
	for _, some := range all {
		for _, b := range some {
			if b.Destroys {
				last = append(last, b)
			} else {
				out = append(out, b)
			}
		}
	}
	return append(out, last...)
}

// env is the environment of one behavior.
type env struct {
	*testing.T

	cluster Cluster
	admin   client.Client
	cc      *clustercache.ClusterCache
	ns      string
}

var serial atomic.Int64

func newEnv(t *testing.T, bed Bed) *env {
	t.Helper()
	e := &env{T: t, cluster: bed.Cluster(), ns: fmt.Sprintf("suite-%d", serial.Add(1))}
	e.admin = e.cluster.Admin()
	e.namespace()
	cc, err := clustercache.New(clustercache.Options{
		Resolver:         bed.Resolver(),
		Discover:         true,
		Scheme:           Scheme,
		UserAgent:        "suite",
		QPS:              -1,
		ProbeInterval:    time.Second,
		ProbeTimeout:     5 * time.Second,
		FailureThreshold: 1,
		SuccessThreshold: 1,
		RetryInterval:    time.Second,
		MaxBackoff:       time.Second,
		Grace:            100 * time.Millisecond,
		Indexes: []clustercache.Index{
			{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Field: "data.color", Values: colors},
		},
		Informers: informerpool.Options{MaxBackoff: time.Second},
	})
	require.NoError(t, err)
	e.cc = cc
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cc.Start(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	e.phase(status.PhaseReady)
	return e
}

func (e *env) namespace() {
	require.NoError(e, e.admin.Create(e.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.ns}}))
}

func colors(obj client.Object) []string {
	var cm corev1.ConfigMap
	if o, ok := obj.(*informerpool.Object); ok && o.Into(&cm) == nil {
		return []string{cm.Data["color"]}
	}
	return nil
}

func (e *env) key() client.ObjectKey { return e.cluster.Key() }

func (e *env) named(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: e.ns, Name: name}
}

func (e *env) configMap(name, color string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name, Labels: map[string]string{"color": color}},
		Data:       map[string]string{"color": color},
	}
}

// create creates ConfigMaps with a color.
func (e *env) create(color string, names ...string) {
	e.Helper()
	for _, name := range names {
		require.NoError(e, e.admin.Create(e.Context(), e.configMap(name, color)))
	}
}

func (e *env) paint(name, color string) *corev1.ConfigMap {
	e.Helper()
	cm := &corev1.ConfigMap{}
	require.NoError(e, e.admin.Get(e.Context(), e.named(name), cm))
	cm.Data["color"], cm.Labels["color"] = color, color
	require.NoError(e, e.admin.Update(e.Context(), cm))
	return cm
}

func (e *env) delete(names ...string) {
	e.Helper()
	for _, name := range names {
		require.NoError(e, e.admin.Delete(e.Context(), e.configMap(name, "")))
	}
}

// watch watches ConfigMaps in the namespace, and waits until the watch has
// synced.
func (e *env) watch(opts ...client.ListOption) *clustercache.Watch {
	e.Helper()
	w := e.take(&corev1.ConfigMap{}, append(opts, client.InNamespace(e.ns))...)
	require.NoError(e, w.WaitForSync(e.Context()))
	return w
}

func (e *env) take(obj client.Object, opts ...client.ListOption) *clustercache.Watch {
	e.Helper()
	w, err := e.cc.Cluster(e.key()).Watch(e.Context(), obj, opts...)
	require.NoError(e, err)
	e.Cleanup(w.Release)
	return w
}

func (e *env) reader() client.Reader { return e.cc.Cluster(e.key()).Reader() }

func (e *env) client() client.Client {
	e.Helper()
	c, err := e.cc.Cluster(e.key()).Client()
	require.NoError(e, err)
	return c
}

// names lists the ConfigMaps in the namespace through the ClusterCache.
func (e *env) names(opts ...client.ListOption) []string {
	e.Helper()
	list := &corev1.ConfigMapList{}
	require.NoError(e, e.reader().List(e.Context(), list, append(opts, client.InNamespace(e.ns))...))
	out := []string{}
	for _, o := range list.Items {
		if o.Name != "kube-root-ca.crt" {
			out = append(out, o.Name)
		}
	}
	return out
}

const limit = time.Minute

func (e *env) eventually(ok func() bool, what string) {
	e.Helper()
	require.Eventually(e, ok, limit, 20*time.Millisecond, what)
}

func (e *env) phase(want status.Phase) {
	e.Helper()
	e.eventually(func() bool {
		s, err := e.cc.Cluster(e.key()).Status()
		return err == nil && s.Phase == want
	}, string(want))
}

func (e *env) status() status.Cluster {
	e.Helper()
	s, err := e.cc.Cluster(e.key()).Status()
	require.NoError(e, err)
	return s
}

// feed collects events of ConfigMaps, as "Added name color".
type feed struct {
	e      *env
	events chan string
}

// follow collects the events of watched objects in the namespace.
func (e *env) follow(kinds ...client.Object) *feed {
	e.Helper()
	f := &feed{e: e, events: make(chan string, 1000)}
	ctx, cancel := context.WithCancel(e.Context())
	seq, err := e.cc.ObjectEvents(ctx, events.Selection{Kinds: kinds})
	require.NoError(e, err)
	var done sync.WaitGroup
	done.Go(func() {
		for event := range seq {
			if o := event.Object(); o.GetNamespace() == e.ns && o.GetName() != "kube-root-ca.crt" {
				f.events <- strings.TrimSpace(fmt.Sprintf("%s %s %s", event.Type, o.GetName(), o.GetLabels()["color"]))
			}
		}
	})
	e.Cleanup(func() { cancel(); done.Wait() })
	return f
}

// expect waits for the events, in order and with no other events in between.
func (f *feed) expect(want ...string) {
	f.e.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, w := range want {
		select {
		case got := <-f.events:
			require.Equal(f.e, w, got)
		case <-timer.C:
			require.FailNow(f.e, "event did not come", w)
		}
	}
}

// expectAny waits for the events in any order, with no other events in between.
func (f *feed) expectAny(want ...string) {
	f.e.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var got []string
	for range want {
		select {
		case event := <-f.events:
			got = append(got, event)
		case <-timer.C:
			require.FailNow(f.e, "events did not come", "%s; there were %s", want, got)
		}
	}
	require.ElementsMatch(f.e, want, got)
}

// skipTo waits until each of the events has arrived, whatever arrives in
// between.
func (f *feed) skipTo(want ...string) {
	f.e.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	missing := map[string]bool{}
	for _, w := range want {
		missing[w] = true
	}
	for len(missing) > 0 {
		select {
		case event := <-f.events:
			delete(missing, event)
		case <-timer.C:
			require.FailNow(f.e, "events did not come", "%v", missing)
		}
	}
}

// gadget returns an object of a custom kind.
func (e *env) gadget(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(1)}}}
	u.SetGroupVersionKind(gadgetGVK)
	u.SetNamespace(e.ns)
	u.SetName(name)
	return u
}

var gadgetGVK = schema.GroupVersionKind{Group: "suite.example.com", Version: "v1", Kind: "Gadget"}

// definition returns the definition of gadgets.
func definition() *apiextensionsv1.CustomResourceDefinition {
	return testenv.SimpleCRD(gadgetGVK.Group, gadgetGVK.Kind)
}

// define makes the cluster serve gadgets until the behavior ends.
func (e *env) define() {
	e.Helper()
	require.NoError(e, e.admin.Create(e.Context(), definition()))
	e.eventually(func() bool {
		err := e.admin.Create(e.Context(), e.gadget("probe"))
		return err == nil
	}, "gadgets are served")
	require.NoError(e, e.admin.Delete(e.Context(), e.gadget("probe")))
	e.Cleanup(e.undefine)
}

func (e *env) undefine() {
	ctx := context.Background()
	_ = e.admin.Delete(ctx, definition())
	e.eventually(func() bool {
		return client.IgnoreNotFound(e.admin.Get(ctx, client.ObjectKeyFromObject(definition()), definition())) == nil &&
			e.admin.Get(ctx, client.ObjectKeyFromObject(definition()), definition()) != nil
	}, "gadgets are gone")
}
