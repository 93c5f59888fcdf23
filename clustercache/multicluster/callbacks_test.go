// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleetcache/fleetcache/clustercache/multicluster"
)

// userFunctions returns options with every user function set, each of which
// calls do before its work.
func userFunctions(do func(string)) (multicluster.Options, multicluster.ProviderOptions, aware, chan call) {
	to, made := calls()
	o := multicluster.Options{ClusterOptions: []cluster.Option{func(*cluster.Options) { do("ClusterOptions") }}}
	p := multicluster.ProviderOptions{
		Clusters: func(client.ObjectKey) bool {
			do("Clusters")
			return true
		},
		Names: multicluster.Names{
			Name: func(k client.ObjectKey) string {
				do("Names.Name")
				return k.Namespace + "/" + k.Name
			},
			Key: func(string) (client.ObjectKey, bool) {
				do("Names.Key")
				return key("a"), true
			},
		},
	}
	return o, p, awareFunc(func(ctx context.Context, name clusterName, cl cluster.Cluster) error {
		do("Engage")
		return to(ctx, name, cl)
	}), made
}

var userPlaces = []string{"ClusterOptions", "Clusters", "Names.Name", "Names.Key", "Engage"}

// TestHazardPanicOfAProvidersCallbackEndsTheProcess checks that the cluster is
// not engaged while a callback panics, that the error of Get contains the
// reason, and that the cluster is engaged afterwards.
func TestHazardPanicOfAProvidersCallbackEndsTheProcess(t *testing.T) {
	failsAndHeals(t, func(at string) { panic("no " + at) })
}

// TestHazardProvidersCallbackEndsItsGoroutine checks the same for
// runtime.Goexit, which t.FailNow calls as well.
func TestHazardProvidersCallbackEndsItsGoroutine(t *testing.T) {
	failsAndHeals(t, func(string) { runtime.Goexit() })
}

func failsAndHeals(t *testing.T, fail func(at string)) {
	for _, place := range userPlaces {
		t.Run(place, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calm atomic.Bool
				var hits atomic.Int64
				o, po, to, made := userFunctions(func(at string) {
					if at == place && !calm.Load() {
						hits.Add(1)
						fail(at)
					}
				})
				f := newFleet(t, o)
				f.add("a")
				p := newProvider(f, po)
				engage(t, p, to)
				time.Sleep(time.Minute)
				require.NotZero(t, hits.Load())
				require.Empty(t, made)
				if _, err := p.Get(t.Context(), "fleet/a"); place != "Engage" {
					require.Error(t, err)
				}
				calm.Store(true)
				f.apis["a"].Disconnect() // an event of the cluster
				time.Sleep(time.Minute)
				f.apis["a"].Connect()
				time.Sleep(time.Minute)
				require.Equal(t, clusterName("fleet/a"), next(t, made).name)
				_, err := p.Get(t.Context(), "fleet/a")
				require.NoError(t, err)
			})
		})
	}
}

// TestHazardStopOfAProviderWaitsForACallbackThatIsDeaf checks that Start
// returns within little more than a second, with an error.
func TestHazardStopOfAProviderWaitsForACallbackThatIsDeaf(t *testing.T) {
	for _, place := range userPlaces {
		t.Run(place, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				var hits atomic.Int64
				o, po, to, _ := userFunctions(func(at string) {
					if at == place {
						hits.Add(1)
						<-release
					}
				})
				f := newFleet(t, o)
				f.add("a")
				p := newProvider(f, po)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- p.Start(ctx, to) }()
				time.Sleep(time.Minute)
				require.NotZero(t, hits.Load())
				began := time.Now()
				cancel()
				require.ErrorContains(t, <-done, "still running")
				require.LessOrEqual(t, time.Since(began), 1500*time.Millisecond)
				close(release)
				synctest.Wait()
			})
		})
	}
}

// TestHazardEndOfAnEngagementNeedsNoName checks that the engagement of a
// removed cluster ends even if a function of the options panics, or selects
// differently, at that moment; and that the cluster is engaged again when it
// comes back.
func TestHazardEndOfAnEngagementNeedsNoName(t *testing.T) {
	for _, place := range []string{"Clusters", "Names.Name", "Names.Key"} {
		synctest.Test(t, func(t *testing.T) {
			var broken atomic.Bool
			o, po, to, made := userFunctions(func(at string) {
				if at == place && broken.Load() {
					panic("no " + at)
				}
			})
			f := newFleet(t, o)
			f.add("a")
			p := newProvider(f, po)
			engage(t, p, to)
			engaged := next(t, made)

			broken.Store(true)
			f.d.set(key("a"), nil)
			time.Sleep(time.Hour)
			require.Error(t, engaged.ctx.Err(), "%s: it was removed", place)
			broken.Store(false)
			f.add("a")
			time.Sleep(time.Minute)
			again := next(t, made)
			require.NoError(t, again.ctx.Err())
			require.NotSame(t, engaged.cl, again.cl)
		})
	}
}

// TestHazardNamesOfARegistrarEndItsGoroutine checks that the cluster is not
// adopted, and that the caller's goroutine continues.
func TestHazardNamesOfARegistrarEndItsGoroutine(t *testing.T) {
	names := multicluster.Names{Key: func(string) (client.ObjectKey, bool) {
		runtime.Goexit()
		return client.ObjectKey{}, false
	}}
	r := multicluster.NewRegistrar[clusterName](names)
	done := make(chan error, 1)
	go func() {
		defer close(done)
		done <- r.Engage(t.Context(), "a", &foreign{config: &rest.Config{Host: "https://a.test"}})
	}()
	err, returned := <-done
	require.True(t, returned, "it ended with the function")
	require.NoError(t, err)
	clusters, err := r.Clusters(t.Context())
	require.NoError(t, err)
	require.Empty(t, clusters)
}
