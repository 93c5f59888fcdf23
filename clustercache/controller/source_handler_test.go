// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	fleetcontroller "github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// additions are what was added to queues.
type additions struct {
	mu  sync.Mutex
	all []string
}

func (a *additions) add(how string, name client.ObjectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, how+" "+name.String())
}

// take returns what was added since the last call, sorted.
func (a *additions) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.all
	a.all = nil
	slices.Sort(all)
	return all
}

// notedQueue is a queue with priorities that notes what is added, and hands
// out nothing.
type notedQueue[request comparable] struct {
	priorityqueue.PriorityQueue[request]

	to       *additions
	nameOf   func(request) client.ObjectKey
	requeues map[request]int // used by the goroutine of the handler
}

func newNotedQueue[request comparable](to *additions, nameOf func(request) client.ObjectKey) *notedQueue[request] {
	return &notedQueue[request]{priorityqueue.New[request]("noted"), to, nameOf, map[request]int{}}
}

// Add implements workqueue.TypedInterface.
func (q *notedQueue[request]) Add(r request) { q.to.add("add", q.nameOf(r)) }

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *notedQueue[request]) AddAfter(r request, after time.Duration) {
	q.to.add("after "+after.String(), q.nameOf(r))
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *notedQueue[request]) AddRateLimited(r request) {
	q.to.add(fmt.Sprint("limited ", q.requeues[r]), q.nameOf(r))
	q.requeues[r]++
}

// NumRequeues implements workqueue.TypedRateLimitingInterface.
func (q *notedQueue[request]) NumRequeues(r request) int { return q.requeues[r] }

// Forget implements workqueue.TypedRateLimitingInterface.
func (q *notedQueue[request]) Forget(r request) { delete(q.requeues, r) }

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *notedQueue[request]) AddWithOpts(o priorityqueue.AddOpts, requests ...request) {
	how := "add"
	if o.Priority != nil {
		how = fmt.Sprint("priority ", *o.Priority)
	}
	if o.RateLimited {
		how += " limited"
	}
	if o.After > 0 {
		how += " after " + o.After.String()
	}
	for _, r := range requests {
		q.to.add(how, q.nameOf(r))
	}
}

// judged is a handler of one cluster, with the source of controller-runtime and
// with ours.
type judged struct {
	theirs func(cache.Cache) source.Source
	ours   func(*fleetcontroller.Builder, *clustercache.ClusterCache)
}

func judge[object client.Object](
	kind object, h handler.TypedEventHandler[object, reconcile.Request], predicates ...predicate.TypedPredicate[object],
) judged {
	return judged{
		theirs: func(c cache.Cache) source.Source { return source.Kind(c, kind, h, predicates...) },
		ours: func(b *fleetcontroller.Builder, cc *clustercache.ClusterCache) {
			b.WatchesHandler(kind, fleetcontroller.PerClusterHandler(cc,
				func(client.Client) handler.TypedEventHandler[object, reconcile.Request] { return h }),
				fleetcontroller.WithPredicates(predicates...))
		},
	}
}

// judgeWrapped is judge, with a handler of all clusters that is wrapped once
// more by what controller-runtime has for that.
func judgeWrapped(h handler.EventHandler) judged {
	row := judge[client.Object](&corev1.ConfigMap{}, handler.WithLowPriorityWhenUnchanged(h))
	row.ours = func(b *fleetcontroller.Builder, cc *clustercache.ClusterCache) {
		b.WatchesHandler(&corev1.ConfigMap{}, handler.WithLowPriorityWhenUnchanged(
			fleetcontroller.PerClusterHandler(cc, func(client.Client) handler.EventHandler { return h })))
	}
	return row
}

// TestHandlerOfOneClusterAddsWhatItAddsThere runs handlers beside
// controller-runtime's own source and cache of the same cluster.
func TestHandlerOfOneClusterAddsWhatItAddsThere(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	request := func(verb string, o client.Object) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: verb, Name: o.GetName()}}
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	each := handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			q.Add(request(fmt.Sprint("create-", e.IsInInitialList), e.Object))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			q.AddAfter(request("from-"+e.ObjectOld.(*corev1.ConfigMap).Data["data"], e.ObjectOld), time.Minute)
			q.AddAfter(request("to-"+e.ObjectNew.(*corev1.ConfigMap).Data["data"], e.ObjectNew), time.Hour)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r := request(fmt.Sprint("delete-", e.DeleteStateUnknown), e.Object)
			q.AddRateLimited(r)
			q.AddRateLimited(r)
			if q.NumRequeues(r) == 2 {
				q.Forget(r)
			}
			q.AddRateLimited(r)
		},
	}
	usersOf := func(_ context.Context, o *corev1.ConfigMap) []reconcile.Request {
		return []reconcile.Request{request("uses-"+o.Data["data"], o), request("uses", o), request("uses", o)}
	}
	deployments := &appsv1.Deployment{}
	for name, row := range map[string]judged{
		"EnqueueRequestForObject": judge[client.Object](&corev1.ConfigMap{}, &handler.EnqueueRequestForObject{}),
		"EnqueueRequestForOwner": judge[client.Object](&corev1.ConfigMap{},
			handler.EnqueueRequestForOwner(scheme.Scheme, mapper, deployments)),
		"OnlyControllerOwner": judge[client.Object](&corev1.ConfigMap{},
			handler.EnqueueRequestForOwner(scheme.Scheme, mapper, deployments, handler.OnlyControllerOwner())),
		"EnqueueRequestsFromMapFunc": judge[client.Object](&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(
			func(ctx context.Context, o client.Object) []reconcile.Request {
				return usersOf(ctx, o.(*corev1.ConfigMap))
			})),
		"TypedEnqueueRequestsFromMapFunc": judge(&corev1.ConfigMap{}, handler.TypedEnqueueRequestsFromMapFunc(usersOf)),
		"TypedEnqueueRequestForObject": judge(&corev1.ConfigMap{},
			&handler.TypedEnqueueRequestForObject[*corev1.ConfigMap]{},
			predicate.NewTypedPredicateFuncs(func(o *corev1.ConfigMap) bool { return o.Data["data"] != "2" })),
		"Funcs": judge[client.Object](&corev1.ConfigMap{}, each),
		"WithLowPriorityWhenUnchanged": judge[client.Object](&corev1.ConfigMap{},
			handler.WithLowPriorityWhenUnchanged[client.Object, reconcile.Request](handler.Funcs{
				CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
					q.AddAfter(request("create", e.Object), time.Minute)
					q.AddRateLimited(request("create", e.Object))
				},
			})),
		"wrapped": judgeWrapped(each),
		"priorities": judge[client.Object](&corev1.ConfigMap{}, handler.Funcs{
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
				q.(priorityqueue.PriorityQueue[reconcile.Request]).AddWithOpts(
					priorityqueue.AddOpts{Priority: new(7), After: time.Minute},
					request("1", e.ObjectNew), request("2", e.ObjectNew))
			},
		}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { besideControllerRuntime(t, row, mapper) })
		})
	}
}

// besideControllerRuntime has the same events delivered by both sources, and
// compares what is added to their queues after each change.
func besideControllerRuntime(t *testing.T, row judged, mapper meta.RESTMapper) {
	t.Helper()
	fleet := clustercachetest.New(t, clustercachetest.Options{})
	east := fleet.Add("east", deploymentUsing("a", ""), configMap("old", "1"))
	config := east.Config()
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	theirCache, err := cache.New(config, cache.Options{Scheme: scheme.Scheme, Mapper: mapper, HTTPClient: httpClient})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- theirCache.Start(ctx) }()
	var theirs, ours additions
	queue := newNotedQueue(&theirs, func(r reconcile.Request) client.ObjectKey { return r.NamespacedName })
	require.NoError(t, row.theirs(theirCache).Start(ctx, queue))
	defer func() {
		cancel()
		require.NoError(t, <-ended)
		queue.ShutDown()
		utilnet.CloseIdleConnectionsFor(httpClient.Transport)
	}()

	_ = build(t, fleet.ClusterCache(), func(b *fleetcontroller.Builder) {
		row.ours(b.For(&appsv1.Deployment{}, fleetcontroller.WithPredicates(never)).WithOptions(
			runtimecontroller.TypedOptions[fleetcontroller.Request]{
				NewQueue: func(
					string, workqueue.TypedRateLimiter[fleetcontroller.Request],
				) workqueue.TypedRateLimitingInterface[fleetcontroller.Request] {
					return newNotedQueue(&ours, func(r fleetcontroller.Request) client.ObjectKey {
						if r.Cluster != east.Key() || r.GVK != appsv1.SchemeGroupVersion.WithKind("Deployment") {
							return client.ObjectKey{Name: "not " + r.String()}
						}
						return r.ObjectKey
					})
				},
			}), fleet.ClusterCache())
	})

	some := 0
	same := func(after string) {
		t.Helper()
		time.Sleep(time.Minute)
		synctest.Wait()
		want := theirs.take()
		require.Equal(t, want, ours.take(), after)
		some += len(want)
	}
	same("the initial list")
	change := func(name, data string, change func(client.Object) error) {
		t.Helper()
		o := configMap(name, data)
		for i, owner := range []string{"a", data} { // which changes with the data
			o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{
				APIVersion: "apps/v1",
				Kind:       "Deployment",
				Name:       owner,
				UID:        "1",
				Controller: new(i == 1),
			})
		}
		require.NoError(t, change(o))
		same(name + " " + data)
	}
	create := func(o client.Object) error { return east.Client().Create(t.Context(), o) }
	update := func(o client.Object) error { return east.Client().Update(t.Context(), o) }
	remove := func(o client.Object) error { return east.Client().Delete(t.Context(), o) }
	change("new", "1", create)
	change("new", "2", update)
	change("old", "3", update)
	change("new", "4", update)
	change("new", "4", remove)
	change("new", "5", create)
	require.Positive(t, some)
}

var never = predicate.NewPredicateFuncs(func(client.Object) bool { return false })

// noted is a handler of all clusters that notes its events.
func noted(to *additions) handler.TypedEventHandler[client.Object, fleetcontroller.Request] {
	type queue = workqueue.TypedRateLimitingInterface[fleetcontroller.Request]
	note := func(ctx context.Context, text string, o client.Object) {
		cluster, _ := fleetcontroller.ClusterFromContext(ctx)
		to.add(text+" in "+cluster.Name, client.ObjectKeyFromObject(o))
	}
	return handler.TypedFuncs[client.Object, fleetcontroller.Request]{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, _ queue) {
			note(ctx, fmt.Sprint("create ", e.IsInInitialList), e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ queue) {
			note(ctx, fmt.Sprint("update ", e.ObjectOld.(*corev1.ConfigMap).Data["data"], " ",
				e.ObjectNew.(*corev1.ConfigMap).Data["data"]), e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ queue) {
			note(ctx, fmt.Sprint("delete ", e.Object.(*corev1.ConfigMap).Data["data"], " ", e.DeleteStateUnknown),
				e.Object)
		},
		GenericFunc: func(ctx context.Context, e event.GenericEvent, _ queue) { note(ctx, "generic", e.Object) },
	}
}

// TestHandlerIsToldWhatHappensToAClusterItself: what is concluded from an
// absence is marked, a change right before a deletion is delivered as well, and
// a cluster that is removed has no objects any more.
func TestHandlerIsToldWhatHappensToAClusterItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		east := fleet.Add("east", configMap("one", "1"), configMap("two", "1"))
		var events additions
		busy := make(chan struct{})
		_ = build(t, fleet.ClusterCache(), func(b *fleetcontroller.Builder) {
			b.Named("noted").WatchesHandler(&corev1.ConfigMap{}, noted(&events), fleetcontroller.WithPredicates(
				predicate.NewPredicateFuncs(func(o client.Object) bool {
					if o.GetName() == "slow" {
						<-busy
					}
					return true
				})))
		})
		told := func() []string {
			time.Sleep(time.Minute)
			synctest.Wait()
			return events.take()
		}
		require.Equal(t, []string{"create true in east default/one", "create true in east default/two"}, told())

		require.NoError(t, east.Client().Create(t.Context(), configMap("slow", "1")))
		require.Empty(t, told(), "it waits for the predicate")
		require.NoError(t, east.Client().Update(t.Context(), configMap("one", "2")))
		require.NoError(t, east.Client().Update(t.Context(), configMap("one", "3")))
		require.NoError(t, east.Client().Update(t.Context(), configMap("two", "2")))
		require.NoError(t, east.Client().Update(t.Context(), configMap("two", "3")))
		require.NoError(t, east.Client().Delete(t.Context(), configMap("two", "")))
		time.Sleep(time.Minute)
		close(busy)
		require.Equal(t, []string{
			"create false in east default/slow",
			"delete 3 false in east default/two",
			"update 1 3 in east default/one",
			"update 1 3 in east default/two",
		}, told())

		east.Remove()
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{
			"delete 1 true in east default/slow",
			"delete 3 true in east default/one",
		}, told())
	})
}

// TestHandlerIsNotToldOfAnObjectThatDoesNotFitItsType, which is logged. An
// object that did not fit before is new to it.
func TestHandlerIsNotToldOfAnObjectThatDoesNotFitItsType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gadget := schema.GroupVersionKind{Group: "shop.example", Version: "v1", Kind: "Gadget"}
		fleet := clustercachetest.New(t, clustercachetest.Options{Kinds: []clustercachetest.Kind{{GVK: gadget}}})
		east := fleet.Add("east")
		book := &fleettest.Logbook{}
		o := fleettest.Silent(fleet.Resolver())
		o.Logger, o.Discover, o.Scheme = book.Logger(), true, runtime.NewScheme()
		o.Scheme.AddKnownTypeWithName(gadget, &corev1.ConfigMap{}) // the servers know nothing of its type
		var events additions
		_ = build(t, fleettest.Start(t, o), func(b *fleetcontroller.Builder) {
			b.Named("noted").WatchesHandler(&corev1.ConfigMap{}, noted(&events))
		})()
		object := func(value any) client.Object {
			u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"data": value}}}
			u.SetGroupVersionKind(gadget)
			u.SetNamespace("default")
			u.SetName("one")
			return u
		}
		after := func(change func(), told ...string) {
			t.Helper()
			change()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, told, events.take())
			require.Equal(t, 1, book.Count("Object cannot be given to a predicate or handler", "default/one"),
				book.Lines)
		}
		after(func() { east.Store(object(int64(1))) })
		after(func() { east.Store(object("2")) }, "create false in east default/one")
		after(func() { east.Store(object(int64(3))) })
		after(func() { require.NoError(t, east.Client().Delete(t.Context(), object(""))) })
	})
}

// TestHandlerSeesTheObjectsOfAClusterThatIsGained as at the start of a
// controller: a handler that looks for changes would request nothing otherwise.
func TestHandlerSeesTheObjectsOfAClusterThatIsGained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		share := clustercachetest.NewSharding()
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		api.Put("one", "1", nil)
		d.Set(fleettest.Key("a"), api.Config())
		o := fleettest.Silent(d)
		o.Discover, o.Sharding = true, share
		cc := fleettest.Start(t, o)
		var events additions
		_ = build(t, cc, func(b *fleetcontroller.Builder) {
			b.Named("noted").WatchesHandler(&corev1.ConfigMap{}, noted(&events))
		})
		for range 2 {
			share.StandBy(fleettest.Key("a"))
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Empty(t, events.take(), "not owned")
			share.Gain(fleettest.Key("a"))
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, []string{"create true in a default/one"}, events.take())
			share.Lose(fleettest.Key("a"))
			time.Sleep(time.Minute)
			synctest.Wait()
		}
	})
}

// TestQueueOfAHandlerIsTheControllersToRun: a handler adds to it, and asks for
// its type, as those of controller-runtime do. What takes requests out does
// nothing.
func TestQueueOfAHandlerIsTheControllersToRun(t *testing.T) {
	type queue = workqueue.TypedRateLimitingInterface[fleetcontroller.Request]
	for name, of := range map[string]func(queue) queue{
		"without priorities": func(q queue) queue { return struct{ queue }{q} },
		"with priorities":    func(q queue) queue { return q },
	} {
		synctest.Test(t, func(t *testing.T) {
			fleet := clustercachetest.New(t, clustercachetest.Options{})
			east := fleet.Add("east", configMap("one", "1"))
			var prioritized, lent []bool
			ours := fleetcontroller.PerClusterHandler(fleet.ClusterCache(), func(client.Client) handler.EventHandler {
				return handler.Funcs{CreateFunc: func(
					_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request],
				) {
					_, ok := q.(priorityqueue.PriorityQueue[reconcile.Request])
					prioritized = append(prioritized, ok)
					_, shutdown := q.Get()
					lent = append(lent, !shutdown, q.ShuttingDown(), q.Len() > 0)
					q.Done(reconcile.Request{})
					q.ShutDown()
					q.ShutDownWithDrain()
					q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
				}}
			})
			got := build(t, fleet.ClusterCache(), func(b *fleetcontroller.Builder) {
				b.Named("queue").WatchesHandler(&corev1.ConfigMap{},
					handler.TypedFuncs[client.Object, fleetcontroller.Request]{
						CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
							ours.Create(ctx, e, of(q))
						},
					})
			})
			require.Equal(t, []fleetcontroller.Request{
				{Cluster: east.Key(), ObjectKey: client.ObjectKeyFromObject(configMap("one", ""))},
			}, got(), name)
			require.Equal(t, []bool{name == "with priorities"}, prioritized)
			require.Equal(t, []bool{false, false, false}, lent)
		})
	}
}
