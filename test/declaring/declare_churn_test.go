// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// The long run, as measured for a release:
//
//	go test ./test/declaring -run TestDeclareAndDropLeavesNothing -declare.rounds=500 -timeout=1h -v
//	go test ./test/declaring -run TestRealDeclareAndDropLeavesNothing -v \
//	  -declare.real -declare.rounds=500 -declare.clusters=20 -timeout=2h
var (
	churnRounds   = flag.Int("declare.rounds", 12, "rounds of declaring and dropping everything")
	churnClusters = flag.Int("declare.clusters", 2, "real clusters in which everything is declared and dropped")
	churnReal     = flag.Bool("declare.real", false,
		"declare and drop as often in real clusters as in fake ones; else only three times")
)

// footprint counts the resources of a process that could leak.
type footprint struct {
	goroutines, series int
	connections        int64
	heap               uint64
}

func (f footprint) String() string {
	return fmt.Sprintf("%d goroutines, %d connections, %d metric series, %.2f MiB live heap", f.goroutines,
		f.connections, f.series, float64(f.heap)/(1<<20))
}

// churn declares kinds in every cluster, and drops them.
type churn struct {
	cc       *clustercache.ClusterCache
	registry *prometheus.Registry
	clusters int
	open     atomic.Int64 // connections
	settle   func()       // returns when the dropped watches have ended
}

var churnKinds = []string{"ConfigMap", "Secret", "Service", "Endpoints", "ServiceAccount"}

// countedConn counts down when it is closed.
type countedConn struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *countedConn) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}

// config makes a config count its connections.
func (c *churn) config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c.open.Add(1)
		return &countedConn{Conn: conn, open: &c.open}, nil
	}
	return config
}

func (c *churn) footprint(t *testing.T) footprint {
	t.Helper()
	families, err := c.registry.Gather()
	require.NoError(t, err)
	f := footprint{goroutines: runtime.NumGoroutine(), connections: c.open.Load()}
	for _, family := range families {
		f.series += len(family.GetMetric())
	}
	var m runtime.MemStats
	for range 3 { // sync.Pools are empty after the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	f.heap = m.HeapAlloc
	return f
}

// round has ten owners declare five kinds in all clusters, each owner its own
// part and part of its neighbor's, and drop them.
func (c *churn) round(t *testing.T, number int, meanwhile func()) {
	t.Helper()
	never := client.MatchingLabels{"round": fmt.Sprint(number)} // each round's selection is new
	const owners = 10
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for i := range owners {
		var targets []clustercache.Target
		for cluster := range c.clusters {
			for n, kind := range churnKinds {
				if at := (cluster*len(churnKinds) + n) % owners; at == i || at == (i+1)%owners {
					targets = append(targets, fleettest.Target(fmt.Sprint(cluster), kind, never))
				}
			}
		}
		fleettest.Declare(t, c.cc, fleettest.Owner(fmt.Sprint(i)), targets...)
	}
	for i := range owners {
		require.NoError(t, c.cc.WaitForSync(ctx, fleettest.Owner(fmt.Sprint(i))))
	}
	require.Len(t, c.cc.Usage().Uses, c.clusters*len(churnKinds))
	meanwhile()
	for i := range owners {
		c.cc.Drop(fleettest.Owner(fmt.Sprint(i)))
	}
	c.settle()
}

// run does all rounds, and compares the footprint after them with that before.
func (c *churn) run(t *testing.T, rounds int) {
	t.Helper()
	start := c.footprint(t)
	c.round(t, 1, func() { t.Logf("in the first round: %v", c.footprint(t)) })
	first := c.footprint(t) // the first round makes the shared tables, pools and dictionaries
	t.Logf("at the start: %v", start)
	t.Logf("after one round: %v", first)
	for round := 2; round <= rounds; round++ {
		c.round(t, round, func() {})
		if round%50 == 0 {
			t.Logf("after %d rounds: %v", round, c.footprint(t))
		}
	}
	const slack = 1 << 20
	var end footprint
	begin := time.Now()
	// A ping timer of net/http runs for half a minute after the end of its
	// connection, and keeps everything alive that it refers to.
	require.Eventually(t, func() bool {
		end = c.footprint(t)
		return end.heap < first.heap+slack
	}, 2*time.Minute, time.Second, "heap after %d rounds", rounds)
	t.Logf("after %d rounds, and %s: %v", rounds, time.Since(begin).Round(time.Second), end)
	require.LessOrEqual(t, end.goroutines, start.goroutines+2, "the test has some of its own now and then")
	require.Equal(t, start.connections, end.connections)
	require.Equal(t, first.series, end.series)
	require.LessOrEqual(t, end.series, start.series+2, "counters of probes appear with the first one")
}

func churnOptions(r resolver.Resolver, registry *prometheus.Registry) clustercache.Options {
	return clustercache.Options{
		Resolver: r, Logger: logr.FromSlogHandler(slog.DiscardHandler), MetricsRegisterer: registry, QPS: -1,
	}
}

// TestDeclareAndDropLeavesNothing: five kinds are declared in twenty clusters
// and dropped, again and again. Goroutines, heap, connections and metric series
// return to where they began.
func TestDeclareAndDropLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &churn{registry: prometheus.NewRegistry(), clusters: 20, settle: func() {
			time.Sleep(31 * time.Second)
			synctest.Wait()
		}}
		d := fleettest.NewDirectory()
		for i := range c.clusters {
			api := fleettest.NewAPI(t, fmt.Sprintf("uid-%d", i))
			for j := range 10 {
				api.Put(fmt.Sprint(j), "value", nil)
			}
			d.Set(fleettest.Key(fmt.Sprint(i)), c.config(api.Config()))
		}
		c.cc = fleettest.Start(t, churnOptions(d, c.registry))
		synctest.Wait()
		c.run(t, repeat.Times(*churnRounds))
	})
}

// TestRealDeclareAndDropLeavesNothing is the same in real clusters. It has the
// process, whose heap and goroutines it measures, to itself.
func TestRealDeclareAndDropLeavesNothing(t *testing.T) {
	envs := testenv.Start(t, *churnClusters)
	c := &churn{registry: prometheus.NewRegistry(), clusters: len(envs)}
	d := fleettest.NewDirectory()
	for i, e := range envs {
		d.Set(fleettest.Key(fmt.Sprint(i)), c.config(e.Config()))
	}
	o := churnOptions(d, c.registry)
	o.GC.Grace = 100 * time.Millisecond
	c.cc = fleettest.Start(t, o)
	goroutines := 0
	c.settle = func() {
		require.Eventually(t, func() bool {
			// A cluster that is gone has its status, and its metrics, for a moment.
			return len(c.cc.Statuses()) == 0 && c.open.Load() == 0 && runtime.NumGoroutine() <= goroutines
		}, time.Minute, 10*time.Millisecond, "%v", c.cc.Statuses())
	}
	require.Eventually(t, func() bool {
		before := goroutines
		goroutines = runtime.NumGoroutine()
		return before == goroutines
	}, time.Minute, 100*time.Millisecond)
	rounds := 3
	if *churnReal {
		rounds = *churnRounds
	}
	c.run(t, rounds)
}
