// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/watchset"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// form is a way to name a kind, and to look at its objects.
type form struct {
	kind client.Object
	// value returns the object's data, or panics if the object has another
	// type, as functions do that are written for one type.
	value func(client.Object) string
	// lenient makes a predicate let no object of another type pass, instead of
	// a panic.
	lenient bool
}

// forms are those in which operators name kinds.
func forms() map[string]form {
	untyped := &unstructured.Unstructured{}
	untyped.SetGroupVersionKind(fleettest.ConfigMap)
	typed := func(o client.Object) string { return o.(*corev1.ConfigMap).Data["value"] }
	return map[string]form{
		"typed":           {kind: &corev1.ConfigMap{}, value: typed},
		"typed, if it is": {kind: &corev1.ConfigMap{}, value: typed, lenient: true},
		"unstructured": {kind: untyped, value: func(o client.Object) string {
			value, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "data", "value")
			return value
		}},
		"metadata": {kind: clustercache.Kind(fleettest.ConfigMap), value: func(o client.Object) string {
			return o.(*metav1.PartialObjectMetadata).Annotations["value"]
		}},
	}
}

// seen are the values that the functions of a door were called with.
type seen struct {
	mu     sync.Mutex
	values map[string][]string
}

func (s *seen) add(by, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[by] = append(s.values[by], value)
}

// take returns the values since the last call. A mapping function may be called
// with several states of a deleted object that are alike.
func (s *seen) take() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := s.values
	s.values = map[string][]string{}
	for by := range values {
		values[by] = slices.Compact(values[by])
	}
	return values
}

// predicate returns one for objects in a form. It reads each object.
func (s *seen) predicate(f form) predicate.Predicate {
	see := func(verb string, objects ...client.Object) bool {
		text := verb
		for _, o := range objects {
			if f.lenient && reflect.TypeOf(o) != reflect.TypeOf(f.kind) {
				return false
			}
			text += " " + f.value(o)
		}
		s.add("predicate", text)
		return true
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			if e.IsInInitialList {
				return see("initial", e.Object)
			}
			return see("create", e.Object)
		},
		UpdateFunc:  func(e event.UpdateEvent) bool { return see("update", e.ObjectOld, e.ObjectNew) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return see("delete", e.Object) },
		GenericFunc: func(e event.GenericEvent) bool { return see("generic", e.Object) },
	}
}

// mapping returns one for objects in a form, which requests the object.
func (s *seen) mapping(value func(client.Object) string) controller.ObjectMapFunc[controller.Request] {
	return func(ctx context.Context, cluster client.ObjectKey, o client.Object) []controller.Request {
		s.add("mapping", value(o))
		return controller.EnqueueObject(ctx, cluster, o)
	}
}

// door is a way to receive the events of a kind's objects.
type door struct {
	// open begins to call the functions, until the test ends.
	open func(t *testing.T, cc *clustercache.ClusterCache, f form, s *seen)
	// maps reports whether the user has a mapping function as well, and
	// predicates whether the user has those.
	maps, predicates bool
	requests         string // the object that is reconciled; empty: the one that changed
}

// run runs a controller until the test ends.
func run(t *testing.T, cc *clustercache.ClusterCache, s *seen, set func(*controller.Builder)) {
	t.Helper()
	mgr := fleettest.NewManager()
	b := controller.NewControllerManagedBy(mgr, cc).Named("forms")
	set(b)
	_, err := b.Build(reconcile.TypedFunc[controller.Request](
		func(_ context.Context, r controller.Request) (reconcile.Result, error) {
			s.add("request", r.Name)
			return reconcile.Result{}, nil
		}))
	require.NoError(t, err)
	fleettest.Run(t, mgr.Added[0])
}

// doors are all of them. ObjectSource is one for each representation that its
// mapping function may ask for, whatever the predicates do.
func doors() map[string]door {
	all := map[string]door{
		"For": {predicates: true, open: func(t *testing.T, cc *clustercache.ClusterCache, f form, s *seen) {
			run(t, cc, s, func(b *controller.Builder) { b.For(f.kind, controller.WithPredicates(s.predicate(f))) })
		}},
		"Owns": {
			predicates: true,
			requests:   "owner",
			open: func(t *testing.T, cc *clustercache.ClusterCache, f form, s *seen) {
				run(t, cc, s, func(b *controller.Builder) {
					b.For(&corev1.Secret{}).Owns(f.kind, controller.WithPredicates(s.predicate(f)))
				})
			},
		},
		"Watches": {
			predicates: true,
			maps:       true,
			open: func(t *testing.T, cc *clustercache.ClusterCache, f form, s *seen) {
				run(t, cc, s, func(b *controller.Builder) {
					b.Watches(f.kind, s.mapping(f.value), controller.WithPredicates(s.predicate(f)))
				})
			},
		},
		"WatchesHandler": {
			predicates: true,
			maps:       true,
			open: func(t *testing.T, cc *clustercache.ClusterCache, f form, s *seen) {
				run(t, cc, s, func(b *controller.Builder) {
					b.WatchesHandler(f.kind, handler.TypedEnqueueRequestsFromMapFunc(
						func(ctx context.Context, o client.Object) []controller.Request {
							cluster, _ := controller.ClusterFromContext(ctx)
							return s.mapping(f.value)(ctx, cluster, o)
						}), controller.WithPredicates(s.predicate(f)))
				})
			},
		},
		"WatchSet": {maps: true, open: openWatchSet},
	}
	given := forms()
	for r, value := range map[events.Representation]func(client.Object) string{
		events.AsGiven:      nil,
		events.Typed:        given["typed"].value,
		events.Unstructured: given["unstructured"].value,
		events.Metadata:     given["metadata"].value,
		events.Packed: func(o client.Object) string {
			return o.(*informerpool.Object).GetAnnotations()["value"]
		},
	} {
		all[fmt.Sprintf("ObjectSource, whose mapping asks for %d", r)] = door{
			predicates: true,
			maps:       true,
			open: func(t *testing.T, cc *clustercache.ClusterCache, f form, s *seen) {
				read := value
				if read == nil {
					read = f.value
				}
				source := controller.ObjectSource(cc, events.Selection{
					Kinds:      []client.Object{f.kind},
					Watch:      true,
					Predicates: []predicate.Predicate{s.predicate(f)},
				}, s.mapping(read), controller.ObjectSourceOptions{Representation: r})
				run(t, cc, s, func(b *controller.Builder) { b.WatchesRawSource(source) })
			},
		}
	}
	return all
}

// openWatchSet watches the kind by name. Its events have cached objects, which
// the user decodes into any form.
func openWatchSet(t *testing.T, cc *clustercache.ClusterCache, f form, s *seen) {
	t.Helper()
	set, err := watchset.New(cc, watchset.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close(context.Background())) })
	source := watchset.Source(set, func(_ context.Context, e watchset.Event) []controller.Request {
		for _, o := range []*informerpool.Object{e.Old, e.New} {
			if o == nil {
				continue
			}
			into := f.kind.DeepCopyObject().(client.Object)
			require.NoError(t, o.Into(into))
			s.add("mapping", f.value(into))
		}
		return []controller.Request{{Cluster: e.Cluster, ObjectKey: client.ObjectKeyFromObject(e.Object())}}
	})
	run(t, cc, s, func(b *controller.Builder) { b.WatchesRawSource(source) })
	cluster := cc.Statuses()[0].Cluster
	_, err = set.Replace(t.Context(), map[string]watchset.Entry{"all": {Cluster: cluster, GVK: fleettest.ConfigMap}})
	require.NoError(t, err)
}

// TestHazardFunctionIsGivenAnotherFormThanItAskedFor: predicates and mapping
// functions are written for the type by which the kind is named, or which the
// mapping asks for. With another type they panic for each event, or let none
// pass in silence.
func TestHazardFunctionIsGivenAnotherFormThanItAskedFor(t *testing.T) {
	for way, d := range doors() {
		for name, f := range forms() {
			t.Run(way+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testForms(t, d, f) })
			})
		}
	}
}

func testForms(t *testing.T, d door, f form) {
	object := func(name, value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:   "default",
				Name:        name,
				Annotations: map[string]string{"value": value},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "v1",
					Kind:       "Secret",
					Name:       "owner",
					UID:        "u",
					Controller: new(true),
				}},
			},
			Data: map[string]string{"value": value},
		}
	}
	fleet := clustercachetest.New(t, clustercachetest.Options{})
	remote := fleet.Add("fleet/a", object("one", "first"))
	cc := fleet.ClusterCache()
	require.NoError(t, cc.Cluster(remote.Key()).Engage())
	s := &seen{values: map[string][]string{}}
	d.open(t, cc, f, s)
	expect := func(name, predicate string, mapped ...string) {
		t.Helper()
		time.Sleep(time.Minute)
		synctest.Wait()
		want := map[string][]string{"request": {name}}
		if d.requests != "" {
			want["request"] = []string{d.requests}
		}
		if d.predicates {
			want["predicate"] = []string{predicate}
		}
		if d.maps {
			want["mapping"] = mapped
		}
		require.Equal(t, want, s.take())
	}

	expect("one", "initial first", "first")
	admin := remote.Client()
	changed := object("two", "second")
	require.NoError(t, admin.Create(t.Context(), changed))
	expect("two", "create second", "second")
	changed.Annotations["value"], changed.Data["value"] = "third", "third"
	require.NoError(t, admin.Update(t.Context(), changed))
	expect("two", "update second third", "second", "third")
	require.NoError(t, admin.Delete(t.Context(), changed))
	expect("two", "delete third", "third")
}
