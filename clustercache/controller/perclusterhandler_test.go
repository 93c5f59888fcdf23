// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	fleetcontroller "github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// usersOf has a mapping function that was written for one cluster: it reads the
// Deployments that use a ConfigMap by an index, with the manager's client.
type usersOf struct {
	client client.Client
	asked  func(context.Context)
}

func (u *usersOf) of(ctx context.Context, configMap client.Object) []reconcile.Request {
	if u.asked != nil {
		u.asked(ctx)
	}
	users := &appsv1.DeploymentList{}
	if err := u.client.List(ctx, users, client.MatchingFields{"uses": configMap.GetName()}); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range users.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&users.Items[i])})
	}
	return requests
}

func configMap(name, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:       map[string]string{"data": data},
	}
}

func deploymentUsing(name, uses string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default",
		Name:      name,
		Labels:    map[string]string{"uses": uses},
	}}
}

// indexed is the options of a ClusterCache with the index that usersOf reads.
func indexed() clustercachetest.Options {
	return clustercachetest.Options{Cache: clustercache.Options{Indexes: []clustercache.Index{{
		GVK:    appsv1.SchemeGroupVersion.WithKind("Deployment"),
		Field:  "uses",
		Values: func(o client.Object) []string { return []string{o.GetLabels()["uses"]} },
	}}}}
}

// build starts a controller, and returns what its reconciler was called for
// since the function was last called.
func build(
	t *testing.T, cc *clustercache.ClusterCache, with func(*fleetcontroller.Builder),
) func() []fleetcontroller.Request {
	t.Helper()
	mgr := fleettest.NewManager()
	b := fleetcontroller.NewControllerManagedBy(mgr, cc)
	with(b)
	var got []fleetcontroller.Request
	_, err := b.Build(reconcile.TypedFunc[fleetcontroller.Request](
		func(_ context.Context, r fleetcontroller.Request) (reconcile.Result, error) {
			got = append(got, r)
			return reconcile.Result{}, nil
		}))
	require.NoError(t, err)
	fleettest.Run(t, mgr.Added[0])
	return func() []fleetcontroller.Request {
		time.Sleep(time.Minute)
		synctest.Wait()
		defer func() { got = nil }()
		return got
	}
}

// TestHandlerOfOneClusterWorksInAll: its mapping function lists by an index with
// the client of the object's cluster, and what it requests is the same request
// as the one of the object itself.
func TestHandlerOfOneClusterWorksInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, indexed())
		east := fleet.Add("east",
			configMap("settings", "1"), deploymentUsing("a", "settings"), deploymentUsing("b", "other"))
		fleet.Add("west", configMap("settings", "1"), deploymentUsing("c", "settings"))
		cc := fleet.ClusterCache()
		var in []client.ObjectKey
		got := build(t, cc, func(b *fleetcontroller.Builder) {
			b.For(&appsv1.Deployment{}).WatchesHandler(&corev1.ConfigMap{}, fleetcontroller.PerClusterHandler(cc,
				func(c client.Client) handler.EventHandler {
					ofClient, known := fleetcontroller.ClusterOf(c)
					require.True(t, known)
					return handler.EnqueueRequestsFromMapFunc((&usersOf{client: c, asked: func(ctx context.Context) {
						cluster, known := fleetcontroller.ClusterFromContext(ctx)
						require.True(t, known)
						require.Equal(t, cluster, ofClient)
						in = append(in, cluster)
					}}).of)
				}))
		})
		request := func(name string) fleetcontroller.Request {
			return fleetcontroller.Request{
				Cluster:   client.ObjectKey{Name: "east"},
				GVK:       appsv1.SchemeGroupVersion.WithKind("Deployment"),
				ObjectKey: client.ObjectKey{Namespace: "default", Name: name},
			}
		}
		require.Contains(t, got(), request("b"), "the Deployments themselves")

		in = nil
		require.NoError(t, east.Client().Update(t.Context(), configMap("settings", "2")))
		require.Equal(t, []fleetcontroller.Request{request("a")}, got())
		require.Contains(t, in, client.ObjectKey{Name: "east"})
		require.NotContains(t, in, client.ObjectKey{Name: "west"})
	})
}

// clientOf returns the client that the handler of a controller gets in the only
// cluster of a fleet.
func clientOf(t *testing.T, fleet *clustercachetest.Fleet, with func(*fleetcontroller.Builder)) (c client.Client) {
	t.Helper()
	_ = build(t, fleet.ClusterCache(), func(b *fleetcontroller.Builder) {
		with(b.Named("client"))
		b.WatchesHandler(&corev1.ConfigMap{}, fleetcontroller.PerClusterHandler(fleet.ClusterCache(),
			func(of client.Client) handler.EventHandler {
				c = of
				return handler.Funcs{}
			}))
	})()
	require.NotNil(t, c)
	return c
}

// TestHandlerReadsTheCacheOfAClusterThatIsLost: the event was delivered before,
// and is not once more when the cluster is back, so what it requests would be
// lost.
func TestHandlerReadsTheCacheOfAClusterThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, indexed())
		east := fleet.Add("east", configMap("settings", "1"), deploymentUsing("a", "settings"))
		c := clientOf(t, fleet, func(b *fleetcontroller.Builder) { b.For(&appsv1.Deployment{}) })
		for _, lost := range []bool{false, true} {
			if lost {
				east.Disconnect()
				east.WaitPhase(status.PhaseDisconnected)
				time.Sleep(time.Hour)
				require.ErrorIs(t, fleet.ClusterCache().Cluster(east.Key()).Reader().List(t.Context(),
					&appsv1.DeploymentList{}),
					clustercache.ErrNotConnected)
			}
			a := client.ObjectKey{Namespace: "default", Name: "a"}
			require.NoError(t, c.Get(t.Context(), a, &appsv1.Deployment{}))
			require.Len(t, (&usersOf{client: c}).of(t.Context(), configMap("settings", "1")), 1)
			live := c.Get(t.Context(), a, &appsv1.Deployment{}, clustercache.LiveOnly)
			require.Equal(t, lost, errors.Is(live, clustercache.ErrNotConnected), "as the read asks for")
		}
	})
}

// TestHandlerReadsWhatIsNotWatched: the API server answers.
func TestHandlerReadsWhatIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, indexed())
		east := fleet.Add("east", configMap("settings", "1"), deploymentUsing("a", "settings"))
		c := clientOf(t, fleet, func(*fleetcontroller.Builder) {})
		require.Len(t, (&usersOf{client: c}).of(t.Context(), configMap("settings", "1")), 1)
		require.Len(t, east.Requests(clustercachetest.Verb("list"), clustercachetest.Resource("deployments")), 1)
	})
}

// TestHandlerOfAClusterThatIsGoneIsNotCalled: its client has no cluster to
// read, and requests of such clusters are dropped anyway. Neither is one that
// does not exist, which is logged.
func TestHandlerOfAClusterThatIsGoneIsNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		east := fleet.Add("east", configMap("one", "1"))
		book := &fleettest.Logbook{}
		called := 0
		ours := fleetcontroller.PerClusterHandler(fleet.ClusterCache(), func(client.Client) handler.EventHandler {
			called++
			return nil
		})
		e := event.CreateEvent{Object: configMap("one", "1")}
		ours.Create(ctrllog.IntoContext(t.Context(), book.Logger()), e, nil)
		require.Zero(t, called)
		require.Equal(t, 1, book.Count("Event dropped", "WatchesHandler"), book.Lines)

		_ = build(t, fleet.ClusterCache(), func(b *fleetcontroller.Builder) {
			b.Named("gone").WatchesHandler(&corev1.ConfigMap{},
				handler.TypedFuncs[client.Object, fleetcontroller.Request]{
					CreateFunc: func(
						ctx context.Context, e event.CreateEvent,
						q workqueue.TypedRateLimitingInterface[fleetcontroller.Request],
					) {
						ours.Create(ctrllog.IntoContext(ctx, book.Logger()), e, q)
						require.Equal(t, 1, called)
						east.Remove()
						time.Sleep(10 * time.Minute)
						ours.Create(ctx, e, q)
					},
				})
		})()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, called)
		require.Equal(t, 1, book.Count("Event dropped", "returned nil"), book.Lines)
	})
}

// TestRequestsOfMappingsHaveTheKindOfFor: a request without a kind would be
// another one than that of the object, and both would be reconciled at a time.
func TestRequestsOfMappingsHaveTheKindOfFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		fleet.Add("east", configMap("settings", "1"))
		deployments := appsv1.SchemeGroupVersion.WithKind("Deployment")
		other := corev1.SchemeGroupVersion.WithKind("Pod")
		mapping := func(_ context.Context, cluster client.ObjectKey, o client.Object) []fleetcontroller.Request {
			key := client.ObjectKeyFromObject(o)
			return []fleetcontroller.Request{{Cluster: cluster, ObjectKey: key},
				{Cluster: cluster, ObjectKey: key, GVK: other}}
		}
		kinds := func(got []fleetcontroller.Request) (kinds []string) {
			for _, r := range got {
				kinds = append(kinds, r.GVK.Kind)
			}
			return kinds
		}
		withFor := build(t, fleet.ClusterCache(), func(b *fleetcontroller.Builder) {
			b.Watches(&corev1.ConfigMap{}, mapping).For(&appsv1.Deployment{}).Named("with")
		})
		require.ElementsMatch(t, []string{deployments.Kind, other.Kind}, kinds(withFor()))
		without := build(t, fleet.ClusterCache(), func(b *fleetcontroller.Builder) {
			b.Watches(&corev1.ConfigMap{}, mapping).Named("without")
		})
		require.ElementsMatch(t, []string{"", other.Kind}, kinds(without()))
	})
}

// TestEventFilterConcernsEveryWatchedKind: as in controller-runtime, in
// addition to the predicates of the kind and to other filters.
func TestEventFilterConcernsEveryWatchedKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		owned := configMap("owned", "1")
		owned.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1",
			Kind:       "Deployment",
			Name:       "owner",
			UID:        "1",
			Controller: new(true),
		}}
		east := fleet.Add("east", deploymentUsing("a", ""), deploymentUsing("b", ""), deploymentUsing("c", ""), owned,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "d"}})
		got := build(t, fleet.ClusterCache(), func(b *fleetcontroller.Builder) {
			b.WithEventFilter(except("a")).
				For(&appsv1.Deployment{}, fleetcontroller.WithPredicates(except("b"))).
				Owns(&corev1.ConfigMap{}).
				Watches(&corev1.Secret{}, fleetcontroller.EnqueueObject).
				WatchesHandler(&corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(
					func(_ context.Context, o client.Object) []fleetcontroller.Request {
						return []fleetcontroller.Request{{ObjectKey: client.ObjectKeyFromObject(o)}}
					})).
				WithEventFilter(except("owned")).
				WithEventFilter(except("d"))
		})
		names := func() (names []string) {
			for _, r := range got() {
				names = append(names, r.Name)
			}
			return names
		}
		require.Equal(t, []string{"c"}, names())
		require.NoError(t, east.Client().Update(t.Context(), deploymentUsing("a", "x")))
		require.NoError(t, east.Client().Delete(t.Context(), owned))
		require.Empty(t, names())
	})
}
