// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/settable"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// labeled is a fleet of clusters whose labels a test sets.
type labeled struct {
	*settable.Resolver

	t    *testing.T
	cc   *clustercache.ClusterCache
	apis map[string]*fleettest.API
}

// newLabeled returns a fleet whose clusters are discovered. change may change
// the options.
func newLabeled(t *testing.T, change func(*clustercache.Options)) *labeled {
	t.Helper()
	l := &labeled{Resolver: settable.New(), t: t, apis: map[string]*fleettest.API{}}
	o := fleettest.Silent(l)
	o.Discover = true
	if change != nil {
		change(&o)
	}
	l.cc = fleettest.Start(t, o)
	return l
}

// set makes a cluster known with a label, and returns its API server.
func (l *labeled) set(name, env string) *fleettest.API {
	l.t.Helper()
	if l.apis[name] == nil {
		l.apis[name] = fleettest.NewAPI(l.t, "uid-"+name)
	}
	access, err := resolver.NewAccess(l.apis[name].Config())
	require.NoError(l.t, err)
	l.Set(fleettest.Key(name), access.WithLabels(map[string]string{"env": env}), nil)
	return l.apis[name]
}

// declared returns what an owner uses, after a time.
func (l *labeled) declared(owner string, after time.Duration) []string {
	time.Sleep(after)
	synctest.Wait()
	return fleettest.KindsOf(l.cc.Declared(fleettest.Owner(owner)))
}

func (l *labeled) clusters() (names []string) {
	for _, key := range l.cc.Clusters() {
		names = append(names, key.Name)
	}
	return names
}

// in returns a target in all clusters of an environment.
func in(env, kind string, opts ...client.ListOption) clustercache.Target {
	target := fleettest.Target("", kind, opts...)
	target.Cluster = client.ObjectKey{}
	target.ClusterSelector = labels.SelectorFromSet(labels.Set{"env": env})
	return target
}

// TestTargetOfClustersFollowsTheirLabels: clusters that come, go and are
// relabeled enter and leave what was declared once.
func TestTargetOfClustersFollowsTheirLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLabeled(t, nil)
		l.Synced()
		a := l.set("a", "prod")
		l.set("b", "dev")
		time.Sleep(time.Second)
		d := fleettest.Declare(t, l.cc, fleettest.Owner("one"), in("prod", "ConfigMap"))
		require.Len(t, d.Added, 1)
		require.Equal(t, "v1 ConfigMap in cluster fleet/a", d.Added[0].String())
		require.NoError(t, l.cc.WaitForSync(t.Context(), fleettest.Owner("one")))
		require.Equal(t, []string{"a/ConfigMap"}, l.declared("one", 0))
		require.True(t, fleettest.Declare(t, l.cc, fleettest.Owner("one"), in("prod", "ConfigMap")).Synced)

		c := l.set("c", "prod") // a later one
		l.set("b", "prod")
		require.Equal(t, []string{"a/ConfigMap", "b/ConfigMap", "c/ConfigMap"}, l.declared("one", time.Second))
		requests := a.Total() + c.Total()
		again := fleettest.Declare(t, l.cc, fleettest.Owner("one"), in("prod", "ConfigMap"))
		require.Empty(t, again.Added)
		require.Empty(t, again.Removed)
		require.True(t, again.Synced)
		require.Equal(t, requests, a.Total()+c.Total())

		l.set("a", "dev")
		l.Delete(fleettest.Key("c"))
		require.Equal(t, []string{"b/ConfigMap"}, l.declared("one", time.Minute))
		require.Zero(t, a.WatchingNow(fleettest.PathOf("ConfigMap")), "released")
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"a", "b"}, l.clusters(), "a selector keeps no cluster that is gone")
		l.set("c", "prod")
		require.Equal(t, []string{"b/ConfigMap", "c/ConfigMap"}, l.declared("one", time.Second), "back")

		l.cc.Drop(fleettest.Owner("one"))
		require.Empty(t, l.declared("one", 0))
		require.Equal(t, 1, c.WatchingNow(fleettest.PathOf("ConfigMap")), "within GC.Grace")
		time.Sleep(time.Minute)
		require.Zero(t, c.WatchingNow(fleettest.PathOf("ConfigMap")))
		require.Empty(t, l.cc.Usage().Uses)
		l.set("d", "prod")
		require.Empty(t, l.declared("one", time.Minute), "it was dropped")
		require.Zero(t, l.apis["d"].WatchingNow(fleettest.PathOf("ConfigMap")))
	})
}

// TestRelabeledClusterThatReturnsAtOnceCostsNoList: its informer lingers.
func TestRelabeledClusterThatReturnsAtOnceCostsNoList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLabeled(t, nil)
		l.Synced()
		api := l.set("a", "prod")
		fleettest.Declare(t, l.cc, fleettest.Owner("one"), in("prod", "ConfigMap"))
		require.Equal(t, []string{"a/ConfigMap"}, l.declared("one", time.Second))
		l.set("a", "dev")
		require.Empty(t, l.declared("one", time.Second))
		l.set("a", "prod")
		require.Equal(t, []string{"a/ConfigMap"}, l.declared("one", time.Second))
		require.True(t, l.cc.Declared(fleettest.Owner("one"))[0].Synced)
		require.Equal(t, 1, api.Count("stream "+fleettest.PathOf("ConfigMap")))
	})
}

// TestTargetsThatOverlapShareAWatch: a cluster that is named, and selected
// twice, is declared once, until the last of the three has ended.
func TestTargetsThatOverlapShareAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLabeled(t, nil)
		l.Synced()
		api := l.set("a", "prod")
		time.Sleep(time.Second)
		calls := ownersOf(t, l.cc)
		named := fleettest.Target("a", "ConfigMap")
		everywhere := in("prod", "ConfigMap")
		everywhere.ClusterSelector = labels.Everything()
		first := fleettest.Declare(t, l.cc, fleettest.Owner("one"), named, in("prod", "ConfigMap"), everywhere)
		require.Len(t, first.Added, 1)
		fleettest.Declare(t, l.cc, fleettest.Owner("two"), in("prod", "ConfigMap"))
		time.Sleep(time.Second)
		usage := l.cc.Usage()
		require.Len(t, usage.Uses, 1)
		require.Equal(t, []clustercache.Owner{fleettest.Owner("one"), fleettest.Owner("two")}, usage.Uses[0].Owners)
		require.Equal(t, usage.Uses[0].Owners, l.cc.Declared(fleettest.Owner("two"))[0].Owners)
		require.Len(t, usage.Owners[0].Uses, 1)
		calls.take(time.Second)

		prod := in("prod", "ConfigMap")
		for i, left := range [][]clustercache.Target{{named, prod}, {prod}, {named}} {
			d := fleettest.Declare(t, l.cc, fleettest.Owner("one"), left...)
			require.Empty(t, d.Added)
			require.Empty(t, d.Removed)
			calls.take(time.Minute) // longer than GC.Grace
			api.Put("x", strconv.Itoa(i), nil)
			require.Equal(t, []string{"one", "two"}, calls.take(time.Second), "%v", left)
		}
		l.cc.Drop(fleettest.Owner("two"))
		time.Sleep(time.Minute)
		calls.take(0)
		api.Put("x", "last", nil)
		require.Equal(t, one, calls.take(time.Second), "what one need releases is still delivered for the other")

		d := fleettest.Declare(t, l.cc, fleettest.Owner("one"))
		require.Len(t, d.Removed, 1)
		require.Equal(t, 1, api.Count("stream "+fleettest.PathOf("ConfigMap")))
	})
}

// TestOwnerIsCalledWhenTheSetOfClustersChanges: and by the objects of those that
// it has, also if nothing is in them.
func TestOwnerIsCalledWhenTheSetOfClustersChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLabeled(t, nil)
		l.Synced()
		time.Sleep(time.Second)
		calls := ownersOf(t, l.cc)
		fleettest.Declare(t, l.cc, fleettest.Owner("one"), in("prod", "ConfigMap"))
		fleettest.Declare(t, l.cc, fleettest.Owner("two"), in("dev", "ConfigMap"))
		calls.take(time.Minute)

		api := l.set("a", "prod")
		require.Contains(t, calls.take(time.Second), "one")
		require.Empty(t, calls.take(time.Hour))
		api.Put("x", "1", nil)
		require.Equal(t, one, calls.take(time.Second))

		l.set("a", "dev")
		require.Equal(t, []string{"one", "two"}, calls.take(time.Second))
		api.Put("x", "2", nil)
		require.Equal(t, []string{"two"}, calls.take(time.Second))
		l.set("a", "none")
		require.Equal(t, []string{"two"}, calls.take(time.Second))
		api.Put("x", "3", nil)
		require.Empty(t, calls.take(time.Hour))

		l.set("a", "prod")
		calls.take(time.Minute)
		l.Delete(fleettest.Key("a"))
		require.Equal(t, one, calls.take(time.Minute))
		require.Empty(t, l.declared("one", time.Minute))

		late := ownersOf(t, l.cc)
		require.Equal(t, []string{"one", "two"}, late.take(time.Second), "owners without a cluster are owners")
	})
}

// TestHazardEmptySelectionBeforeTheClustersAreKnown: an operator that starts
// must not take "no cluster is known yet" for "no cluster is selected". Once
// that is settled its owners are called, even if no cluster is selected.
func TestHazardEmptySelectionBeforeTheClustersAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLabeled(t, nil)
		calls := ownersOf(t, l.cc)
		none := in("none", "ConfigMap")
		require.False(t, fleettest.Declare(t, l.cc, fleettest.Owner("one"), none).Synced)
		require.True(t, fleettest.Declare(t, l.cc, fleettest.Owner("two")).Synced)
		l.set("a", "prod")
		calls.take(time.Minute)
		require.False(t, fleettest.Declare(t, l.cc, fleettest.Owner("one"), none).Synced)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.cc.WaitForSync(ctx, fleettest.Owner("one"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "v1 ConfigMap in clusters with env=none for fleet.test/v1 Rollout ns/one: "+
			"not every cluster's labels are known yet: context deadline exceeded")

		waited := make(chan error, 1)
		go func() { waited <- l.cc.WaitForSync(t.Context(), fleettest.Owner("one")) }()
		synctest.Wait()
		l.Synced()
		require.Equal(t, one, calls.take(time.Second))
		require.True(t, fleettest.Declare(t, l.cc, fleettest.Owner("one"), none).Synced)
		require.NoError(t, <-waited)

		l.Set(fleettest.Key("broken"), resolver.Access{}, errors.New("no quota"))
		time.Sleep(time.Second)
		require.True(t, fleettest.Declare(t, l.cc, fleettest.Owner("one"), none).Synced,
			"a cluster without access selects nothing, and holds up nothing")
	})
}

// slow delays the answers of a resolver.
type slow struct {
	resolver.Resolver

	gate chan struct{}
}

func (s slow) Resolve(ctx context.Context, cluster resolver.Cluster) (resolver.Access, error) {
	select {
	case <-s.gate:
	case <-ctx.Done():
	}
	return s.Resolver.Resolve(ctx, cluster)
}

// TestHazardSelectionWhileAClusterIsResolved: the only cluster that is selected
// has no labels yet when its owner declares.
func TestHazardSelectionWhileAClusterIsResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		l := newLabeled(t, func(o *clustercache.Options) {
			o.Resolver, o.Discover = slow{o.Resolver, gate}, false
		})
		calls := ownersOf(t, l.cc)
		l.set("a", "prod")
		require.True(t, fleettest.Declare(t, l.cc, fleettest.Owner("one"), in("prod", "ConfigMap")).Synced,
			"without Discover, no cluster is known before it is engaged")
		require.NoError(t, l.cc.Cluster(fleettest.Key("a")).Engage())
		calls.take(time.Second)
		require.False(t, fleettest.Declare(t, l.cc, fleettest.Owner("one"), in("prod", "ConfigMap")).Synced)
		close(gate)
		require.Equal(t, one, calls.take(time.Second))
		require.True(t, fleettest.Declare(t, l.cc, fleettest.Owner("one"), in("prod", "ConfigMap")).Synced)
		require.Equal(t, []string{"a/ConfigMap"}, l.declared("one", 0))

		l.cc.Cluster(fleettest.Key("a")).Disengage()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"a"}, l.clusters(), "an owner needs it")
		l.set("a", "dev")
		time.Sleep(time.Minute)
		require.Empty(t, l.clusters(), "no owner needs it any more")
	})
}

// TestLabelsNeverUndoAnOwnersOwnCalls: while labels change all the time, each
// owner declares other selectors, and drops what it declared. In the end it has
// what its own last call asked for.
func TestLabelsNeverUndoAnOwnersOwnCalls(t *testing.T) {
	envs := []string{"prod", "dev", "test"}
	names := []string{"a", "b", "c", "d"}
	for seed := range uint64(repeat.Times(40)) {
		synctest.Test(t, func(t *testing.T) {
			l := newLabeled(t, func(o *clustercache.Options) { o.GC.Grace = 3 * time.Millisecond })
			l.Synced()
			for _, name := range names {
				l.set(name, envs[0])
			}
			time.Sleep(time.Second)
			calls := ownersOf(t, l.cc)
			want, last := map[string]string{}, map[string]string{} // env by cluster, and by owner
			var mu sync.Mutex
			var all sync.WaitGroup
			random := func(i uint64) *rand.Rand {
				return rand.New(rand.NewPCG(seed, i)) //nolint:gosec // a test that can be repeated
			}
			for i, name := range names {
				all.Go(func() {
					r := random(uint64(i))
					for range 30 {
						env := envs[r.IntN(len(envs))]
						mu.Lock()
						want[name] = env
						l.set(name, env)
						if r.IntN(8) == 0 {
							delete(want, name)
							l.Delete(fleettest.Key(name))
						}
						mu.Unlock()
						time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
					}
				})
			}
			for i, owner := range []string{"one", "two", "three"} {
				all.Go(func() {
					r := random(uint64(i) + 10)
					for range 30 {
						env := envs[r.IntN(len(envs))]
						if r.IntN(3) == 0 {
							env = ""
							l.cc.Drop(fleettest.Owner(owner))
						} else {
							_, err := l.cc.Declare(t.Context(), fleettest.Owner(owner), in(env, "ConfigMap"))
							require.NoError(t, err)
						}
						mu.Lock()
						last[owner] = env
						mu.Unlock()
						time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
					}
				})
			}
			all.Wait()
			time.Sleep(time.Hour)
			synctest.Wait()
			calls.take(0)
			for name, env := range want {
				l.apis[name].Put("x", "last", nil)
				var owners []string
				for _, owner := range []string{"one", "two", "three"} {
					if last[owner] == env {
						owners = append(owners, owner)
					}
				}
				require.Equal(t, owners, calls.take(time.Second), "seed %d: by an object in %s", seed, name)
			}

			used := map[string]bool{}
			for owner, env := range last {
				var expected []string
				for name, have := range want {
					if have == env {
						expected = append(expected, name+"/ConfigMap")
						used[name] = true
					}
				}
				slices.Sort(expected)
				require.Equal(t, expected, l.declared(owner, 0), "seed %d, %s", seed, owner)
			}
			require.Len(t, l.cc.Usage().Uses, len(used), "seed %d: nothing else is watched", seed)
		})
	}
}

// TestOwnerThatIsGoneIsForgottenWhateverLabelsDo: changes of labels are no sign
// of life of an owner, and an owner whose selector selects nothing is looked
// for, too.
func TestOwnerThatIsGoneIsForgottenWhateverLabelsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLabeled(t, func(o *clustercache.Options) {
			o.GC.InUse = func(_ context.Context, owner clustercache.Owner) (bool, error) {
				return owner.Name == "two", nil
			}
		})
		l.Synced()
		fleettest.Declare(t, l.cc, fleettest.Owner("one"), in("prod", "ConfigMap"))
		fleettest.Declare(t, l.cc, fleettest.Owner("two"), in("prod", "Secret"))
		fleettest.Declare(t, l.cc, fleettest.Owner("three"), in("none", "Secret"))
		for i := range 120 {
			l.set("a", []string{"prod", "dev"}[i%2])
			time.Sleep(time.Second)
		}
		l.set("a", "prod")
		time.Sleep(time.Second)
		usage := l.cc.Usage()
		require.Len(t, usage.Owners, 1)
		require.Equal(t, fleettest.Owner("two"), usage.Owners[0].Owner)
		require.Len(t, usage.Uses, 1)

		l.cc.Drop(fleettest.Owner("two"))
		time.Sleep(time.Second)
		swept, err := l.cc.Sweep(t.Context())
		require.NoError(t, err)
		require.Empty(t, swept.Released, "within GC.Grace")
		require.NotZero(t, l.cc.Usage().Uses[0].UnusedSince)
	})
}

// TestTargetOfClustersThatReplicasShare: a replica watches, of the clusters that
// are selected, those that it owns or stands by for.
func TestTargetOfClustersThatReplicasShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sharding := clustercachetest.NewSharding()
		l := newLabeled(t, func(o *clustercache.Options) { o.Sharding = sharding })
		l.Synced()
		api := l.set("a", "prod")
		calls := ownersOf(t, l.cc)
		fleettest.Declare(t, l.cc, fleettest.Owner("one"), in("prod", "ConfigMap"))
		require.Empty(t, l.declared("one", time.Minute))
		require.Zero(t, api.Dialled(), "another replica's")
		calls.take(time.Second)

		sharding.Gain(fleettest.Key("a"))
		require.Equal(t, one, calls.take(time.Minute))
		require.Equal(t, []string{"a/ConfigMap"}, l.declared("one", time.Second))
		sharding.Lose(fleettest.Key("a"))
		sharding.Cool(fleettest.Key("a"))
		require.Equal(t, one, calls.take(time.Minute))
		require.Empty(t, l.declared("one", time.Minute))
		require.Empty(t, l.clusters(), "a selector keeps no cluster that another replica owns")
		require.Zero(t, api.WatchingNow(fleettest.PathOf("ConfigMap")))
	})
}

// TestSelectorOfATargetIsChecked: the target fails alone, and is named.
func TestSelectorOfATargetIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLabeled(t, nil)
		both := in("prod", "Secret")
		both.Cluster = fleettest.Key("a")
		nothing := clustercache.Target{ClusterSelector: labels.Nothing(), Kind: &corev1.Secret{}}
		_, err := l.cc.Declare(t.Context(), fleettest.Owner("one"), in("prod", "ConfigMap"), both, nothing)
		require.EqualError(t, err, "v1 Secret in clusters with env=prod for fleet.test/v1 Rollout ns/one: "+
			"Targets[1].ClusterSelector: a target with a Cluster has no ClusterSelector\n"+
			"v1 Secret in all clusters for fleet.test/v1 Rollout ns/one: "+
			"Targets[2].ClusterSelector: selects nothing")
		target, ok := errors.AsType[*clustercache.TargetError](err)
		require.True(t, ok)
		require.Equal(t, "Targets[1].ClusterSelector", target.Field)
		l.Synced()
		l.set("a", "prod")
		require.Equal(t, []string{"a/ConfigMap"}, l.declared("one", time.Second))
	})
}
