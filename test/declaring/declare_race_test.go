// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/gc"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

var raceRounds = flag.Int("declare.race-rounds",
	1000, "rounds of the race of declarations and sweeps against fake clusters")

// users declare and drop in the same clusters, and race with each other and
// with sweeps.
type users struct {
	cc       *clustercache.ClusterCache
	clusters []string
	grace    time.Duration
	// write changes an object that every cluster has, and returns its
	// resourceVersion.
	write func(cluster string) string
	// streams returns how many watches of Secrets in a namespace are open in a
	// cluster.
	streams func(cluster, namespace string) int
	gone    sync.Map // owners that no longer exist
	asked   atomic.Int64
}

// inUse fails now and then, and otherwise reports whether the owner exists.
func (u *users) inUse(ctx context.Context, o clustercache.Owner) (bool, error) {
	if u.asked.Add(1)%5 == 0 {
		return false, gc.ErrPartial
	}
	_, gone := u.gone.Load(o)
	return !gone, ctx.Err()
}

// within retries f for up to a minute, until it returns no error.
func within(f func() error) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := f()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// live returns an error unless the declared objects are live: they are read
// from the cache, and the cache sees the latest write.
func (u *users) live(ctx context.Context, o clustercache.Owner, clusters []string) error {
	if err := u.cc.WaitForSync(ctx, o); err != nil {
		return err
	}
	for _, cluster := range clusters {
		rv := u.write(cluster)
		read := func(opts ...client.GetOption) error {
			opts = append(opts, clustercache.CacheOnly, clustercache.MaxStaleness(time.Hour))
			return u.cc.Cluster(fleettest.Key(cluster)).Reader().Get(ctx,
				client.ObjectKey{Namespace: "default", Name: "one"},
				&corev1.ConfigMap{}, opts...)
		}
		if err := read(); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if err := within(func() error { return read(clustercache.NotOlderThan(rv)) }); err != nil {
			return fmt.Errorf("wait for the write: %w", err)
		}
	}
	return nil
}

// round declares some clusters for an owner, checks that they are live now and
// later, and releases them in one of three ways.
func (u *users) round(ctx context.Context, o clustercache.Owner) error {
	var targets []clustercache.Target
	var chosen []string
	for _, cluster := range u.clusters {
		if rand.IntN(2) == 0 {
			targets, chosen = append(targets, fleettest.Target(cluster, "ConfigMap")), append(chosen, cluster)
		}
	}
	if _, err := u.cc.Declare(ctx, o, targets...); err != nil {
		return err
	}
	for range 2 {
		if err := u.live(ctx, o, chosen); err != nil {
			return err
		}
		if uses := u.cc.Declared(o); len(uses) != len(chosen) {
			return fmt.Errorf("declared %v, used %v", chosen, fleettest.KindsOf(uses))
		}
		time.Sleep(rand.N(2 * u.grace))
	}
	switch rand.IntN(3) {
	case 0:
		u.cc.Drop(o)
	case 1: // the next round replaces it
	case 2:
		u.gone.Store(o, true)
		time.Sleep(rand.N(4 * u.grace))
		u.gone.Delete(o)
	}
	return nil
}

// ended declares a target that no other owner uses, drops it, and checks that
// its watch ends within the grace and one sweep.
func (u *users) ended(ctx context.Context, o clustercache.Owner) error {
	cluster := u.clusters[rand.IntN(len(u.clusters))]
	if _, err := u.cc.Declare(ctx, o, fleettest.Target(cluster, "Secret", client.InNamespace(o.Name))); err != nil {
		return err
	}
	if err := u.cc.WaitForSync(ctx, o); err != nil {
		return err
	}
	if n := u.streams(cluster, o.Name); n != 1 {
		return fmt.Errorf("%d streams for %s", n, o)
	}
	u.cc.Drop(o)
	time.Sleep(u.grace)
	_, _ = u.cc.Sweep(ctx) // the error names owners that could not be checked
	for _, use := range u.cc.Usage().Uses {
		if use.Key.Namespace == o.Name {
			return fmt.Errorf("still there: %+v", use)
		}
	}
	return within(func() error {
		if n := u.streams(cluster, o.Name); n != 0 {
			return fmt.Errorf("%d streams left for %s", n, o)
		}
		return nil
	})
}

// read gets a reader from WatchAndRead, and checks that it reads. A cluster
// that was released a moment ago is first connected again.
func (u *users) read(ctx context.Context) error {
	cluster := u.clusters[rand.IntN(len(u.clusters))]
	return within(func() error {
		r, _, err := u.cc.Cluster(fleettest.Key(cluster)).WatchAndRead(ctx,
			schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
		if err != nil {
			return err
		}
		return r.Get(ctx, client.ObjectKey{Namespace: "default", Name: "one"}, &corev1.ConfigMap{})
	})
}

// race runs all users, for a total number of rounds.
func (u *users) race(ctx context.Context, t *testing.T, rounds int) {
	t.Helper()
	var left atomic.Int64
	left.Store(int64(rounds))
	var running, sweeping sync.WaitGroup
	repeat := func(f func(context.Context) error) {
		running.Go(func() {
			for left.Add(-1) >= 0 {
				if err := f(ctx); err != nil {
					t.Error(err)
					left.Store(0)
				}
			}
		})
	}
	for i := range 6 {
		repeat(func(ctx context.Context) error { return u.round(ctx, fleettest.Owner(fmt.Sprint(i))) })
	}
	for i := range 3 {
		repeat(func(ctx context.Context) error { return u.ended(ctx, fleettest.Owner(fmt.Sprintf("alone-%d", i))) })
	}
	over := make(chan struct{})
	meanwhile := func(f func()) {
		sweeping.Go(func() {
			for {
				f()
				select {
				case <-over:
					return
				case <-time.After(rand.N(u.grace)):
				}
			}
		})
	}
	meanwhile(func() { _, _ = u.cc.Sweep(ctx) }) // the error names owners that could not be checked
	meanwhile(func() {
		if err := u.read(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Wait()
	close(over)
	sweeping.Wait()
}

// TestWhatIsDeclaredIsLiveThroughARaceOfDeclareDropAndSweep: a returned reader
// is always live, no used informer is ever stopped, and an unused informer ends
// within grace + one sweep, together with the connection of a cluster that was
// not engaged.
func TestWhatIsDeclaredIsLiveThroughARaceOfDeclareDropAndSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &users{clusters: []string{"a", "b", "c"}, grace: 2 * time.Second}
		cc, apis := fleettest.NewFleet(t, len(u.clusters), func(o *clustercache.Options) {
			o.GC = clustercache.GC{Grace: u.grace, InUse: u.inUse, MinInterval: time.Second,
				MaxInterval: 5 * time.Second}
			o.IdleTimeout = 3 * time.Second
			o.Informers.Linger = time.Second
		})
		u.cc = cc
		u.write = func(cluster string) string { return apis[cluster[0]-'a'].Put("one", fmt.Sprint(rand.Int()), nil) }
		u.streams = func(cluster, namespace string) int {
			return apis[cluster[0]-'a'].WatchingNow("/api/v1/namespaces/" + namespace + "/secrets")
		}
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		u.race(t.Context(), t, *raceRounds)

		for i := range 6 {
			cc.Drop(fleettest.Owner(fmt.Sprint(i)))
		}
		time.Sleep(u.grace)
		_, err := cc.Sweep(t.Context())
		require.NoError(t, err)
		time.Sleep(10 * time.Second) // until the watches that reads had started are released
		synctest.Wait()
		require.Empty(t, cc.Usage().Uses)
		require.Zero(t, fleettest.Status(t, cc).Informers)
		for i, api := range apis {
			require.Zero(t, api.Watching(fleettest.PathOf("ConfigMap")), i)
		}
		// Reads may have kept clusters known that were not engaged; a
		// declaration that ends releases them.
		fleettest.Declare(t, cc, fleettest.Owner("o"), fleettest.Target("b", "Secret"), fleettest.Target("c", "Secret"))
		cc.Drop(fleettest.Owner("o"))
		time.Sleep(2 * u.grace)
		synctest.Wait()
		require.Equal(t, []client.ObjectKey{fleettest.Key("a")}, cc.Clusters())
	})
}

// TestRealWhatIsDeclaredIsLiveThroughARace is the same on real clusters.
func TestRealWhatIsDeclaredIsLiveThroughARace(t *testing.T) {
	t.Parallel()
	envs := testenv.Start(t, 2)
	d := fleettest.NewDirectory()
	for i, c := range envs {
		fleettest.Create(t, c, "one")
		d.Set(fleettest.Key(string(rune('a'+i))), c.Config())
	}
	u := &users{clusters: []string{"a", "b"}, grace: 50 * time.Millisecond}
	u.write = func(cluster string) string {
		cm := &corev1.ConfigMap{}
		cm.Namespace, cm.Name = "default", "one"
		patch := client.RawPatch("application/merge-patch+json",
			fmt.Appendf(nil, `{"data":{"value":"%d"}}`, rand.Int()))
		if err := envs[cluster[0]-'a'].Client().Patch(context.Background(), cm, patch); err != nil {
			t.Error(err)
		}
		return cm.ResourceVersion
	}
	u.streams = func(cluster, namespace string) int {
		if s, err := u.cc.Cluster(fleettest.Key(cluster)).Status(); err == nil && s.Informers > 0 {
			for _, use := range u.cc.Usage().Uses {
				if use.Key.Namespace == namespace {
					return 1
				}
			}
		}
		return 0
	}
	o := fleettest.Quick(d)
	o.GC = clustercache.GC{Grace: u.grace, InUse: u.inUse, MinInterval: 50 * time.Millisecond,
		MaxInterval: 100 * time.Millisecond}
	o.IdleTimeout, o.Informers.Linger, o.QPS = 100*time.Millisecond, 50*time.Millisecond, -1
	u.cc = fleettest.Start(t, o)
	require.NoError(t, u.cc.Cluster(fleettest.Key("a")).Engage())
	u.race(t.Context(), t, 60)

	for i := range 6 {
		u.cc.Drop(fleettest.Owner(fmt.Sprint(i)))
	}
	require.Eventually(t, func() bool {
		return len(u.cc.Usage().Uses) == 0 && fleettest.Status(t, u.cc).Informers == 0
	}, fleettest.Patience, 10*time.Millisecond)
	// Reads may have kept the other cluster known; a declaration that ends
	// releases it.
	fleettest.Declare(t, u.cc, fleettest.Owner("o"), fleettest.Target("b", "Secret"))
	u.cc.Drop(fleettest.Owner("o"))
	require.Eventually(t, func() bool { return len(u.cc.Clusters()) == 1 }, fleettest.Patience, 10*time.Millisecond)
}

// TestClusterTakenInTheMomentItIsLetGoComesBack: without a grace, a cluster is
// forgotten again and again while other callers begin to need it.
func TestClusterTakenInTheMomentItIsLetGoComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleettest.NewFleet(t, 1, func(o *clustercache.Options) {
			o.GC.Grace = -1
			o.QPS = -1
		})
		var declarers sync.WaitGroup
		for i := range 4 {
			declarers.Go(func() {
				for range *raceRounds / 10 {
					if _, err := cc.Declare(t.Context(), fleettest.Owner(fmt.Sprint(i)),
						fleettest.Target("a", "ConfigMap", client.InNamespace(fmt.Sprint(i)))); err != nil {
						t.Error(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if err := cc.WaitForSync(ctx, fleettest.Owner(fmt.Sprint(i))); err != nil {
						t.Error(err)
					}
					cancel()
					// Few distinct times, so that many calls coincide.
					time.Sleep(time.Duration(rand.IntN(2)) * time.Millisecond)
					cc.Drop(fleettest.Owner(fmt.Sprint(i)))
					_, _ = cc.Sweep(t.Context())
					// Longer than a watch takes to open: often, no caller is
					// left.
					time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
				}
			})
		}
		declarers.Wait()
		synctest.Wait()
		require.Empty(t, cc.Clusters())
		require.Zero(t, apis[0].Connections())
		require.Greater(t, apis[0].Count("get /readyz"), *raceRounds/100, "it was hardly ever let go")
	})
}
