// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// copier is an ordinary reconciler: for each ConfigMap with its label it
// maintains a Secret with the same data, named after the profile, a
// ServiceAccount, that the ConfigMap names. It has no code for remote clusters.
type copier struct {
	client.Client

	events recorder.EventRecorder

	mu      sync.Mutex
	runs    map[string]int
	written int
}

var copied = client.MatchingLabels{"copy": "yes"}

func (r *copier) SetupWithManager(ctx context.Context, mgr ctrl.Manager, count predicate.Predicate) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.ConfigMap{}, "data.profile", func(o client.Object) []string {
		return []string{o.(*corev1.ConfigMap).Data["profile"]}
	})
	if err != nil {
		return err
	}
	labelled := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()["copy"] == "yes" })
	return ctrl.NewControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}, builder.WithPredicates(labelled, count)).
		Owns(&corev1.Secret{}).
		Watches(&corev1.ServiceAccount{}, handler.EnqueueRequestsFromMapFunc(r.ofProfile)).
		Complete(r)
}

func (r *copier) ofProfile(ctx context.Context, profile client.Object) []reconcile.Request {
	list := &corev1.ConfigMapList{}
	if err := r.List(ctx, list, client.InNamespace(profile.GetNamespace()),
		client.MatchingFields{"data.profile": profile.GetName()}); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for _, o := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&o)})
	}
	return requests
}

func (r *copier) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.mu.Lock()
	r.runs[req.Name]++
	r.mu.Unlock()
	from := &corev1.ConfigMap{}
	if err := r.Get(ctx, req.NamespacedName, from); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	to := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: from.Namespace, Name: from.Name}}
	result, err := controllerutil.CreateOrUpdate(ctx, r.Client, to, func() error {
		to.Data = map[string][]byte{}
		for k, v := range from.Data {
			to.Data[k] = []byte(v)
		}
		return controllerutil.SetControllerReference(from, to, r.Scheme())
	})
	if err != nil {
		return reconcile.Result{}, client.IgnoreAlreadyExists(err)
	}
	if result != controllerutil.OperationResultNone {
		r.events.Eventf(from, to, corev1.EventTypeNormal, "Copied", "Copy", "Secret was %s", string(result))
		r.mu.Lock()
		r.written++
		r.mu.Unlock()
	}
	return reconcile.Result{}, nil
}

func (r *copier) snapshot() (map[string]int, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.runs), r.written
}

// tally counts events by type and name.
type tally struct {
	mu sync.Mutex
	of map[string]int
}

func (c *tally) count(what string, o client.Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[what+" "+o.GetName()]++
	return true
}

func (c *tally) get(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[what]
}

func (c *tally) predicate() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return c.count("create", e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return c.count("update", e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return c.count("delete", e.Object) },
	}
}

func configMapOf(name, profile, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: copied},
		Data:       map[string]string{"profile": profile, "value": value},
	}
}

// eventually waits for a condition of a real cluster.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 2*time.Minute, 20*time.Millisecond, what)
}

// copies reports whether a Secret matches its ConfigMap.
func copies(t *testing.T, c client.Client, name, value string) func() bool {
	t.Helper()
	return func() bool {
		s := &corev1.Secret{}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, s)
		return err == nil && string(s.Data["value"]) == value && len(s.OwnerReferences) == 1
	}
}

// TestRealStockControllerOutlivesItsRemote uses the builder's For, Owns and
// Watches on a remote cluster, beside a controller of the hub with a stock
// source of the same remote. The remote's API server is killed, objects are
// changed through another server, and the first one comes back: both
// controllers keep running, and receive the changes and nothing else.
func TestRealStockControllerOutlivesItsRemote(t *testing.T) {
	t.Parallel()
	envs := testenv.Start(t, 2, testenv.WithNames("hub", "remote"))
	hub, remote := envs[0], envs[1]
	for i := range 20 {
		require.NoError(t, remote.Client().Create(t.Context(), configMapOf(fmt.Sprint("old-", i), "p", "1")))
	}
	d := newDirectory()
	d.set(key("east"), remote.Config())
	cc, err := clustercache.New(clustercache.Options{
		Resolver: d, ProbeInterval: 2 * time.Second, ProbeTimeout: 2 * time.Second, RetryInterval: 2 * time.Second,
		MaxBackoff: 2 * time.Second,
	})
	require.NoError(t, err)
	mgr, err := manager.New(hub.Config(), manager.Options{Metrics: server.Options{BindAddress: "0"}})
	require.NoError(t, err)
	require.NoError(t, mgr.Add(cc))
	east, err := multicluster.New(cc, multicluster.Options{}).Cluster(key("east"))
	require.NoError(t, err)
	require.NoError(t, mgr.Add(east))
	view := multicluster.ManagerFor(mgr, east)
	events := &tally{of: map[string]int{}}
	r := &copier{Client: view.GetClient(), events: view.GetEventRecorder("copier"), runs: map[string]int{}}
	require.NoError(t, r.SetupWithManager(t.Context(), view, events.predicate()))
	hubEvents := &tally{of: map[string]int{}}
	require.NoError(t, ctrl.NewControllerManagedBy(mgr).Named("hub").
		WatchesRawSource(source.Kind(east.GetCache(), client.Object(&corev1.ConfigMap{}),
			&handler.EnqueueRequestForObject{}, hubEvents.predicate())).
		Complete(reconcile.Func(
			func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })))
	stop := fleettest.Run(t, mgr)

	for i := range 20 {
		eventually(t, "copied at the start", copies(t, remote.Client(), fmt.Sprint("old-", i), "1"))
	}
	requireWiring(t, remote, view, r, events)
	for _, resource := range []string{"configmaps", "secrets", "serviceaccounts"} {
		require.Equal(t, 1, lists(t, remote, resource),
			"controllers of hub and remote, and reads, share one informer of %s", resource)
	}

	// The API server dies without closing its connections. Changes through
	// another server are not received.
	replica, err := remote.AddReplica(t.Context())
	require.NoError(t, err)
	behind, err := client.New(replica.Config(), client.Options{})
	require.NoError(t, err)
	require.NoError(t, remote.Kill())
	eventually(t, "disconnect", func() bool {
		s, err := cc.Cluster(key("east")).Status()
		return err == nil && !s.Connected
	})
	err = view.GetClient().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "old-0"}, &corev1.ConfigMap{})
	require.ErrorIs(t, err, clustercache.ErrNotConnected)
	require.NoError(t, behind.Create(t.Context(), configMapOf("made-behind", "p", "1")))
	require.NoError(t, behind.Update(t.Context(), configMapOf("old-1", "p", "behind")))
	require.NoError(t, behind.Delete(t.Context(), configMapOf("old-2", "", "")))
	require.NoError(t, behind.Delete(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old-3"}}))
	runs, written := r.snapshot()

	require.NoError(t, remote.StartAPIServer(t.Context()))
	eventually(t, "created while away", copies(t, behind, "made-behind", "1"))
	eventually(t, "changed while away", copies(t, behind, "old-1", "behind"))
	eventually(t, "owned object deleted while away", copies(t, behind, "old-3", "1"))
	eventually(t, "deleted while away",
		func() bool { return events.get("delete old-2") == 1 && hubEvents.get("delete old-2") == 1 })
	require.NoError(t, remote.Client().Create(t.Context(), configMapOf("made-after", "p", "1")))
	eventually(t, "created after", copies(t, behind, "made-after", "1"))

	requireOnlyWhatChanged(t, r, runs, written)
	for _, c := range []*tally{events, hubEvents} {
		for i := range 20 {
			require.Equal(t, 1, c.get(fmt.Sprint("create old-", i)), "no second create of what was there")
		}
		require.Equal(t, 1, c.get("create made-behind"))
		require.Equal(t, 1, c.get("update old-1"))
		require.Zero(t, c.get("update old-5"))
	}
	require.LessOrEqual(t, lists(t, remote, "configmaps"),
		2, "an API server that was restarted may ask for one more list")
	begin := time.Now()
	stop()
	require.Less(t, time.Since(begin), 20*time.Second)
}

// requireWiring checks that Owns and Watches work, and that the REST mapper,
// the client's writes and the recorder lead to the remote.
func requireWiring(t *testing.T, remote *testenv.Cluster, view manager.Manager, r *copier, events *tally) {
	t.Helper()
	c := remote.Client()
	require.NoError(t, c.Delete(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old-4"}}))
	eventually(t, "owned object deleted", copies(t, c, "old-4", "1"))
	before, _ := r.snapshot()
	require.NoError(t, c.Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}))
	eventually(t, "watched object created", func() bool {
		runs, _ := r.snapshot()
		for name := range before {
			if runs[name] <= before[name] {
				return false
			}
		}
		return true
	})
	require.Len(t, before, 20)
	require.Equal(t, 1, events.get("create old-0"))
	eventually(t, "recorded events", func() bool {
		list := &eventsv1.EventList{}
		return c.List(t.Context(), list, client.InNamespace("default")) == nil && len(list.Items) > 0
	})
	mapping, err := view.GetRESTMapper().RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	require.NoError(t, err)
	require.Equal(t, "deployments", mapping.Resource.Resource)
	err = view.GetClient().Create(t.Context(), configMapOf("old-0", "p", "1"))
	require.True(t, apierrors.IsAlreadyExists(err))
	patched := configMapOf("old-0", "p", "1")
	require.NoError(t, view.GetClient().Patch(t.Context(), patched,
		client.RawPatch("application/merge-patch+json", []byte(`{"data":{"value":"1"}}`))))
}

// requireOnlyWhatChanged checks that only objects were reconciled that changed
// while the cluster was away, or after. A Secret can be seen in the cluster
// before the reconciler has the answer to its write, so the count may still be
// outstanding.
func requireOnlyWhatChanged(t *testing.T, r *copier, before map[string]int, written int) {
	t.Helper()
	eventually(t, "the last write is answered", func() bool {
		_, writtenAfter := r.snapshot()
		return writtenAfter >= written+4
	})
	runs, writtenAfter := r.snapshot()
	changed := []string{"old-1", "old-2", "old-3", "made-behind", "made-after"}
	for name, n := range runs {
		if !slices.Contains(changed, name) {
			require.Equal(t, before[name], n, name)
		}
	}
	require.Equal(t, written+4, writtenAfter, "three of them were changed behind the back, one after")
}

// lists returns how often a resource was listed, whether by a stream or by
// pages.
func lists(t *testing.T, remote *testenv.Cluster, resource string) int {
	t.Helper()
	requests, err := remote.Requests(testenv.Resource(resource), testenv.UserAgent("fleetcache"))
	require.NoError(t, err)
	n := 0
	for _, r := range requests {
		u, err := url.Parse(r.URI)
		require.NoError(t, err)
		q := u.Query()
		if r.Namespace == "" && !r.Unstreamed && q.Get("fieldSelector") == "" && q.Get("limit") != "1" &&
			(q.Get("watch") == "" || q.Get("sendInitialEvents") == "true") {
			n++
		}
	}
	return n
}
