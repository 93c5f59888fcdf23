// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// hooks are called by user functions before they do their work.
type hooks struct {
	mu   sync.Mutex
	does map[string]func()
	hits map[string]int
}

func (h *hooks) at(place string) {
	h.mu.Lock()
	f := h.does[place]
	if f != nil {
		h.hits[place]++
	}
	h.mu.Unlock()
	if f != nil {
		f()
	}
}

func (h *hooks) calm() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.does = nil
}

// Resolve implements clustercache.Resolver.
func (r *hookedResolver) Resolve(ctx context.Context, key client.ObjectKey) (resolver.Access, error) {
	r.at("Resolver.Resolve")
	return r.Directory.Resolve(ctx, key)
}

// Notify implements clustercache.Notifier.
func (r *hookedResolver) Notify(ctx context.Context, changed func(client.ObjectKey)) error {
	r.at("Resolver.Notify")
	return r.Directory.Notify(ctx, changed)
}

// Clusters implements clustercache.Lister.
func (r *hookedResolver) Clusters(ctx context.Context) ([]client.ObjectKey, error) {
	r.at("Resolver.Clusters")
	return r.Directory.Clusters(ctx)
}

type hookedResolver struct {
	*fleettest.Directory
	*hooks
}

// userFunctions are all functions that a user can pass to the package, each
// with the name under which its panics are counted.
var userFunctions = map[string]string{
	"Resolver.Resolve":         "Resolver.Resolve",
	"Resolver.Notify":          "Resolver.Notify",
	"Resolver.Clusters":        "Resolver.Clusters",
	"Dial of the access":       "Dial of the access",
	"Options.Dial":             "Options.Dial",
	"WrapTransport":            "WrapTransport",
	"Proxy of the access":      "Proxy of the access",
	"Index.Values":             "Index.Values",
	"GC.InUse":                 "GC.InUse",
	"Informers.Transforms":     "Transforms",
	"Informers.OnListed":       "OnListed",
	"Informers.OnFailed":       "OnFailed",
	"Informers.OnPanic":        "Handler", // called for a panic of the Handler
	"handler":                  "Handler",
	"Selection.Clusters":       "Selection.Clusters",
	"predicate":                "Handler",
	"ObjectMapFunc":            "Handler",
	"ClusterMapFunc":           "handler of cluster events",
	"ClusterSource's Clusters": "handler of cluster events",
	"ClusterSource's Filter":   "handler of cluster events",
}

// hooked returns a ClusterCache, not started, with each of the functions set.
func hooked(t *testing.T, h *hooks, registry *prometheus.Registry, log *lines) (*clustercache.ClusterCache,
	*fleettest.API) {
	t.Helper()
	api := fleettest.NewAPI(t, "uid-a")
	api.Put("one", "1", map[string]any{"app": "x"})
	d := fleettest.NewDirectory()
	config := api.Config()
	dial := config.Dial
	if _, own := h.does["Options.Dial"]; own {
		config.Dial = nil
	} else {
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			h.at("Dial of the access")
			return dial(ctx, network, address)
		}
	}
	if _, wraps := h.does["WrapTransport"]; wraps {
		config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				h.at("WrapTransport")
				return next.RoundTrip(req)
			})
		}
	}
	if _, proxies := h.does["Proxy of the access"]; proxies {
		config.Proxy = func(*http.Request) (*url.URL, error) {
			h.at("Proxy of the access")
			return nil, nil //nolint:nilnil // it means no proxy to net/http
		}
	}
	d.Set(fleettest.Key("a"), config)
	o := fleettest.SilentWith(&hookedResolver{Directory: d, hooks: h}, registry)
	o.Discover = true
	o.Logger = funcr.New(log.write, funcr.Options{})
	o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		h.at("Options.Dial")
		return dial(ctx, network, address)
	}
	o.Indexes = []clustercache.Index{{GVK: fleettest.ConfigMap, Field: "app", Values: func(o client.Object) []string {
		h.at("Index.Values")
		return []string{o.GetLabels()["app"]}
	}}}
	o.GC = clustercache.GC{MinInterval: time.Second, MaxInterval: 5 * time.Second, InUse: func(context.Context,
		clustercache.Owner) (bool, error) {
		h.at("GC.InUse")
		return true, nil
	}}
	o.Informers.Transforms = map[schema.GroupResource]informerpool.TransformFunc{{
		Resource: "configmaps"}: func(*unstructured.Unstructured) error {
		h.at("Informers.Transforms")
		return nil
	}}
	o.Informers.OnListed = func(informerpool.Key, time.Duration) { h.at("Informers.OnListed") }
	o.Informers.OnFailed = func(informerpool.Key, error) { h.at("Informers.OnFailed") }
	o.Informers.OnPanic = func(string) { h.at("Informers.OnPanic") }
	cc, err := clustercache.New(o)
	require.NoError(t, err)
	return cc, api
}

// use makes the ClusterCache call the functions that its methods take.
func use(t *testing.T, cc *clustercache.ClusterCache, h *hooks,
	q *fleettest.Queue[controller.Request]) *clustercache.Watch {
	t.Helper()
	w := fleettest.Watch(t, cc)
	_, err := w.AddEventHandler(informerpool.HandlerFunc(func(informerpool.Event) {
		h.at("handler")
		if _, panics := h.does["Informers.OnPanic"]; panics {
			panic("for OnPanic")
		}
	}))
	require.NoError(t, err)
	selection := events.Selection{
		Kinds: fleettest.ConfigMaps,
		Clusters: func(client.ObjectKey) bool {
			h.at("Selection.Clusters")
			return true
		},
		Predicates: []predicate.Predicate{predicate.NewPredicateFuncs(func(client.Object) bool {
			h.at("predicate")
			return true
		})},
	}
	objects := controller.ObjectSource(cc, selection, func(ctx context.Context, cluster client.ObjectKey,
		o client.Object) []controller.Request {
		h.at("ObjectMapFunc")
		return controller.EnqueueObject(ctx, cluster, o)
	})
	notFailed(t, objects.Start(context.Background(), q))
	clusters := controller.ClusterSource(cc, func(context.Context, events.Cluster) []controller.Request {
		h.at("ClusterMapFunc")
		return nil
	}, controller.ClusterSourceOptions{
		Clusters: func(client.ObjectKey) bool {
			h.at("ClusterSource's Clusters")
			return true
		},
		Filter: func(events.Cluster) bool {
			h.at("ClusterSource's Filter")
			return true
		},
	})
	notFailed(t, clusters.Start(context.Background(), q))
	_, err = cc.Declare(context.Background(), clustercache.Owner{ObjectKey: fleettest.Key("owner"),
		GVK: fleettest.ConfigMap}, clustercache.Target{Cluster: fleettest.Key("a"), Kind: &corev1.ConfigMap{}})
	notFailed(t, err)
	return w
}

// notFailed requires that a call succeeded, or failed because the cache was
// closed: a deaf function lets its call outlive the cache.
func notFailed(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, clustercache.ErrClosed) {
		require.NoError(t, err)
	}
}

// TestHazardPanicOfEachCallback: each callback alone panics for a while. The
// process survives, the log names the callback and its cluster if it has one,
// the panic is counted, and everything recovers when the panics end.
func TestHazardPanicOfEachCallback(t *testing.T) {
	for _, place := range slices.Sorted(maps.Keys(userFunctions)) {
		t.Run(place, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hooks{hits: map[string]int{}, does: map[string]func(){place: func() { panic("no " + place) }}}
				registry, log := prometheus.NewPedanticRegistry(), &lines{}
				cc, api := hooked(t, h, registry, log)
				fleettest.Run(t, cc)
				q := &fleettest.Queue[controller.Request]{}
				w := use(t, cc, h, q)
				time.Sleep(30 * time.Second)
				if place == "Informers.OnFailed" {
					api.FailWith(http.StatusInternalServerError, "/v1/configmaps")
					api.Cut()
				}
				api.Put("two", "2", nil)
				time.Sleep(30 * time.Second)
				h.mu.Lock()
				require.NotZero(t, h.hits[place], "it was called")
				h.mu.Unlock()
				switch place {
				case "Informers.OnPanic":
					require.Contains(t, log.String(), "for OnPanic")
				case "Informers.Transforms": // the panic's value may hold part of a secret
					require.ErrorContains(t, w.Status().LastError, "Transforms panicked")
					require.NotContains(t, w.Status().LastError.Error(), "no "+place)
				default:
					require.Contains(t, log.String(), "no "+place)
				}
				if place != "Resolver.Notify" && place != "Resolver.Clusters" && place != "GC.InUse" {
					require.Contains(t, log.String(), "fleet/a")
				}
				require.Positive(t, panicsOf(t, registry, userFunctions[place]))

				h.calm()
				api.Heal()
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				time.Sleep(20 * time.Minute)
				require.True(t, fleettest.Status(t, cc).Connected)
				q.Take()
				api.Put("three", "3", nil)
				time.Sleep(time.Minute)
				require.True(t, w.HasSynced())
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(),
					fleettest.RequestFor("three").ObjectKey, &corev1.ConfigMap{}, clustercache.CacheOnly))
				if place != "Selection.Clusters" { // Selection.Clusters selected nothing while it panicked
					require.Contains(t, q.Names(), "three")
				}
			})
		})
	}
}

func panicsOf(t *testing.T, registry prometheus.Gatherer, callback string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "fleetcache_callback_panics_total" && l.GetName() == "callback" &&
					l.GetValue() == callback {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// TestHazardStopWaitsForEachCallback: each callback alone never returns,
// whatever ends.
func TestHazardStopWaitsForEachCallback(t *testing.T) {
	for _, place := range slices.Sorted(maps.Keys(userFunctions)) {
		t.Run(place, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				h := &hooks{hits: map[string]int{}, does: map[string]func(){place: func() { <-release }}}
				cc, api := hooked(t, h, prometheus.NewPedanticRegistry(), &lines{})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- cc.Start(ctx) }()
				used := make(chan struct{})
				go func() {
					defer close(used)
					use(t, cc, h, &fleettest.Queue[controller.Request]{})
				}()
				time.Sleep(20 * time.Second)
				if place == "Informers.OnFailed" {
					api.FailWith(http.StatusInternalServerError, "/v1/configmaps")
					api.Cut()
					time.Sleep(20 * time.Second)
				}
				h.mu.Lock()
				require.NotZero(t, h.hits[place], "it was called")
				h.mu.Unlock()
				began := time.Now()
				cancel()
				if err := <-done; err != nil {
					require.ErrorContains(t, err, "still running")
				}
				require.LessOrEqual(t, time.Since(began), 1500*time.Millisecond)
				h.calm()
				close(release)
				<-used
				synctest.Wait()
			})
		})
	}
}

// TestHazardCallbackEndsItsGoroutine: each callback alone ends its goroutine
// for a while, as t.FailNow does. It takes no goroutine of the cache with it,
// no caller hangs waiting for it, and everything recovers afterwards.
func TestHazardCallbackEndsItsGoroutine(t *testing.T) {
	for _, place := range slices.Sorted(maps.Keys(userFunctions)) {
		t.Run(place, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hooks{hits: map[string]int{}, does: map[string]func(){place: runtime.Goexit}}
				registry, log := prometheus.NewPedanticRegistry(), &lines{}
				cc, api := hooked(t, h, registry, log)
				fleettest.Run(t, cc)
				// Some callbacks run on the user's own goroutine.
				go use(t, cc, h, &fleettest.Queue[controller.Request]{})
				time.Sleep(30 * time.Second)
				if place == "Informers.OnFailed" {
					api.FailWith(http.StatusInternalServerError, "/v1/configmaps")
					api.Cut()
				}
				api.Put("two", "2", nil)
				time.Sleep(30 * time.Second)
				h.mu.Lock()
				require.NotZero(t, h.hits[place], "it was called")
				h.mu.Unlock()
				require.Positive(t, panicsOf(t, registry, userFunctions[place]))
				if place != "Informers.OnPanic" && place != "Informers.Transforms" {
					require.Contains(t, log.String(), "runtime.Goexit")
				}

				h.calm()
				api.Heal()
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				q := &fleettest.Queue[controller.Request]{}
				w := use(t, cc, h, q)
				time.Sleep(20 * time.Minute)
				require.True(t, fleettest.Status(t, cc).Connected)
				require.True(t, w.HasSynced())
				q.Take()
				api.Put("three", "3", nil)
				time.Sleep(time.Minute)
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(),
					fleettest.RequestFor("three").ObjectKey, &corev1.ConfigMap{}, clustercache.CacheOnly))
				require.Contains(t, q.Names(), "three")
			})
		})
	}
}
