// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// foreign is a cluster of another provider.
type foreign struct {
	cluster.Cluster

	config *rest.Config
}

func (f *foreign) GetConfig() *rest.Config { return f.config }

// TestRegistrarAdoptsWhatOthersEngage checks that a cluster is adopted until
// its engagement ends, and that an engagement that replaced it stays.
func TestRegistrarAdoptsWhatOthersEngage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := multicluster.NewRegistrar[clusterName](multicluster.Names{})
		require.False(t, r.NeedLeaderElection())
		fleettest.Run(t, r)
		cc, err := clustercache.New(clustercache.Options{Resolver: r, Discover: true})
		require.NoError(t, err)
		fleettest.Run(t, cc)
		synctest.Wait()
		require.Empty(t, cc.Clusters())

		servers := clustercachetest.New(t, clustercachetest.Options{})
		api := serve(servers, "uid-a")
		api.put("one", "1")
		first, endFirst := context.WithCancel(t.Context())
		defer endFirst()
		require.NoError(t, r.Engage(first, "fleet/a", &foreign{config: api.Config()}))
		time.Sleep(time.Second)
		require.Equal(t, []client.ObjectKey{key("a")}, cc.Clusters())
		in, err := read(t, cc.Cluster(key("a")).Reader())
		require.NoError(t, err)
		require.Equal(t, "uid-a1", in)

		other := serve(servers, "uid-b")
		other.put("one", "2")
		second, endSecond := context.WithCancel(t.Context())
		defer endSecond()
		require.NoError(t, r.Engage(second, "fleet/a", &foreign{config: other.Config()}))
		require.NoError(t, r.Engage(second, "fleet/0", &foreign{config: other.Config()}))
		endFirst()
		time.Sleep(time.Hour)
		keys, err := r.Clusters(t.Context())
		require.NoError(t, err)
		require.Equal(t, []client.ObjectKey{key("0"), key("a")}, keys)
		in, err = read(t, cc.Cluster(key("a")).Reader())
		require.NoError(t, err)
		require.Equal(t, "uid-b2", in)

		endSecond()
		time.Sleep(time.Minute)
		require.Empty(t, cc.Clusters())
		_, err = r.Resolve(t.Context(), key("a"))
		require.ErrorIs(t, err, resolver.ErrClusterNotFound)
	})
}

func TestRegistrarRefusesWhatCannotBe(t *testing.T) {
	r := multicluster.NewRegistrar[string](multicluster.Names{})
	const canary = "canary-token"
	for name, cl := range map[string]cluster.Cluster{
		"fleet/a": &foreign{},
		"fleet/c": &foreign{config: &rest.Config{Host: "::" + canary, BearerToken: canary}},
	} {
		err := r.Engage(t.Context(), name, cl)
		require.ErrorContains(t, err, name)
		require.NotContains(t, err.Error(), canary)
	}
	keys, err := r.Clusters(t.Context())
	require.NoError(t, err)
	require.Empty(t, keys)
}

// TestSourceOfAnEngagedCluster checks that the source has the events of only
// that cluster, by its name, and ends with its context.
func TestSourceOfAnEngagedCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		f.add("a")
		f.add("b")
		s := multicluster.NewSource(f.cc, events.Selection{
			Kinds:    []client.Object{&corev1.ConfigMap{}},
			Clusters: func(k client.ObjectKey) bool { return k.Name != "c" },
		}, func(_ context.Context, name clusterName, o client.Object) []fleetRequest {
			return []fleetRequest{{Cluster: name,
				Request: reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}}}
		}, multicluster.Names{})
		for _, name := range []clusterName{"fleet/c", ""} {
			src, engage, err := s.ForCluster(name, nil)
			require.NoError(t, err)
			require.False(t, engage)
			require.Nil(t, src)
		}
		src, ok, err := s.ForCluster("fleet/a", nil)
		require.NoError(t, err)
		require.True(t, ok)
		queue := discard()
		defer queue.ShutDown()
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, src.Start(ctx, queue))
		next := func() string {
			r, _ := queue.Get()
			defer queue.Done(r)
			return string(r.Cluster) + " " + r.Name
		}
		require.ElementsMatch(t, []string{"fleet/a one", "fleet/a two"}, []string{next(), next()})
		f.apis["b"].put("three", "3")
		f.apis["a"].put("four", "4")
		require.Equal(t, "fleet/a four", next())
		synctest.Wait()
		watches, _ := f.watches("b")
		require.Zero(t, watches, "nothing is watched where nobody asked")
		cancel()
		synctest.Wait()
		watches, _ = f.watches("a")
		require.Zero(t, watches)
		require.Zero(t, queue.Len())
	})
}

// TestNamesAreKeysAndBack checks that the functions are the inverse of each
// other.
func TestNamesAreKeysAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		bare := client.ObjectKey{Name: "bare"}
		f.d.set(bare, serve(f.servers, "uid-bare").Config())
		f.add("a")
		to, made := calls()
		p := newProvider(f, multicluster.ProviderOptions{})
		engage(t, p, to)
		for range 2 {
			c := next(t, made)
			cl, err := p.Get(t.Context(), c.name)
			require.NoError(t, err)
			require.Same(t, c.cl, cl)
			require.Contains(t, []clusterName{"bare", "fleet/a"}, c.name)
		}
	})
}
