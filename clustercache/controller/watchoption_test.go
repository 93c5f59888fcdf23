// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// namesOf returns the names of requests, sorted.
func namesOf(requests []controller.Request) []string {
	names := []string{}
	for _, r := range requests {
		names = append(names, r.Namespace+"/"+r.Name)
	}
	slices.Sort(names)
	return names
}

func TestOwnsRequestsTheControllerOrEveryOwner(t *testing.T) {
	for name, tc := range map[string]struct {
		options []controller.WatchOption
		want    []string
	}{
		"controller":    {want: []string{"default/controls"}},
		"only metadata": {[]controller.WatchOption{controller.OnlyMetadata}, []string{"default/controls"}},
		"every owner": {
			[]controller.WatchOption{controller.MatchEveryOwner},
			[]string{"default/controls", "default/owns"},
		},
		"every owner, by metadata": {
			[]controller.WatchOption{controller.OnlyMetadata, controller.MatchEveryOwner},
			[]string{"default/controls", "default/owns"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fleet := clustercachetest.New(t, clustercachetest.Options{})
				owned := configMap("owned", "1")
				for i, owner := range []string{"controls", "owns"} {
					owned.OwnerReferences = append(owned.OwnerReferences, metav1.OwnerReference{
						APIVersion: "apps/v1",
						Kind:       "Deployment",
						Name:       owner,
						UID:        "1",
						Controller: new(i == 0),
					})
				}
				other := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "other", UID: "1"}
				owned.OwnerReferences = append(owned.OwnerReferences, other)
				fleet.Add("east", owned)
				got := build(t, fleet.ClusterCache(), func(b *controller.Builder) {
					b.For(&appsv1.Deployment{}).Owns(&corev1.ConfigMap{}, tc.options...)
				})
				require.Equal(t, tc.want, namesOf(got()))
			})
		})
	}
}

type mapFunc = controller.ObjectMapFunc[controller.Request]

// methods watch ConfigMaps by each method of a Builder that does. For and Owns
// have no mapping of their own.
var methods = map[string]func(b *controller.Builder, mapping mapFunc, options ...controller.WatchOption){
	"For": func(b *controller.Builder, _ mapFunc, options ...controller.WatchOption) {
		b.For(&corev1.ConfigMap{}, options...)
	},
	"Owns": func(b *controller.Builder, _ mapFunc, options ...controller.WatchOption) {
		b.For(&appsv1.Deployment{}).Owns(&corev1.ConfigMap{}, options...)
	},
	"Watches": func(b *controller.Builder, mapping mapFunc, options ...controller.WatchOption) {
		b.For(&appsv1.Deployment{}).Watches(&corev1.ConfigMap{}, mapping, options...)
	},
	"WatchesHandler": func(b *controller.Builder, mapping mapFunc, options ...controller.WatchOption) {
		b.For(&appsv1.Deployment{}).WatchesHandler(&corev1.ConfigMap{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []controller.Request {
				cluster, _ := controller.ClusterFromContext(ctx)
				return mapping(ctx, cluster, o)
			}), options...)
	},
}

// itself requests an object, without a kind.
func itself(_ context.Context, cluster client.ObjectKey, o client.Object) []controller.Request {
	return []controller.Request{{Cluster: cluster, ObjectKey: client.ObjectKeyFromObject(o)}}
}

// watches returns how many watches of ConfigMaps began from nothing.
func watches(c *clustercachetest.Cluster) (n int) {
	for _, r := range c.Requests(clustercachetest.Verb("watch"), clustercachetest.Resource("configmaps")) {
		if r.Initial {
			n++
		}
	}
	return n
}

// TestSelectionsNarrowWhatIsWatched: the server selects, and an object is
// watched if any of the selections has it.
func TestSelectionsNarrowWhatIsWatched(t *testing.T) {
	in := func(namespace, name, label string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      name,
			Labels:    map[string]string{"tier": label},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1",
				Kind:       "Deployment",
				Name:       name,
				UID:        "1",
				Controller: new(true),
			}},
		}}
	}
	for method, watch := range methods {
		for name, tc := range map[string]struct {
			options []controller.WatchOption
			want    []string
			watches int
		}{
			"all": {nil, []string{"a/x", "a/y", "b/x", "c/x"}, 1},
			"all, by no option": {
				[]controller.WatchOption{controller.Selecting()}, []string{"a/x", "a/y", "b/x", "c/x"}, 1,
			},
			"two namespaces": {[]controller.WatchOption{
				controller.Selecting(client.InNamespace("a")), controller.Selecting(client.InNamespace("b")),
			}, []string{"a/x", "a/y", "b/x"}, 2},
			"both of two options": {[]controller.WatchOption{
				controller.Selecting(client.InNamespace("a"), client.MatchingLabels{"tier": "1"}),
			}, []string{"a/x"}, 1},
			"a name": {[]controller.WatchOption{
				controller.Selecting(client.MatchingFields{"metadata.name": "y"}),
			}, []string{"a/y"}, 1},
			"two that overlap": {[]controller.WatchOption{
				controller.Selecting(client.InNamespace("a")), controller.Selecting(client.HasLabels{"tier"}),
			}, []string{"a/x", "a/y", "b/x", "c/x"}, 2},
			"one twice": {[]controller.WatchOption{
				controller.Selecting(client.InNamespace("c")), controller.Selecting(client.InNamespace("c")),
			}, []string{"c/x"}, 1},
			"with a predicate": {[]controller.WatchOption{
				controller.Selecting(client.InNamespace("a")),
				controller.WithPredicates(except("x")),
			}, []string{"a/y"}, 1},
		} {
			t.Run(method+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fleet := clustercachetest.New(t, clustercachetest.Options{})
					east := fleet.Add("east",
						in("a", "x", "1"), in("a", "y", "2"), in("b", "x", "1"), in("c", "x", "2"))
					got := build(t, fleet.ClusterCache(), func(b *controller.Builder) {
						watch(b, itself, tc.options...)
					})
					require.Equal(t, tc.want, slices.Compact(namesOf(got())))
					require.Equal(t, tc.watches, watches(east))
					require.NoError(t, east.Client().Delete(t.Context(), in("c", "x", "")))
					require.Equal(t, slices.Contains(tc.want, "c/x"), len(got()) > 0)
				})
			})
		}
	}
}

func except(name string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() != name })
}

// TestOnlyMetadataIsGivenToFunctions, and both forms of the kind are one watch.
func TestOnlyMetadataIsGivenToFunctions(t *testing.T) {
	for method, watch := range methods {
		for _, only := range []bool{false, true} {
			t.Run(fmt.Sprint(method, " ", only), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					want := reflect.TypeFor[*corev1.ConfigMap]()
					var options []controller.WatchOption
					if only {
						want = reflect.TypeFor[*metav1.PartialObjectMetadata]()
						options = append(options, controller.OnlyMetadata)
					}
					fleet := clustercachetest.New(t, clustercachetest.Options{})
					east := fleet.Add("east", configMap("one", "1"))
					seen := map[reflect.Type]bool{}
					look := predicate.NewPredicateFuncs(func(o client.Object) bool {
						seen[reflect.TypeOf(o)] = true
						return true
					})
					mapping := func(_ context.Context, _ client.ObjectKey, o client.Object) []controller.Request {
						seen[reflect.TypeOf(o)] = true
						return nil
					}
					_ = build(t, fleet.ClusterCache(), func(b *controller.Builder) {
						watch(b.Watches(&corev1.ConfigMap{}, controller.EnqueueObject), mapping,
							append(options, controller.WithPredicates(look))...)
					})()
					require.Equal(t, map[reflect.Type]bool{want: true}, seen)
					require.Equal(t, 1, watches(east))
				})
			})
		}
	}
}

// TestTypedPredicateReceivesItsType in all verbs, beside those of any object.
func TestTypedPredicateReceivesItsType(t *testing.T) {
	for method, watch := range methods {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fleet := clustercachetest.New(t, clustercachetest.Options{})
				east := fleet.Add("east", configMap("one", "1"), configMap("two", "1"))
				var seen []string
				_ = build(t, fleet.ClusterCache(), func(b *controller.Builder) {
					watch(b, itself,
						controller.WithPredicates(predicate.ResourceVersionChangedPredicate{}, except("two")),
						controller.WithPredicates(predicate.TypedFuncs[*corev1.ConfigMap]{
							CreateFunc: func(e event.TypedCreateEvent[*corev1.ConfigMap]) bool {
								seen = append(seen, fmt.Sprint("create ", e.IsInInitialList, e.Object.Data["data"]))
								return true
							},
							DeleteFunc: func(e event.TypedDeleteEvent[*corev1.ConfigMap]) bool {
								seen = append(seen, fmt.Sprint("delete ", e.DeleteStateUnknown, e.Object.Data["data"]))
								return true
							},
						}),
						controller.WithPredicates(predicate.Or(predicate.TypedFuncs[*corev1.ConfigMap]{
							UpdateFunc: func(e event.TypedUpdateEvent[*corev1.ConfigMap]) bool {
								seen = append(seen, "update "+e.ObjectOld.Data["data"]+e.ObjectNew.Data["data"])
								return true
							},
						})))
				})()
				require.NoError(t, east.Client().Update(t.Context(), configMap("one", "2")))
				synctest.Wait()
				require.NoError(t, east.Client().Delete(t.Context(), configMap("one", "")))
				synctest.Wait()
				require.Equal(t, []string{"create true1", "update 12", "delete false2"}, seen)
			})
		})
	}
}

// TestBuilderRefusesOptionsThatDoNotFit: the error names the method, and what
// does not fit.
func TestBuilderRefusesOptionsThatDoNotFit(t *testing.T) {
	cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
	require.NoError(t, err)
	pods := controller.WithPredicates(predicate.TypedFuncs[*corev1.Pod]{})
	maps := controller.WithPredicates(predicate.TypedFuncs[*corev1.ConfigMap]{})
	nothing := controller.WithPredicates[client.Object](nil)
	options := func(o ...controller.WatchOption) []controller.WatchOption { return o }
	for method, watch := range methods {
		for name, tc := range map[string]struct {
			options []controller.WatchOption
			says    []string
		}{
			"no option":          {options(nil), []string{"option of " + method, "required"}},
			"no predicate":       {options(nothing), []string{"predicate", "required"}},
			"another type":       {options(pods), []string{"predicate", "*v1.Pod", method, "*v1.ConfigMap"}},
			"a type of metadata": {options(maps, controller.OnlyMetadata), []string{method, "*v1.PartialObject"}},
			"pages":              {options(controller.Selecting(client.Limit(3))), []string{method, "Limit"}},
			"an option of reads": {options(controller.Selecting(clustercache.CacheOnly)), []string{method, "of reads"}},
			"owners":             {options(controller.MatchEveryOwner), []string{method, "MatchEveryOwner"}},
		} {
			if method == "Owns" && name == "owners" {
				continue
			}
			b := controller.NewControllerManagedBy(fleettest.NewManager(), cc)
			watch(b, itself, tc.options...)
			err := b.Complete(func(client.Client) reconcile.Reconciler { return nil })
			var invalid *clustercache.OptionError
			require.ErrorAs(t, err, &invalid, "%s %s", method, name)
			for _, text := range tc.says {
				require.ErrorContains(t, err, text, "%s %s", method, name)
			}
		}
	}
	err = controller.NewControllerManagedBy(fleettest.NewManager(), cc).Named("x").
		WatchesHandler(&corev1.ConfigMap{}, controller.PerClusterHandler(cc,
			func(client.Client) handler.TypedEventHandler[*corev1.Pod, reconcile.Request] { return nil })).
		Complete(func(client.Client) reconcile.Reconciler { return nil })
	require.ErrorContains(t, err,
		"option handler: is for objects of type *v1.Pod, and WatchesHandler has objects of type *v1.ConfigMap")
}
