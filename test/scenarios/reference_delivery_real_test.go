// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/testenv"
	"github.com/fleetcache/fleetcache/internal/testenv/faultproxy"
)

func only(east *testenv.Cluster) map[string]*rest.Config {
	return map[string]*rest.Config{"east": east.Config()}
}

// earliestWins makes each of the two delays that can apply to a request the
// longer one once.
func earliestWins(t *testing.T, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	o := configMap(ns, "o", "0")
	create(t, east, o)
	cc, _ := run(t, options(t, only(east)))
	r := in("east", configMaps, ns, "o")
	for delay, source := range map[time.Duration]controller.ObjectSourceOptions{
		time.Hour: {Debounce: time.Second}, time.Second: {Debounce: time.Hour, MaxDelay: time.Hour},
	} {
		seen := newJournal()
		reconciler := reconcile.TypedFunc[Request](func(ctx context.Context, r Request) (reconcile.Result, error) {
			_, _ = seen.Reconcile(ctx, r)
			return reconcile.Result{RequeueAfter: delay}, nil
		})
		// This triggers the first request.
		now := controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}), controller.EnqueueObject)
		later := controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}), controller.EnqueueObject, source)
		_, stop := control(t, reconciler, 1, later, now)
		eventually(t, "the first", func() bool { return seen.count(r) > 0 })
		require.NoError(t, now.Close(t.Context()))
		seen.after(t, func() { update(t, east, o) }, r)
		stop()
	}
}

func toldIsFound(t *testing.T, east, west *testenv.Cluster) {
	ns := namespace(t, east, west)
	for i := range 50 {
		create(t, east, configMap(ns, "o"+strconv.Itoa(i), "0"))
	}
	cc, _ := run(t, options(t, both(east, west)))
	var initial, live, missing atomic.Int64
	find := func(ctx context.Context, cluster, name client.ObjectKey) error {
		return cc.Cluster(cluster).Reader().Get(ctx, name, &corev1.ConfigMap{}, clustercache.CacheOnly)
	}
	seen := newJournal()
	reconciler := reconcile.TypedFunc[Request](func(ctx context.Context, r Request) (reconcile.Result, error) {
		if err := find(ctx, r.Cluster, r.ObjectKey); err != nil {
			missing.Add(1)
			t.Logf("%v: %v", r, err)
		}
		return seen.Reconcile(ctx, r)
	})
	s := controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}), func(ctx context.Context,
		cluster client.ObjectKey, o client.Object) []Request {
		if err := find(ctx, cluster, client.ObjectKeyFromObject(o)); err != nil {
			missing.Add(1)
			t.Logf("%s: %v", o.GetName(), err)
		}
		if o.GetName()[0] == 'o' {
			initial.Add(1)
		} else {
			live.Add(1)
		}
		return controller.EnqueueObject(ctx, cluster, o)
	})
	control(t, reconciler, 2, s)
	eventually(t, "the replay", func() bool { return initial.Load() == 50 })
	for i := range 20 {
		r := in("west", configMaps, ns, "live"+strconv.Itoa(i))
		seen.after(t, func() { create(t, west, configMap(ns, r.Name, "0")) }, r)
	}
	require.Zero(t, missing.Load())
	require.EqualValues(t, 20, live.Load())
}

// watchErrors revokes a user's right to watch. The library's user must see the
// server's own error, and no resourceVersion.
func watchErrors(t *testing.T, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"},
		Verbs: []string{"get", "list", "watch"}}
	user, err := east.AddUser(t.Context(), "watcher", rule)
	require.NoError(t, err)
	proxy := east.Proxy(t)
	cc, _ := run(t, options(t, map[string]*rest.Config{"east": proxy.Redirect(user.Config())}))
	seen := newJournal()
	s := controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}), controller.EnqueueObject)
	control(t, seen, 1, s)
	a := in("east", configMaps, ns, "a")
	seen.after(t, func() { create(t, east, configMap(ns, "a", "1")) }, a)
	w, err := cc.Cluster(key("east")).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace(ns))
	require.NoError(t, err)
	require.NoError(t, w.WaitForSync(t.Context()))

	require.NoError(t, user.Deny(t.Context()))
	begin := time.Now()
	proxy.ResetAll()
	eventually(t, "the refusal is shown", func() bool { return apierrors.IsForbidden(w.Status().Informer.LastError) })
	require.False(t, w.HasSynced(), "no read is answered from what was known")
	require.NotZero(t, w.Status().Informer.Objects, "it is kept")
	denied := func() int {
		requests, err := east.Requests(testenv.Resource("configmaps"), testenv.Verb("watch", "list"),
			testenv.UserAgent(userAgent(t)),
			func(r testenv.Request) bool { return r.Time.After(begin) })
		require.NoError(t, err)
		return len(requests)
	}
	eventually(t, "it is tried again", func() bool { return denied() >= 4 })
	// The delay starts at half a second and doubles up to two seconds here;
	// half of it is random.
	require.LessOrEqual(t, denied(), 4+int(time.Since(begin)/(500*time.Millisecond)))

	create(t, east, configMap(ns, "missed", "1"))
	seen.after(t, func() { require.NoError(t, user.Grant(t.Context(), rule)) }, in("east", configMaps, ns, "missed"))
	eventually(t, "it is well again", func() bool { return w.Status().Informer.LastError == nil })
	require.Equal(t, 1, seen.count(a), "what did not change is not told again")
	require.Zero(t, s.Failures())
}

// relistAfterOutage makes the server forget the history from which the watch
// would resume.
func relistAfterOutage(t *testing.T, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	for _, name := range []string{"kept", "changed", "gone", "replaced"} {
		create(t, east, configMap(ns, name, "1"))
	}
	proxy := east.Proxy(t)
	cc, _ := run(t, options(t, map[string]*rest.Config{"east": proxy.Config()}))
	w, err := cc.Cluster(key("east")).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace(ns))
	require.NoError(t, err)
	var mu sync.Mutex
	var events []string
	told := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), events...)
	}
	reg, err := w.AddEventHandler(informerpool.HandlerFunc(func(e informerpool.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, string(e.Type)+" "+e.Object().GetName())
	}))
	require.NoError(t, err)
	eventually(t, "all is told", reg.HasSynced)
	require.Len(t, told(), 4)

	proxy.Refuse()
	for _, name := range []string{"gone", "replaced"} {
		require.NoError(t, east.Client().Delete(t.Context(), configMap(ns, name, "")))
	}
	update(t, east, configMap(ns, "changed", "2"))
	create(t, east, configMap(ns, "replaced", "2"), configMap(ns, "new", "1"))
	require.NoError(t, east.Kill())
	require.NoError(t, east.StartAPIServer(t.Context()))
	require.NoError(t, proxy.Heal())
	eventually(t, "what was missed arrives", func() bool { return len(told()) == 9 })
	create(t, east, configMap(ns, "last", "1"))
	eventually(t, "events flow", func() bool { return len(told()) == 10 })
	require.ElementsMatch(t, []string{"Updated changed", "Deleted gone", "Deleted replaced", "Added replaced",
		"Added new", "Added last"}, told()[4:])
	require.EqualValues(t, 1, w.Status().Informer.Resyncs, "the server, whose watch history starts anew, answered 410")
}

func gracefulShutdown(t *testing.T, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	create(t, east, configMap(ns, "a", "1"), configMap(ns, "b", "1"))
	cc, _ := run(t, options(t, only(east)))
	var calls atomic.Int64
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	s := controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}), func(context.Context, client.ObjectKey,
		client.Object) []Request {
		calls.Add(1)
		entered <- struct{}{}
		<-leave
		return nil
	})
	control(t, newJournal(), 1, s)
	<-entered
	soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Close(soon), context.DeadlineExceeded, "the running call is waited for, up to the deadline")
	forced, force := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	closed := make(chan error, 1)
	go func() { closed <- s.Close(forced) }()
	force(enough)
	require.ErrorIs(t, <-closed, enough, "who waits can stop to wait")
	close(leave)
	require.NoError(t, s.Close(t.Context()))
	before := calls.Load()
	update(t, east, configMap(ns, "a", "2"))
	w, err := cc.Cluster(key("east")).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace(ns))
	require.NoError(t, err)
	require.NoError(t, w.WaitForSync(t.Context()))
	o := configMap(ns, "a", "3")
	update(t, east, o)
	require.NoError(t, w.WaitForVersion(t.Context(), o.ResourceVersion))
	require.Equal(t, before, calls.Load(), "no call begins after")
}

func waitersAreReleased(t *testing.T, east, _ *testenv.Cluster) {
	proxy := east.Proxy(t)
	proxy.Blackhole(faultproxy.Both)
	cc, stop := run(t, options(t, map[string]*rest.Config{"silent": proxy.Config()}))
	released, err := cc.Cluster(key("silent")).Watch(t.Context(), &corev1.ConfigMap{})
	require.NoError(t, err)
	ended, err := cc.Cluster(key("silent")).Watch(t.Context(), &corev1.ConfigMap{})
	require.NoError(t, err)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- released.WaitForSync(context.Background()) }()
	go func() { second <- ended.WaitForSync(context.Background()) }()
	released.Release()
	require.ErrorIs(t, <-first, clustercache.ErrReleased)
	stop()
	require.ErrorIs(t, <-second, clustercache.ErrClosed)
}

func loadAndUnload(t *testing.T, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	cc, _ := run(t, options(t, only(east)))
	source := func() *controller.TypedObjectSource[Request] {
		return controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}), controller.EnqueueObject)
	}
	informers := func() int {
		s, err := cc.Cluster(key("east")).Status()
		require.NoError(t, err)
		return s.Informers
	}
	first, second, late := newJournal(), newJournal(), newJournal()
	_, unloadFirst := control(t, first, 1, source())
	running, unloadSecond := control(t, second, 1, source())
	create(t, east, configMap(ns, "a", "1"))
	a := in("east", configMaps, ns, "a")
	eventually(t, "both are told", func() bool { return first.count(a) > 0 && second.count(a) > 0 })
	unloadFirst()
	second.after(t, func() { update(t, east, configMap(ns, "a", "2")) }, a)
	before := first.count(a)

	// Add another source to the running controller, and remove it again.
	extra := controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}), late.mapped)
	late.after(t, func() { require.NoError(t, running.Watch(extra)) }, a)
	require.NoError(t, extra.Close(t.Context()))
	told := late.count(a)
	second.after(t, func() { update(t, east, configMap(ns, "a", "3")) }, a)
	require.Equal(t, told, late.count(a))
	require.Equal(t, before, first.count(a))
	lists, _ := listed(t, east, "configmaps")
	require.Equal(t, 1, lists, "nobody's end disturbed anybody")
	require.Equal(t, 1, informers())
	unloadSecond()
	eventually(t, "the last takes the informer along", func() bool { return informers() == 0 })
	again := newJournal()
	again.after(t, func() { control(t, again, 1, source()) }, a)
}

func pauseKeepsCache(t *testing.T, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	o := configMap(ns, "a", "0")
	create(t, east, o)
	cc, _ := run(t, options(t, only(east)))
	seen := newJournal()
	a := in("east", configMaps, ns, "a")
	s := controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}), seen.mapped)
	seen.after(t, func() { control(t, newJournal(), 1, s) }, a)
	w, err := cc.Cluster(key("east")).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace(ns))
	require.NoError(t, err)
	s.Pause()
	before := seen.count(a)
	for i := range 5 {
		o.Data["value"] = strconv.Itoa(i + 1)
		update(t, east, o)
	}
	require.NoError(t, w.WaitForVersion(t.Context(), o.ResourceVersion))
	got := &corev1.ConfigMap{}
	require.NoError(t, cc.Cluster(key("east")).Reader().Get(t.Context(), a.ObjectKey, got, clustercache.CacheOnly))
	require.Equal(t, "5", got.Data["value"], "the cache goes on")
	require.Equal(t, before, seen.count(a))
	s.Continue()
	eventually(t, "the change is told once: what it was and what it is",
		func() bool { return seen.count(a) == before+2 })
	lists, _ := listed(t, east, "configmaps")
	require.Equal(t, 1, lists)
}

func periodicResync(t *testing.T, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	create(t, east, configMap(ns, "a", "0"))
	cc, _ := run(t, options(t, only(east)))
	seen := newJournal()
	f := selection(ns, &corev1.ConfigMap{})
	f.ResyncInterval = 500 * time.Millisecond
	s := controller.ObjectSource(cc, f, seen.mapped)
	control(t, newJournal(), 1, s)
	a := in("east", configMaps, ns, "a")
	eventually(t, "again and again", func() bool { return seen.count(a) >= 4 })
	lists, _ := listed(t, east, "configmaps")
	require.Equal(t, 1, lists, "the server is not asked")
	require.NoError(t, s.Close(t.Context()))
}

func swapAndEnd(t *testing.T, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	create(t, east, configMap(ns, "a", "0"))
	before := goleak.IgnoreCurrent()
	cc, stop := run(t, options(t, only(east)))
	first, second := newJournal(), newJournal()
	s := controller.ObjectSource(cc, selection(ns, &corev1.ConfigMap{}), first.mapped)
	_, unload := control(t, newJournal(), 1, s)
	a := in("east", configMaps, ns, "a")
	eventually(t, "the first function is called", func() bool { return first.count(a) > 0 })
	s.SetMapping(second.mapped)
	second.after(t, s.TriggerAll, a)
	count := first.count(a)
	second.after(t, func() { update(t, east, configMap(ns, "a", "1")) }, a)
	require.Equal(t, count, first.count(a))
	lists, _ := listed(t, east, "configmaps")
	require.Equal(t, 1, lists, "nothing was started anew")
	unload()
	stop()
	goleak.VerifyNone(t, before)
}

func deleteCarriesState(t *testing.T, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	create(t, east, configMap(ns, "seen", "1"), configMap(ns, "missed", "1"))
	proxy := east.Proxy(t)
	cc, _ := run(t, options(t, map[string]*rest.Config{"east": proxy.Config()}))
	w, err := cc.Cluster(key("east")).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace(ns))
	require.NoError(t, err)
	deletes := make(chan informerpool.Event, 10)
	reg, err := w.AddEventHandler(informerpool.HandlerFunc(func(e informerpool.Event) {
		if e.Type == informerpool.Deleted {
			deletes <- e
		}
	}))
	require.NoError(t, err)
	eventually(t, "all is told", reg.HasSynced)
	for _, name := range []string{"seen", "missed"} {
		update(t, east, configMap(ns, name, "2"))
		if name == "missed" { // deleted while the cluster is unreachable
			proxy.Refuse()
		}
		require.NoError(t, east.Client().Delete(t.Context(), configMap(ns, name, "")))
		require.NoError(t, proxy.Heal())
		e := <-deletes
		require.Equal(t, name, e.Old.GetName())
		o := &corev1.ConfigMap{}
		require.NoError(t, e.Old.Into(o))
		require.Contains(t, []string{"1", "2"}, o.Data["value"])
		if name == "seen" {
			require.Equal(t, "2", o.Data["value"])
		}
	}
}
