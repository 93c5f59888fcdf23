// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

var foo = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Foo"}

// fooDefinition is the definition of a kind.
func fooDefinition(plural, scope string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": plural + ".example.com"},
		"spec": map[string]any{
			"group": "example.com",
			"scope": scope,
			"names": map[string]any{"kind": "Foo", "plural": plural, "singular": "foo", "listKind": "FooList"},
			"versions": []any{map[string]any{
				"name":    "v1",
				"served":  true,
				"storage": true,
				"schema":  map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
}

func fooNamed(namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(foo)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// direct returns a client with no cached mappings.
func direct(t *testing.T, c *clustercachetest.Cluster) client.Client {
	t.Helper()
	d, err := client.New(c.Config(), client.Options{})
	require.NoError(t, err)
	return d
}

// TestHazardDefinitionMadeAgainWithAnotherScopeOrPlural: watches follow,
// handlers receive the changes, and reads and writes go where the kind is
// served now.
func TestHazardDefinitionMadeAgainWithAnotherScopeOrPlural(t *testing.T) {
	for _, again := range []struct{ plural, scope, namespace string }{{"foos", "Cluster", ""},
		{"fooes", "Namespaced", "default"}} {
		t.Run(again.plural+" "+again.scope, func(t *testing.T) {
			fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
				c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
				admin := c.Client()
				definition := fooDefinition("foos", "Namespaced")
				require.NoError(t, admin.Create(t.Context(), definition))
				require.NoError(t, admin.Create(t.Context(), fooNamed("default", "old")))
				kind := clustercache.Kind(foo)
				feed := fleettest.FollowObjects(t,
					cc, events.Selection{Kinds: []client.Object{kind}, Watch: true})
				feed.WaitAll("old")
				writer, err := cc.Cluster(c.Key()).Client()
				require.NoError(t, err)
				require.NoError(t, writer.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "old"},
					fooNamed("", "")))
				require.NoError(t, writer.Create(t.Context(), fooNamed("default", "older")))
				feed.WaitAll("older")

				require.NoError(t, admin.Delete(t.Context(), definition))
				time.Sleep(30 * time.Second)
				require.NoError(t, admin.Create(t.Context(), fooDefinition(again.plural, again.scope)))
				require.NoError(t, direct(t, c).Create(t.Context(), fooNamed(again.namespace, "new")))
				feed.WaitAll("new")
				w, err := cc.Cluster(c.Key()).Watch(t.Context(), kind)
				require.NoError(t, err)
				require.NoError(t, w.WaitForSync(t.Context()))
				for _, mode := range []clustercache.ReadMode{clustercache.PreferCache, clustercache.CacheOnly} {
					list := fleettest.ListOf(foo)
					require.NoError(t, cc.Cluster(c.Key()).Reader().List(t.Context(), list, mode))
					require.Len(t, list.Items, 1)
				}
				require.NoError(t, cc.Cluster(c.Key()).Reader().Get(t.Context(),
					client.ObjectKey{Namespace: again.namespace, Name: "new"}, fooNamed("", "")))
				writeInTime(t, writer, fooNamed(again.namespace, "newer"))
				feed.WaitAll("newer")
			})
		})
	}
}

// writeInTime creates an object of a kind whose definition was just created
// again: for RetryInterval after the last discovery, the kind may not be known.
func writeInTime(t *testing.T, writer client.Client, object client.Object) {
	t.Helper()
	var err error
	for began := time.Now(); time.Since(began) <= 10*time.Second; time.Sleep(time.Second) {
		if err = writer.Create(t.Context(), object); !meta.IsNoMatchError(err) {
			break
		}
	}
	require.NoError(t, err)
}

// TestHazardDefinitionMadeAgainDuringAnOutage: a reconnect does not ask for the
// kinds, and the informer that finds no such resource, or lists it anew, has them
// asked for. The watch follows within two RetryIntervals.
func TestHazardDefinitionMadeAgainDuringAnOutage(t *testing.T) {
	for _, again := range []struct{ plural, scope, namespace string }{
		{"foos", "Namespaced", "default"}, {"foos", "Cluster", ""}, {"fooes", "Namespaced", "default"},
	} {
		t.Run(again.plural+" "+again.scope, func(t *testing.T) {
			fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
				c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
				definition := fooDefinition("foos", "Namespaced")
				require.NoError(t, c.Client().Create(t.Context(), definition))
				require.NoError(t, direct(t, c).Create(t.Context(), fooNamed("default", "old")))
				feed := fleettest.FollowObjects(t, cc, events.Selection{
					Kinds: []client.Object{clustercache.Kind(foo)}, Watch: true})
				feed.WaitAll("old")
				time.Sleep(time.Minute)

				c.Disconnect()
				c.WaitPhase(status.PhaseDisconnected)
				require.NoError(t, c.Client().Delete(t.Context(), definition))
				require.NoError(t, c.Client().Create(t.Context(), fooDefinition(again.plural, again.scope)))
				c.Connect()
				c.WaitPhase(status.PhaseReady)
				back := time.Now()
				require.NoError(t, direct(t, c).Create(t.Context(), fooNamed(again.namespace, "new")))
				feed.WaitAll("new")
				require.LessOrEqual(t, time.Since(back), 20*time.Second)
			})
		})
	}
}

// TestHazardScopeChangesInAMoment: a definition that is created again at once,
// with another scope and the same plural, fails no informer. The cached objects
// show how the kind is served before discovery is queried again.
func TestHazardScopeChangesInAMoment(t *testing.T) {
	for _, again := range []struct{ scope, namespace string }{{"Namespaced", "default"}, {"Cluster", ""}} {
		t.Run(again.scope, func(t *testing.T) {
			fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, f *clustercachetest.Fleet,
				c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
				admin := c.Client()
				was, place := "Cluster", ""
				if again.scope == was {
					was, place = "Namespaced", "default"
				}
				definition := fooDefinition("foos", was)
				require.NoError(t, admin.Create(t.Context(), definition))
				require.NoError(t, direct(t, c).Create(t.Context(), fooNamed(place, "old")))
				w, err := cc.Cluster(c.Key()).Watch(t.Context(), clustercache.Kind(foo))
				require.NoError(t, err)
				require.NoError(t, w.WaitForSync(t.Context()))

				require.NoError(t, admin.Delete(t.Context(), definition))
				require.NoError(t, admin.Create(t.Context(), fooDefinition("foos", again.scope)))
				require.NoError(t, direct(t, c).Create(t.Context(), fooNamed(again.namespace, "new")))
				other := fooNamed("kube-system", "other")
				if again.namespace == "" {
					other.SetNamespace("")
				}
				require.NoError(t, direct(t, c).Create(t.Context(), other))
				for range 20 {
					time.Sleep(time.Second)
					list := fleettest.ListOf(foo)
					if cc.Cluster(c.Key()).Reader().List(t.Context(), list, clustercache.CacheOnly) != nil ||
						len(list.Items) != 2 {
						continue // it has not listed yet
					}
					for _, mode := range []clustercache.ReadMode{clustercache.CacheOnly, clustercache.PreferCache} {
						require.NoError(t, cc.Cluster(c.Key()).Reader().Get(t.Context(),
							client.ObjectKey{Namespace: "default", Name: "new"}, fooNamed("", ""), mode))
						part := fleettest.ListOf(foo)
						require.NoError(t, cc.Cluster(c.Key()).Reader().List(t.Context(), part,
							client.InNamespace("default"),
							mode))
						if again.namespace == "" {
							require.Len(t, part.Items, 2, "the namespace is overlooked")
						} else {
							require.Len(t, part.Items, 1)
						}
					}
				}
				f.WaitSynced()
			})
		})
	}
}

// TestHazardScopeChangesUnderASubscriptionOfANamespace: one that listens to the
// watch of the whole kind receives what the API server has for its namespace by
// then: all objects of a kind without namespaces, and no others of a kind with.
func TestHazardScopeChangesUnderASubscriptionOfANamespace(t *testing.T) {
	for was, again := range map[string]string{"Cluster": "Namespaced", "Namespaced": "Cluster"} {
		t.Run(again, func(t *testing.T) {
			fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
				c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
				in := func(scope, namespace, name string) *unstructured.Unstructured {
					if scope == "Cluster" {
						namespace = ""
					}
					return fooNamed(namespace, name)
				}
				definition := fooDefinition("foos", was)
				require.NoError(t, c.Client().Create(t.Context(), definition))
				require.NoError(t, direct(t, c).Create(t.Context(), in(was, "default", "old")))
				w, err := cc.Cluster(c.Key()).Watch(t.Context(), clustercache.Kind(foo))
				require.NoError(t, err)
				require.NoError(t, w.WaitForSync(t.Context()))
				feed := fleettest.FollowObjects(t, cc, events.Selection{
					Kinds:   []client.Object{clustercache.Kind(foo)},
					Options: []client.ListOption{client.InNamespace("default")},
				})
				feed.WaitAll("old")

				require.NoError(t, c.Client().Delete(t.Context(), definition))
				time.Sleep(30 * time.Second)
				require.NoError(t, c.Client().Create(t.Context(), fooDefinition("foos", again)))
				require.NoError(t, direct(t, c).Create(t.Context(), in(again, "kube-system", "other")))
				require.NoError(t, direct(t, c).Create(t.Context(), in(again, "default", "new")))
				time.Sleep(2 * time.Minute)
				want := []string{"Deleted old", "Added new"}
				if again == "Cluster" {
					want = append(want, "Added other")
				}
				require.ElementsMatch(t, want, feed.Take())
			})
		})
	}
}

// TestHazardAnotherClusterServesOtherKinds: what was learned from the former
// cluster is not used for the one that replaced it.
func TestHazardAnotherClusterServesOtherKinds(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, f *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache) {
		require.NoError(t, c.Client().Create(t.Context(), fooDefinition("foos", "Namespaced")))
		w, err := cc.Cluster(c.Key()).Watch(t.Context(), clustercache.Kind(foo))
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
		c.NewEpoch()
		require.NoError(t, c.Client().Create(t.Context(), fooDefinition("fooes", "Cluster")))
		require.NoError(t, direct(t, c).Create(t.Context(), fooNamed("", "new")))
		time.Sleep(time.Minute)
		f.WaitSynced()
		list := fleettest.ListOf(foo)
		require.NoError(t, cc.Cluster(c.Key()).Reader().List(t.Context(), list, clustercache.CacheOnly))
		require.Len(t, list.Items, 1)
	})
}

// listOnly is an API server of one kind that can be read, but not watched.
func listOnly(t *testing.T, verbs ...string) (*rest.Config, *fleettest.API) {
	t.Helper()
	api := fleettest.NewAPI(t, "uid-a")
	inner := api.Handler
	api.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		write := func(body any) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(body)
		}
		switch {
		case r.URL.Path == "/api":
			write(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		case r.URL.Path == "/api/v1":
			write(metav1.APIResourceList{
				TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: "v1",
				APIResources: []metav1.APIResource{
					{Name: "configmaps", SingularName: "configmap", Namespaced: true, Kind: "ConfigMap", Verbs: verbs}},
			})
		case r.URL.Query().Get("watch") != "":
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			inner.ServeHTTP(w, r)
		}
	})
	return api.Config(), api
}

// TestHazardKindWithoutWatchIsReadLive: no informer is started for reads of it,
// and a Watch is polled or returns why not.
func TestHazardKindWithoutWatchIsReadLive(t *testing.T) {
	for _, verbs := range [][]string{{"get", "list"}, {"get"}} {
		synctest.Test(t, func(t *testing.T) {
			config, api := listOnly(t, verbs...)
			api.Put("one", "1", nil)
			d := fleettest.NewDirectory()
			d.Set(fleettest.Key("a"), config)
			cc := fleettest.Start(t, fleettest.Silent(d))
			require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
			synctest.Wait()
			for range 3 {
				origin := clustercache.Origin{}
				require.NoError(t, fleettest.Get(t, cc, clustercache.AutoWatch, &origin))
				require.False(t, origin.Cached)
				time.Sleep(time.Minute)
			}
			require.Zero(t, fleettest.Status(t, cc).Informers)
			w := fleettest.Watch(t, cc)
			if len(verbs) == 1 {
				require.ErrorIs(t, w.WaitForSync(t.Context()), clustercache.ErrNotWatchable)
				return
			}
			require.NoError(t, w.WaitForSync(t.Context()))
			origin := clustercache.Origin{}
			require.NoError(t, fleettest.Get(t, cc, &origin))
			require.False(t, origin.Cached, "a poll is as old as it is")
			require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly, &origin))
			require.True(t, origin.Cached)
		})
	}
}

// TestHazardWatchIsRefusedThoughDiscoveryHasIt: a polled answer counts as old,
// whatever discovery reports.
func TestHazardWatchIsRefusedThoughDiscoveryHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config, api := listOnly(t, "get", "list", "watch")
		api.Put("one", "1", nil)
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), config)
		cc := fleettest.Start(t, fleettest.Silent(d))
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		synctest.Wait()
		api.Put("two", "2", nil)
		list := &corev1.ConfigMapList{}
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), list))
		require.Len(t, list.Items, 2)
		time.Sleep(41 * time.Second)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), list, clustercache.CacheOnly))
		require.Len(t, list.Items, 2)
	})
}
