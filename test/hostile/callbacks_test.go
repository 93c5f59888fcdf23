// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// lines collects log lines.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func (l *lines) write(_, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.WriteString(args + "\n")
}

// touchy is a resolver that panics in the methods that a test selects.
type touchy struct {
	*fleettest.Directory

	mu sync.Mutex
	in map[string]bool
}

func (r *touchy) here(place string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.in[place] {
		panic("no " + place)
	}
}

func (r *touchy) calm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.in = nil
}

func (r *touchy) Resolve(ctx context.Context, key client.ObjectKey) (resolver.Access, error) {
	r.here("Resolve")
	return r.Directory.Resolve(ctx, key)
}

func (r *touchy) Notify(ctx context.Context, changed func(client.ObjectKey)) error {
	r.here("Notify")
	return r.Directory.Notify(ctx, changed)
}

func (r *touchy) Clusters(ctx context.Context) ([]client.ObjectKey, error) {
	r.here("Clusters")
	return r.Directory.Clusters(ctx)
}

// TestHazardPanicOfACallbackEndsTheProcess: each kind of function that the
// operator provides panics. The panic is logged by name and counted, the step
// fails, and everything heals when the function no longer panics.
func TestHazardPanicOfACallbackEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		r := &touchy{Directory: fleettest.NewDirectory(),
			in: map[string]bool{"Resolve": true, "Notify": true, "Clusters": true, "Dial": true, "RoundTrip": true}}
		config := api.Config()
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			r.here("Dial")
			return api.Net.Dial(ctx, network, address)
		}
		config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				r.here("RoundTrip")
				return next.RoundTrip(req)
			})
		}
		r.Set(fleettest.Key("a"), config)
		registry := prometheus.NewPedanticRegistry()
		log := &lines{}
		o := fleettest.SilentWith(r, registry)
		o.Discover = true
		o.Logger = funcr.New(log.write, funcr.Options{Verbosity: 1})
		o.Informers.OnListed = func(informerpool.Key, time.Duration) { panic("no OnListed") }
		o.Informers.OnPanic = func(string) { panic("no OnPanic") }
		cc := fleettest.Start(t, o)
		w := fleettest.Watch(t, cc)
		_, err := w.AddEventHandler(informerpool.HandlerFunc(func(informerpool.Event) { panic("no handler") }))
		require.NoError(t, err)
		mapping := func(context.Context, events.Cluster) []string { panic("no mapping of a cluster") }
		require.NoError(t, controller.ClusterSource(cc, mapping).Start(t.Context(), fleettest.QueueOf[string](t)))
		selection := events.Selection{
			Kinds: []client.Object{&corev1.ConfigMap{}},
			Predicates: []predicate.Predicate{predicate.NewPredicateFuncs(func(o client.Object) bool {
				return o.(*corev1.ConfigMap).Immutable != nil // as is right for typed objects
			})},
		}
		selection.Representation = events.Packed
		objects := func(context.Context, client.ObjectKey, client.Object) []string { return nil }
		require.NoError(t, controller.ObjectSource(cc, selection, objects).Start(t.Context(),
			fleettest.QueueOf[string](t)))

		for _, place := range []string{"Resolve", "RoundTrip", "Dial"} {
			time.Sleep(time.Minute)
			require.ErrorContains(t, fleettest.Status(t, cc).LastError,
				map[string]string{"Resolve": "no Resolve"}[place])
			require.Error(t, fleettest.Status(t, cc).LastError)
			require.Contains(t, log.String(), "no "+place)
			r.mu.Lock()
			delete(r.in, place)
			r.mu.Unlock()
		}
		r.calm()
		require.NoError(t, w.WaitForSync(t.Context()))
		time.Sleep(time.Minute)
		for _, value := range []string{
			"no Resolve", "no Notify", "no Clusters", "no Dial", "no OnListed", "no handler", "no mapping of a cluster",
			"interface conversion", "callbacks_test.go",
		} {
			require.Contains(t, log.String(), value)
		}
		require.GreaterOrEqual(t, sumOf(t, registry, "fleetcache_callback_panics_total"), 7.0)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func sumOf(t *testing.T, registry prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestHazardStopWaitsForACallbackThatIsDeaf: Start returns within little more
// than a second, with an error that names the callback.
func TestHazardStopWaitsForACallbackThatIsDeaf(t *testing.T) {
	for name, deaf := range map[string]func(t *testing.T, d *fleettest.Directory,
		forever func()) func(*clustercache.ClusterCache){
		"Resolver.Resolve": func(_ *testing.T, d *fleettest.Directory,
			forever func()) func(*clustercache.ClusterCache) {
			d.Answer(fleettest.Key("a"), func() (resolver.Access, error) {
				forever()
				return resolver.Access{}, nil
			})
			return func(*clustercache.ClusterCache) {}
		},
		"handler of cluster events": func(t *testing.T, _ *fleettest.Directory,
			forever func()) func(*clustercache.ClusterCache) {
			return func(cc *clustercache.ClusterCache) {
				s := controller.ClusterSource(cc, func(context.Context, events.Cluster) []string {
					forever()
					return nil
				})
				require.NoError(t, s.Start(context.Background(), fleettest.QueueOf[string](t)))
			}
		},
		"predicate or handler of a Selection": func(t *testing.T, _ *fleettest.Directory,
			forever func()) func(*clustercache.ClusterCache) {
			return func(cc *clustercache.ClusterCache) {
				selection := events.Selection{Kinds: []client.Object{&corev1.ConfigMap{}}, Watch: true}
				s := controller.ObjectSource(cc, selection, func(context.Context, client.ObjectKey,
					client.Object) []string {
					forever()
					return nil
				})
				require.NoError(t, s.Start(context.Background(), fleettest.QueueOf[string](t)))
			}
		},
		"Dial of the access": func(_ *testing.T, d *fleettest.Directory,
			forever func()) func(*clustercache.ClusterCache) {
			d.Set(fleettest.Key("a"), &rest.Config{Host: "http://fake.test", Dial: func(context.Context, string,
				string) (net.Conn, error) {
				forever()
				return nil, net.ErrClosed
			}})
			return func(*clustercache.ClusterCache) {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := fleettest.NewAPI(t, "uid-a")
				api.Put("one", "1", nil)
				d := fleettest.NewDirectory()
				d.Set(fleettest.Key("a"), api.Config())
				o := fleettest.Silent(d)
				release := make(chan struct{})
				used := deaf(t, d, func() { <-release })
				cc, err := clustercache.New(o)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- cc.Start(ctx) }()
				synctest.Wait()
				used(cc)
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				time.Sleep(20 * time.Second)
				began := time.Now()
				cancel()
				err = <-done
				require.LessOrEqual(t, time.Since(began), 1500*time.Millisecond)
				require.ErrorContains(t, err, name)
				close(release)
				synctest.Wait()
			})
		})
	}
}
