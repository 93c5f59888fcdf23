// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

var errNotFound = errors.New("cluster not found")

func newProvider(f *fleet, o multicluster.ProviderOptions) *multicluster.Provider[clusterName, aware] {
	if o.NotFound == nil {
		o.NotFound = errNotFound
	}
	return multicluster.NewProvider[clusterName, aware](f.Clusters, o)
}

// engage runs a provider with the given Aware.
func engage(t *testing.T, p *multicluster.Provider[clusterName, aware], to aware) (stop func()) {
	t.Helper()
	return fleettest.Run(t, manager.RunnableFunc(func(ctx context.Context) error { return p.Start(ctx, to) }))
}

// call is one call of Engage.
type call struct {
	ctx  context.Context
	name clusterName
	cl   cluster.Cluster
}

// calls returns an Aware that records the calls of Engage in order.
func calls() (awareFunc, chan call) {
	made := make(chan call, 1000)
	return func(ctx context.Context, name clusterName, cl cluster.Cluster) error {
		made <- call{ctx: ctx, name: name, cl: cl}
		return nil
	}, made
}

// TestNotFoundIsForClustersThatAreNone checks that the errors for clusters that
// are only unreachable, or not engaged yet, do not wrap NotFound, since
// requests with such an error are dropped.
func TestNotFoundIsForClustersThatAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		p := newProvider(f, multicluster.ProviderOptions{
			Clusters: func(k client.ObjectKey) bool { return k.Name != "other" }})
		_, err := p.Get(t.Context(), "fleet/a")
		require.ErrorIs(t, err, errNotFound)
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
		require.ErrorContains(t, err, "fleet/a")
		for _, bad := range []clusterName{"", "/", "fleet/", "/a", "fleet/a/b", "a"} {
			_, err := p.Get(t.Context(), bad)
			require.ErrorIs(t, err, errNotFound, string(bad))
		}
		api := f.add("a")
		f.add("other")
		synctest.Wait()
		_, err = p.Get(t.Context(), "fleet/other")
		require.ErrorIs(t, err, errNotFound, "it is not selected")
		cl, err := p.Get(t.Context(), "fleet/a")
		require.NoError(t, err)
		api.Disconnect()
		time.Sleep(time.Hour)
		same, err := p.Get(t.Context(), "fleet/a")
		require.NoError(t, err, "disconnected is found")
		require.Same(t, cl, same)
		f.d.set(key("a"), nil)
		time.Sleep(time.Minute)
		_, err = p.Get(t.Context(), "fleet/a")
		require.ErrorIs(t, err, errNotFound)

		plain := multicluster.NewProvider[string, oldAware](f.Clusters, multicluster.ProviderOptions{})
		_, err = plain.Get(t.Context(), "fleet/a")
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster, "without the option")
	})
}

func TestGetAfterTheEndIsNotNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, err := clustercache.New(clustercache.Options{Resolver: newDirectory()})
		require.NoError(t, err)
		stop := fleettest.Run(t, cc)
		synctest.Wait()
		stop()
		p := newProvider(&fleet{Clusters: multicluster.New(cc, multicluster.Options{})}, multicluster.ProviderOptions{})
		_, err = p.Get(t.Context(), "fleet/a")
		require.ErrorIs(t, err, clustercache.ErrClosed)
		require.NotErrorIs(t, err, errNotFound)
		// Its Start nevertheless lasts as long as its context.
		to, _ := calls()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		require.NoError(t, p.Start(ctx, to))
		require.Equal(t, time.Hour, time.Since(begin))
	})
}

// TestEveryKnownClusterIsEngagedOnceAndEndsWithItsRemoval covers clusters that
// are added later, or come back; the hub is not engaged.
func TestEveryKnownClusterIsEngagedOnceAndEndsWithItsRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		require.NoError(t, f.cc.Cluster(client.ObjectKey{}).Engage())
		f.add("a")
		synctest.Wait()
		p := newProvider(f, multicluster.ProviderOptions{})
		to, made := calls()
		stop := engage(t, p, to)
		a := next(t, made)
		require.Equal(t, clusterName("fleet/a"), a.name)
		got, err := p.Get(t.Context(), a.name)
		require.NoError(t, err)
		require.Same(t, a.cl, got)
		f.add("b").Disconnect()
		b := next(t, made)
		require.Equal(t, clusterName("fleet/b"), b.name)

		// A disconnect, a rotation or a new address changes nothing.
		f.apis["a"].Disconnect()
		time.Sleep(time.Hour)
		f.apis["a"].Connect()
		time.Sleep(time.Hour)
		f.apis["a"].Rotate()
		f.d.set(key("a"), f.apis["a"].Config())
		time.Sleep(time.Hour)
		f.d.set(key("a"), serve(f.servers, "elsewhere").Config())
		time.Sleep(time.Hour)
		require.Empty(t, made)
		require.NoError(t, a.ctx.Err())

		for range 3 {
			f.d.set(key("a"), nil)
			next(t, a.ctx.Done())
			require.NoError(t, b.ctx.Err(), "nobody else's ends")
			f.add("a")
			again := next(t, made)
			require.Equal(t, a.name, again.name)
			require.NotSame(t, a.cl, again.cl, "so that nobody takes it for the old one")
			require.NoError(t, again.ctx.Err())
			a = again
		}
		stop()
		require.Error(t, a.ctx.Err())
		require.Error(t, b.ctx.Err())
		require.Empty(t, made)
	})
}

// TestFailedEngagementIsTriedAgain checks that the waits grow, and that the
// attempts end with the cluster.
func TestFailedEngagementIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		f.add("a")
		begin := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		fails := 8
		engage(t, newProvider(f, multicluster.ProviderOptions{}), awareFunc(func(context.Context, clusterName,
			cluster.Cluster) error {
			mu.Lock()
			defer mu.Unlock()
			if at = append(at, time.Since(begin)); len(at) > fails {
				return nil
			}
			return errors.New("not now")
		}))
		tried := func() []time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(at)
		}
		time.Sleep(time.Hour)
		times := tried()
		require.Len(t, times, fails+1)
		for i, wait := 1, time.Second; i < len(times); i, wait = i+1, min(2*wait, 30*time.Second) {
			require.InDelta(t, 0.75*float64(wait), float64(times[i]-times[i-1]), 0.25*float64(wait)+1, "attempt %d", i)
		}

		f.d.set(key("a"), nil)
		time.Sleep(time.Minute)
		mu.Lock()
		at, fails = nil, 1000
		mu.Unlock()
		f.add("a")
		time.Sleep(time.Minute)
		require.NotEmpty(t, tried())
		f.d.set(key("a"), nil)
		time.Sleep(time.Minute)
		last := len(tried())
		time.Sleep(time.Hour)
		require.Len(t, tried(), last)
	})
}

// TestTwoClustersOfOneNameAreNotMixedUp covers Names functions that give two
// clusters one name.
func TestTwoClustersOfOneNameAreNotMixedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		f.add("a")
		synctest.Wait()
		to, made := calls()
		engage(t, newProvider(f, multicluster.ProviderOptions{Names: multicluster.Names{
			Name: func(client.ObjectKey) string { return "same" },
			Key:  func(string) (client.ObjectKey, bool) { return key("a"), true },
		}}), to)
		first := next(t, made)
		f.add("b")
		time.Sleep(time.Hour)
		require.Empty(t, made)
		require.NoError(t, first.ctx.Err())
	})
}

func TestProviderIndexesEveryCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		f.add("a")
		p := newProvider(f, multicluster.ProviderOptions{})
		require.NoError(t, p.IndexField(t.Context(), &corev1.ConfigMap{}, "value", byValue))
		f.add("b")
		time.Sleep(time.Second)
		for _, name := range []clusterName{"fleet/a", "fleet/b"} {
			cl, err := p.Get(t.Context(), name)
			require.NoError(t, err)
			names, err := listByValue(t, cl.GetCache(), "2")
			require.NoError(t, err)
			require.Equal(t, []string{"two"}, names)
		}
	})
}

// TestManyProvidersShareTheClusters checks that each engages all clusters, and
// that the end of one does not affect another.
func TestManyProvidersShareTheClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		for i := range 5 {
			f.add(fmt.Sprint("c", i))
		}
		one, fromOne := calls()
		other, fromOther := calls()
		stop := engage(t, newProvider(f, multicluster.ProviderOptions{}), one)
		engage(t, newProvider(f, multicluster.ProviderOptions{}), other)
		byName := map[clusterName]call{}
		for range 5 {
			c := next(t, fromOne)
			byName[c.name] = c
		}
		synctest.Wait()
		stop()
		for range 5 {
			c := next(t, fromOther)
			require.Same(t, byName[c.name].cl, c.cl)
			require.NoError(t, c.ctx.Err())
			require.Error(t, byName[c.name].ctx.Err())
		}
	})
}
