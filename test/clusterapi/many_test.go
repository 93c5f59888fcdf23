// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// fleetSize is how many clusters come back together in case 55: go test -run
// TestClusterAPICases/case_55 ./clustercache -clusters 1000.
var fleetSize = flag.Int("clusters", 60, "clusters that come back together in a test")

// deadEnd is an address that swallows connections: it neither refuses nor
// answers.
type deadEnd struct {
	mu    sync.Mutex
	dials []time.Time
}

func (d *deadEnd) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	d.mu.Lock()
	d.dials = append(d.dials, time.Now())
	d.mu.Unlock()
	<-ctx.Done()
	return nil, ctx.Err()
}

func (d *deadEnd) times() []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.dials)
}

// caseDeadAmongMany: 100 clusters, every fifth of which swallows connections,
// 10 workers, and 100 callers for three minutes.
func caseDeadAmongMany(t *testing.T) {
	const clusters, callers = 100, 100
	synctest.Test(t, func(t *testing.T) {
		d := fleettest.NewDirectory()
		o := fleettest.Silent(d)
		o.Discover = true
		o.ConnectConcurrency, o.ProbeConcurrency = 10, 10
		dead := map[client.ObjectKey]*deadEnd{}
		var all []client.ObjectKey
		for i := range clusters {
			k := fleettest.Key(fmt.Sprintf("c%02d", i))
			all = append(all, k)
			api := fleettest.NewAPI(t, k.Name)
			api.Put("in-"+k.Name, "1", nil)
			config := api.Config()
			if i%5 == 0 {
				dead[k] = &deadEnd{}
				config.Dial = dead[k].dial
			}
			d.Set(k, config)
		}
		cc := fleettest.Start(t, o)
		time.Sleep(20 * time.Second)
		for _, k := range all {
			s, err := cc.Cluster(k).Status()
			require.NoError(t, err)
			require.Equal(t, dead[k] == nil, s.Connected, k)
		}
		stop := time.Now().Add(3 * time.Minute)
		var working sync.WaitGroup
		for range callers {
			working.Go(func() {
				for time.Now().Before(stop) && !t.Failed() {
					k := all[rand.IntN(clusters)]
					if err := useCluster(t.Context(), cc, k, dead[k] != nil); err != nil {
						t.Errorf("%s: %v", k, err)
					}
					time.Sleep(rand.N(6 * time.Second))
				}
			})
		}
		working.Wait()
		for _, k := range all {
			s, err := cc.Cluster(k).Status()
			require.NoError(t, err)
			if dead[k] == nil {
				require.Equal(t, 1, s.Connects, "lost its connection")
				continue
			}
			require.Equal(t, "Timeout", s.Reason)
			dials := dead[k].times()
			require.Greater(t, len(dials), 5)
			for i := 1; i < len(dials); i++ {
				bound := 1.2 * float64(maxBackoff+probeTimeout)
				require.Less(t, float64(dials[i].Sub(dials[i-1])), bound)
			}
		}
	})
}

// useCluster reads a working cluster and its status, as a reconciler does, and
// requires reads of a dead one to fail at once.
func useCluster(ctx context.Context, cc *clustercache.ClusterCache, k client.ObjectKey, dead bool) error {
	begin := time.Now()
	list := &corev1.ConfigMapList{}
	err := cc.Cluster(k).Reader().List(ctx, list)
	took := time.Since(begin)
	switch {
	case dead && (!errors.Is(err, clustercache.ErrNotConnected) || took > 0):
		return fmt.Errorf("dead, and answered %w after %s", err, took)
	case dead:
		return nil
	case err != nil:
		return err
	case len(list.Items) != 1 || list.Items[0].Name != "in-"+k.Name:
		return fmt.Errorf("listed %d objects", len(list.Items))
	}
	s, err := cc.Cluster(k).Status()
	if life := time.Since(s.LastLife); err == nil && float64(life) > 1.2*float64(probeInterval) {
		return fmt.Errorf("no life since %s", life)
	}
	return err
}

// crowd counts how many lists run at once, each of which takes a second.
type crowd struct {
	mu             sync.Mutex
	now, max, sums int
}

func (c *crowd) slow(api *fleettest.API) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if strings.HasSuffix(r.URL.Path, "/configmaps") &&
			(q.Get("sendInitialEvents") == "true" || q.Get("watch") == "") &&
			!strings.HasPrefix(q.Get("fieldSelector"), "metadata.name=fleetcache") &&
			!strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") { // that is an audit
			c.add(1)
			time.Sleep(time.Second)
			c.add(-1)
		}
		api.ServeHTTP(w, r)
	})
}

func (c *crowd) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += n
	c.max = max(c.max, c.now)
	if n > 0 {
		c.sums++
	}
}

// lists returns the number of lists and the highest number of concurrent ones
// since its last call.
func (c *crowd) lists() (total, atOnce int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	total, atOnce = c.sums, c.max
	c.sums, c.max = 0, c.now
	return total, atOnce
}

// caseFleetComesBack: a fleet that was cut off and comes back unchanged lists
// nothing; one that was restored elsewhere lists everything, within the budget.
// A test on a real server proves that all kinds of a cluster share one rate.
func caseFleetComesBack(t *testing.T) {
	const budget = 5
	synctest.Test(t, func(t *testing.T) {
		d := fleettest.NewDirectory()
		o := fleettest.Silent(d)
		o.Discover = true
		o.Informers.ListConcurrency = budget
		cc := fleettest.Start(t, o)
		crowd := &crowd{}
		var apis []*fleettest.API
		for i := range *fleetSize {
			api := fleettest.NewAPI(t, fmt.Sprint("uid-", i))
			api.Put("one", "1", nil)
			api.Handler = crowd.slow(api)
			apis = append(apis, api)
			d.Set(fleettest.Key(fmt.Sprint(i)), api.Config())
		}
		objects := fleettest.FollowObjects(t, cc,
			events.Selection{Kinds: []client.Object{&corev1.ConfigMap{}}, Watch: true})
		settle := func() {
			t.Helper()
			for up := 0; up < *fleetSize; time.Sleep(time.Second) {
				up = 0
				for _, s := range cc.Statuses() {
					watches, err := cc.Cluster(s.Cluster).WatchStatuses()
					require.NoError(t, err)
					for _, w := range watches {
						// The epoch excludes the rest of the previous history.
						if w.Informer.Synced && string(w.Informer.Epoch) == s.Epoch {
							up++
						}
					}
				}
			}
		}
		settle()
		total, atOnce := crowd.lists()
		require.Equal(t, *fleetSize, total)
		require.Equal(t, budget, atOnce)

		comeBack(t, cc, apis, func(*fleettest.API) {})
		total, _ = crowd.lists()
		require.Zero(t, total)
		for len(objects.Events) > 0 {
			require.True(t, (<-objects.Events).Initial, "an event of an unchanged object")
		}

		comeBack(t, cc, apis, func(api *fleettest.API) { api.Become(api.Identity() + "-restored") })
		settle()
		total, atOnce = crowd.lists()
		require.Equal(t, *fleetSize, total)
		require.Equal(t, budget, atOnce)
	})
}

// comeBack cuts a fleet off until every cluster is disconnected, and lets it
// come back changed.
func comeBack(t *testing.T, cc *clustercache.ClusterCache, apis []*fleettest.API, change func(*fleettest.API)) {
	t.Helper()
	for _, api := range apis {
		api.Die()
	}
	time.Sleep(2 * time.Minute)
	for _, s := range cc.Statuses() {
		require.Equal(t, status.PhaseDisconnected, s.Phase)
	}
	for _, api := range apis {
		change(api)
		api.Live()
	}
	time.Sleep(2 * maxBackoff)
	for _, s := range cc.Statuses() {
		require.Equal(t, status.PhaseReady, s.Phase)
	}
}

func caseRemovedAndStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		d := fleettest.NewDirectory()
		var apis []*fleettest.API
		for i := range 5 {
			api := fleettest.NewAPI(t, fmt.Sprint("uid-", i))
			api.Put("one", "1", nil)
			apis = append(apis, api)
			d.Set(fleettest.Key(fmt.Sprint(i)), api.Config())
		}
		apis[3].FailWith(-1, "/configmaps")
		apis[4].FailWith(-1, "/")
		synctest.Wait()
		before := goroutines()
		cc, err := clustercache.New(fleettest.SilentWith(d, registry))
		require.NoError(t, err)
		stop := fleettest.Run(t, cc)
		var watches []*clustercache.Watch
		for i := range apis {
			w, err := cc.Cluster(fleettest.Key(fmt.Sprint(i))).Watch(t.Context(), &corev1.ConfigMap{})
			require.NoError(t, err)
			watches = append(watches, w)
		}
		require.NoError(t, controller.ClusterSource(cc,
			func(context.Context, events.Cluster) []int { return nil }).Start(t.Context(),
			fleettest.QueueOf[int](t)))
		time.Sleep(time.Minute)
		require.Positive(t, fleettest.SeriesOf(t, registry, "fleet/0"))
		d.Fail(fleettest.Key("0"), resolver.ErrClusterNotFound)
		watches[0].Release() // a cluster that is gone stays known, as gone, while a watch of it is held
		time.Sleep(grace + time.Second)
		require.Zero(t, fleettest.SeriesOf(t, registry, "fleet/0"))
		require.Positive(t, fleettest.SeriesOf(t, registry, "fleet/1"))

		begin := time.Now()
		stop()
		require.Less(t, time.Since(begin), time.Second)
		synctest.Wait()
		require.LessOrEqual(t, goroutines(), before+2, "the queue of the source is the test's")
		families, err := registry.Gather()
		require.NoError(t, err)
		require.Empty(t, families)
	})
}
