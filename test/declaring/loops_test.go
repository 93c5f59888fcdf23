// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// TestHazardOwnerCallsItself: what a reconciler declares, in whatever steps, is
// no reason to call it again.
func TestHazardOwnerCallsItself(t *testing.T) {
	configMaps, nodes := fleettest.Target("a", "ConfigMap"), fleettest.Target("a", "Node")
	everywhere := clustercache.Target{ClusterSelector: labels.Everything(), Kind: configMaps.Kind}
	red := fleettest.Target("a", "ConfigMap", client.MatchingLabels{"color": "red"})
	declare := func(targets ...clustercache.Target) []clustercache.Target {
		return append([]clustercache.Target{}, targets...)
	}
	drop := []clustercache.Target(nil)
	rest := time.Duration(repeat.Times(60)) * time.Minute
	for name, steps := range map[string][][]clustercache.Target{
		"in two steps":               {declare(nodes), declare(nodes, configMaps)},
		"in two steps, disjoint":     {declare(nodes), declare(configMaps)},
		"in three steps":             {declare(nodes), declare(red), declare(nodes, red, configMaps)},
		"nothing first":              {declare(), declare(nodes, configMaps)},
		"drop first":                 {drop, declare(nodes, configMaps)},
		"drop, and in two steps":     {drop, declare(nodes), declare(nodes, configMaps)},
		"everywhere, and one":        {declare(everywhere), declare(configMaps)},
		"one, and everywhere":        {declare(configMaps), declare(everywhere)},
		"drop, and everywhere":       {drop, declare(everywhere, nodes)},
		"all of a kind, and the red": {declare(red), declare(configMaps)},
	} {
		callsItself := func(t *testing.T, begun bool) {
			fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
				c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
			) {
				object := fleettest.ColoredConfigMap("one", "red")
				require.NoError(t, c.Client().Create(t.Context(), object))
				owner := fleettest.Owner("one")
				if begun { // all watches are in effect
					other := clustercache.Owner{GVK: fleettest.ConfigMap, ObjectKey: owner.ObjectKey}
					fleettest.Declare(t, cc, other, slices.Concat(steps...)...)
					require.NoError(t, cc.WaitForSync(t.Context(), other))
					time.Sleep(time.Minute)
				}
				l := newLoop(t, cc, owner.GVK, func(ctx context.Context, _ client.ObjectKey) error {
					for _, step := range steps {
						if step == nil {
							cc.Drop(owner)
						} else if _, err := cc.Declare(ctx, owner, step...); err != nil {
							return err
						}
					}
					return nil
				})
				l.request(owner.ObjectKey)
				most := 4
				if !begun { // each step of a watch that begins may call it: chance says how many one call covers
					most = 1 + 10 + 6 // more would be a loop that was slowed down after ten calls, to one in 10 s
				}
				require.LessOrEqual(t, l.take(time.Minute), most)
				require.Zero(t, l.take(rest), "at rest")

				// After its rest it is called for a change, and comes to rest again.
				for i := range 3 {
					object.Data["color"] = fmt.Sprint(i)
					require.NoError(t, c.Client().Update(t.Context(), object))
					calls := l.take(time.Minute)
					require.Positive(t, calls)
					require.LessOrEqual(t, calls, 4)
				}
				require.Zero(t, l.take(rest))
			})
		}
		t.Run(name, func(t *testing.T) { callsItself(t, false) })
		t.Run(name+", begun", func(t *testing.T) { callsItself(t, true) })
	}
}

// TestHazardControllersOfOneKindCallEachOther: two controllers declare for the
// same objects. By their names, each has what it declared; without them, the
// last one wins, and that is logged, but nothing spins.
func TestHazardControllersOfOneKindCallEachOther(t *testing.T) {
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprint("named ", named), func(t *testing.T) {
			book, o := &fleettest.Logbook{}, clustercachetest.Options{}
			o.Cache.Logger = book.Logger()
			fleettest.WithFakeCluster(t, o, func(t *testing.T, _ *clustercachetest.Fleet,
				c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
			) {
				// The watches are in effect: each step of one that begins calls its
				// owners, and chance says how many of them one call covers.
				owner := fleettest.Owner("one")
				other := clustercache.Owner{GVK: fleettest.ConfigMap, ObjectKey: owner.ObjectKey}
				fleettest.Declare(t, cc, other, fleettest.Target("a", "ConfigMap"), fleettest.Target("a", "Secret"))
				require.NoError(t, cc.WaitForSync(t.Context(), other))
				time.Sleep(time.Minute)
				start := func(name, kind string) (*loop, clustercache.Owner) {
					own, names := owner, []string(nil)
					if named {
						own.Controller, names = name, []string{name}
					}
					return newLoop(t, cc, owner.GVK, func(ctx context.Context, _ client.ObjectKey) error {
						_, err := cc.Declare(ctx, own, fleettest.Target("a", kind))
						return err
					}, names...), own
				}
				first, firstOwner := start("first", "ConfigMap")
				second, _ := start("second", "Secret")
				first.request(owner.ObjectKey)
				second.request(owner.ObjectKey)
				require.LessOrEqual(t, first.take(time.Minute), 4)
				require.LessOrEqual(t, second.take(0), 4)
				require.Zero(t, first.take(time.Hour)+second.take(0), "at rest")

				object := fleettest.ColoredConfigMap("one", "red")
				require.NoError(t, c.Client().Create(t.Context(), object))
				if !named { // the first is called for it only if it came last
					require.LessOrEqual(t, first.take(time.Minute), 4)
					require.LessOrEqual(t, second.take(0), 4)
					for range 20 {
						first.request(owner.ObjectKey)
						first.take(time.Second)
						second.request(owner.ObjectKey)
						second.take(time.Second)
					}
					require.Equal(t, 1, book.Count("leaves targets and comes back"))
					return
				}
				require.Equal(t, 1, first.take(time.Minute))
				require.Zero(t, second.take(0))
				uses := func(own clustercache.Owner) []string { return fleettest.KindsOf(cc.Declared(own)) }
				secondOwner := owner
				secondOwner.Controller = "second"
				require.Equal(t, []string{"a/ConfigMap"}, uses(firstOwner))
				require.Equal(t, []string{"a/Secret"}, uses(secondOwner))
				require.NotEqual(t, firstOwner.String(), secondOwner.String())
				cc.Drop(firstOwner)
				require.Empty(t, uses(firstOwner))
				require.Equal(t, []string{"a/Secret"}, uses(secondOwner))
				require.Zero(t, book.Count("leaves targets and comes back"))
			})
		})
	}
}

// TestTriggerOfAnOwnerIsOfAllItsControllers: it names the object alone.
func TestTriggerOfAnOwnerIsOfAllItsControllers(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		_ *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		owner := fleettest.Owner("one")
		owner.Controller = "second"
		fleettest.Declare(t, cc, owner, fleettest.Target("a", "ConfigMap"))
		q := &fleettest.Queue[reconcile.Request]{}
		s := controller.DeclarerSource(cc, controller.EnqueueDeclarer(owner.GVK, "second"))
		require.NoError(t, s.Start(t.Context(), q))
		time.Sleep(time.Minute)
		q.Take()
		s.Trigger(controller.Request{GVK: owner.GVK, ObjectKey: owner.ObjectKey})
		require.Len(t, q.Take(), 1)
		require.NoError(t, s.Close(t.Context()))
	})
}

// TestOwnerThatIsCalledForItsOwnDeclarationsIsSlowedDown: without a grace, each
// return to a target lists it anew, which is a change. The owner is named once,
// and others are called as before.
func TestOwnerThatIsCalledForItsOwnDeclarationsIsSlowedDown(t *testing.T) {
	book, o := &fleettest.Logbook{}, clustercachetest.Options{}
	o.Cache.Logger = book.Logger()
	o.Cache.GC.Grace = -1
	fleettest.WithFakeCluster(t, o, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		owner := fleettest.Owner("one")
		calls := ownersOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("two"), fleettest.Target("a", "Node"))
		l := newLoop(t, cc, owner.GVK, func(ctx context.Context, name client.ObjectKey) error {
			if name != owner.ObjectKey {
				return nil
			}
			if _, err := cc.Declare(ctx, owner, fleettest.Target("a", "Secret")); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
			_, err := cc.Declare(ctx, owner, fleettest.Target("a", "ConfigMap"))
			return err
		})
		l.request(owner.ObjectKey)
		require.LessOrEqual(t, l.take(10*time.Minute), 20+6*10)
		require.Equal(t, 1, book.Count("leaves targets and comes back", owner.Name))
		calls.take(0)
		require.NoError(t, c.Client().Create(t.Context(), fleettest.ColoredConfigMap("new", "red")))
		require.Contains(t, calls.take(11*time.Second), "one", "it is called for changes, if later")
	})
}

// TestGuaranteeDeclaringCallsNobody: a reconciler makes any sequence of Declare,
// Drop and partial sets on each call, while objects change. It is called for the
// changes, at most twice for each, and not for its own declarations.
func TestGuaranteeDeclaringCallsNobody(t *testing.T) {
	kinds := []string{"ConfigMap", "Secret", "Node", "Namespace", "Service"}
	for seed := range uint64(repeat.Times(20)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			o := clustercachetest.Options{}
			o.Cache.GC.Grace = 24 * time.Hour // or each return to a target would be a list, and that a change
			fleettest.WithFakeCluster(t, o, func(t *testing.T, _ *clustercachetest.Fleet,
				c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
			) {
				object := fleettest.ColoredConfigMap("one", "red")
				require.NoError(t, c.Client().Create(t.Context(), object))
				var mu sync.Mutex // protects rnd
				rnd := rand.New(rand.NewPCG(seed, 0))
				draw := func(n int) int {
					mu.Lock()
					defer mu.Unlock()
					return rnd.IntN(n)
				}
				set := func() (targets []clustercache.Target) {
					for _, kind := range kinds {
						switch draw(4) {
						case 0:
							targets = append(targets, fleettest.Target("a", kind))
						case 1:
							targets = append(targets, clustercache.Target{
								ClusterSelector: labels.Everything(), Kind: fleettest.Target("a", kind).Kind,
							})
						}
					}
					return targets
				}
				owner := fleettest.Owner("one")
				l := newLoop(t, cc, owner.GVK, func(ctx context.Context, _ client.ObjectKey) error {
					for range 1 + draw(4) {
						if draw(4) == 0 {
							cc.Drop(owner)
						} else if _, err := cc.Declare(ctx, owner, set()...); err != nil {
							return err
						}
						time.Sleep(time.Duration(draw(2)*draw(20)) * time.Millisecond)
					}
					_, err := cc.Declare(ctx, owner, append(set(), fleettest.Target("a", "ConfigMap"))...)
					return err
				})
				for range 20 { // all targets become known
					l.request(owner.ObjectKey)
					l.take(time.Second)
				}
				require.Zero(t, l.take(time.Minute), "at rest")

				changes, calls := 0, 0
				for range 40 {
					object.Data["color"] = fmt.Sprint(changes)
					require.NoError(t, c.Client().Update(t.Context(), object))
					changes++
					if draw(2) == 0 {
						calls += l.take(time.Duration(draw(50)) * time.Millisecond)
					}
				}
				calls += l.take(time.Minute) // it may have been slowed down
				require.Positive(t, calls)
				require.LessOrEqual(t, calls, 2*changes)
				require.Zero(t, l.take(5*time.Minute), "at rest")
			})
		})
	}
}
