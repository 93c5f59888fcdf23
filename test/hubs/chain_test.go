// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package hubs_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/settable"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

func static(t testing.TB, hosts map[string]string) *resolver.StaticResolver {
	t.Helper()
	configs := map[resolver.Cluster]*rest.Config{}
	for name, host := range hosts {
		configs[resolvertest.Named(name)] = &rest.Config{Host: host}
	}
	out, err := resolver.Static(configs)
	require.NoError(t, err)
	return out
}

func TestChainGoesOnOnlyForUnknownClusters(t *testing.T) {
	for _, cause := range []error{resolver.ErrClusterNotFound, resolver.ErrSecretNotFound, resolver.ErrNotReady,
		resolver.ErrNoAccess, resolver.ErrKeyMissing, &resolver.RefusedError{Field: "x"}, &resolver.KubeconfigError{},
		errors.New("other")} {
		first := resolver.Func(func(context.Context, resolver.Cluster) (resolver.Access, error) {
			return resolver.Access{}, cause
		})
		chain := resolver.Chain(first, static(t, map[string]string{"a": "https://a.example"}))
		access, err := chain.Resolve(t.Context(), resolvertest.Named("a"))
		if errors.Is(cause, resolver.ErrClusterNotFound) || errors.Is(cause, resolver.ErrSecretNotFound) {
			require.NoError(t, err)
			require.Equal(t, "https://a.example", access.Config().Host)
			continue
		}
		require.Equal(t, cause, err)
		require.True(t, access.IsZero())
	}
	_, err := resolver.Chain(static(t, nil), static(t, nil)).Resolve(t.Context(), resolvertest.Named("a"))
	require.EqualError(t, err, "cluster a: cluster not found\ncluster a: cluster not found")
	require.ErrorIs(t, err, resolver.ErrNoAccess)
	_, err = resolver.Chain().Resolve(t.Context(), resolvertest.Named("a"))
	require.ErrorIs(t, err, resolver.ErrClusterNotFound)
}

// TestChainOfWhichOneWaitsForASecret checks that a cluster is gone only if no
// resolver knows it.
func TestChainOfWhichOneWaitsForASecret(t *testing.T) {
	says := func(err error) resolver.Resolver {
		return resolver.Func(func(context.Context, resolver.Cluster) (resolver.Access, error) {
			return resolver.Access{}, err
		})
	}
	gone, waits := says(resolver.ErrClusterNotFound), says(resolver.ErrSecretNotFound)
	for _, chain := range []*resolver.ChainResolver{
		resolver.Chain(gone, waits), resolver.Chain(waits, gone), resolver.Chain(gone, waits, gone),
		resolver.Chain(gone, resolver.Chain(gone, waits)),
	} {
		_, err := chain.Resolve(t.Context(), resolvertest.Named("a"))
		require.ErrorIs(t, err, resolver.ErrSecretNotFound)
		require.ErrorIs(t, err, resolver.ErrNoAccess)
		require.NotErrorIs(t, err, resolver.ErrClusterNotFound)
	}
	_, err := resolver.Chain(gone, says(resolver.ErrNotReady)).Resolve(t.Context(), resolvertest.Named("a"))
	require.NotErrorIs(t, err, resolver.ErrClusterNotFound)
	_, err = resolver.Chain(gone, resolver.Chain(gone)).Resolve(t.Context(), resolvertest.Named("a"))
	require.ErrorIs(t, err, resolver.ErrClusterNotFound)
}

func TestChainListsAndNotifiesForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := resolvertest.NewHub(resolvertest.ClusterAPISecret("fleet", "a", "one"))
		one, err := resolver.ClusterAPI(hub, resolver.HubOptions{Namespace: "fleet"})
		require.NoError(t, err)
		two, err := resolver.ClusterAPI(hub, resolver.HubOptions{Namespace: "other"})
		require.NoError(t, err)
		chain := resolver.Chain(static(t, map[string]string{"s": "https://s.example"}), one, two)
		clusters, err := chain.Clusters(t.Context())
		require.NoError(t, err)
		require.Equal(t, []resolver.Cluster{resolvertest.Named("s"), clusterA}, clusters)

		news := resolvertest.Notify(t, chain)
		require.Equal(t, []resolver.Cluster{clusterA}, news.Take())
		require.NoError(t, hub.Create(t.Context(), resolvertest.ClusterAPISecret("other", "b", "one")))
		require.Equal(t, []resolver.Cluster{resolvertest.In("other", "b")}, news.Take())

		hub.Down.Store(true)
		_, err = resolver.Chain(one, resolver.Func(nil), failing{}).Clusters(t.Context())
		require.ErrorIs(t, err, resolvertest.ErrHubDown, "never a part of the answer")
	})
}

// failing is a Lister and Notifier that fails at once.
type failing struct{ resolver.Func }

func (failing) Clusters(context.Context) ([]resolver.Cluster, error) {
	return nil, resolvertest.ErrHubDown
}

func (failing) Notify(context.Context, func(resolver.Cluster)) error { return resolvertest.ErrHubDown }

func TestChainNotifyEndsWhenOneOfItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := resolvertest.NewHub(resolvertest.ClusterAPISecret("fleet", "a", "one"))
		r, err := resolver.ClusterAPI(hub, resolver.HubOptions{})
		require.NoError(t, err)
		err = resolver.Chain(r, failing{}).Notify(t.Context(), func(resolver.Cluster) {})
		require.ErrorIs(t, err, resolvertest.ErrHubDown)
	})
}

// notifying is a Notifier by a function.
type notifying struct {
	resolver.Func
	notify func(context.Context, func(resolver.Cluster)) error
}

func (n notifying) Notify(ctx context.Context, changed func(resolver.Cluster)) error {
	return n.notify(ctx, changed)
}

// TestHazardNotifyOfOneOfAChainEndsWithoutAnError: one of the resolvers is the
// operator's own. Its panic does not end the process, and neither a panic, the
// end of its goroutine nor an early return leaves a chain behind that seems to
// report all changes.
func TestHazardNotifyOfOneOfAChainEndsWithoutAnError(t *testing.T) {
	for name, end := range map[string]func() error{
		"panic":  func() error { panic("oops") },
		"Goexit": func() error { runtime.Goexit(); return nil },
		"return": func() error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				of := notifying{notify: func(_ context.Context, changed func(resolver.Cluster)) error {
					changed(resolvertest.Named("a"))
					time.Sleep(time.Second)
					return end()
				}}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var reports []resolver.Cluster
				err := resolver.Chain(settable.New(), of).Notify(ctx, func(cluster resolver.Cluster) {
					reports = append(reports, cluster)
				})
				require.Error(t, err)
				require.NoError(t, ctx.Err(), "it says so at once")
				require.Equal(t, []resolver.Cluster{resolvertest.Named("a")}, reports)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		of := notifying{notify: func(ctx context.Context, _ func(resolver.Cluster)) error {
			<-ctx.Done()
			return nil
		}}
		_, stop := resolvertest.NotifyUntil(t, resolver.Chain(of, of))
		synctest.Wait()
		stop() // without an error
	})
}

func TestChainWithoutNotifiersWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Empty(t, resolvertest.Notify(t, resolver.Chain(static(t, nil))).Take())
	})
}

func TestStaticIsACopyOfWhatItWasGiven(t *testing.T) {
	config := &rest.Config{Host: "https://a.example"}
	configs := map[resolver.Cluster]*rest.Config{resolvertest.Named("a"): config}
	r, err := resolver.Static(configs)
	require.NoError(t, err)
	config.Host = "https://evil.example"
	delete(configs, resolvertest.Named("a"))
	access, err := r.Resolve(t.Context(), resolvertest.Named("a"))
	require.NoError(t, err)
	require.Equal(t, "https://a.example", access.Config().Host)
	require.True(t, access.Trusted())
	_, err = r.Resolve(t.Context(), resolvertest.Named("b"))
	require.EqualError(t, err, "cluster b: cluster not found")
	_, err = resolver.Static(map[resolver.Cluster]*rest.Config{{}: nil})
	require.EqualError(t, err, "resolver: cluster hub: invalid kubeconfig: config is nil")
}
