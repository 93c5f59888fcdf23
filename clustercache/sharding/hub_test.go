// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

var (
	hubClusters = flag.Int("sharding.clusters", 300, "clusters of the group whose writes are counted on a real hub")
	hubReplicas = flag.Int("sharding.replicas", 3, "replicas of that group")
	hubRest     = flag.Duration("sharding.rest", 10*time.Second, "how long that group is counted at rest")
)

// hubWrites returns how many writes the hub has received, by its audit log.
func hubWrites(t *testing.T, hub *testenv.Cluster) int {
	t.Helper()
	requests, err := hub.Requests(func(r testenv.Request) bool {
		return !slices.Contains([]string{"get", "list", "watch"}, r.Verb)
	})
	require.NoError(t, err)
	return len(requests)
}

// spread waits until every cluster has an owner, and no replica more than its
// share and an eighth.
func (g *group) spread() {
	g.t.Helper()
	require.Eventually(g.t, func() bool {
		counts, without := g.owned()
		return without == 0 && slices.Max(counts) <= len(g.clusters)*9/len(g.replicas)/8
	}, time.Minute, 100*time.Millisecond)
}

// TestHubReceivesFewWrites counts those of a group on a real hub, at rest and
// while one replica restarts under its name, and what the hub sends at rest. The
// clusters exist only by name.
func TestHubReceivesFewWrites(t *testing.T) {
	t.Parallel() // it mostly waits
	hub := testenv.Start(t, 1)[0]
	g := newGroup(t, *hubClusters)
	way := hub.Proxy(t)
	g.config, g.options.Slots = way.Config(), sharding.DefaultSlots
	defer g.stop()
	g.start(*hubReplicas)
	g.spread()
	founded := hubWrites(t, hub)

	<-time.After(3 * sharding.DefaultSettleTime)
	before, stats := hubWrites(t, hub), way.Stats()
	<-time.After(*hubRest)
	atRest, received := hubWrites(t, hub)-before, way.Stats().ToClient-stats.ToClient
	renewals := *hubReplicas * int(*hubRest/sharding.DefaultRenewInterval)
	require.LessOrEqual(t, atRest, renewals+*hubReplicas)
	require.Greater(t, atRest, renewals/5, "they renew less often on a slow machine")
	require.Less(t, received, int64(1600*atRest**hubReplicas), "as JSON, and with managed fields, it is 2,000 bytes")

	before, begin := hubWrites(t, hub), time.Now()
	counts, _ := g.owned()
	last := len(g.replicas) - 1
	require.NoError(t, g.replicas[last].Close(t.Context()))
	g.waitOwned(10 * time.Second)
	left := hubWrites(t, hub) - before
	g.replicas[last].wg.Wait()
	g.replicas[last] = g.startAs(fmt.Sprintf("operator-%d", last))
	g.spread()
	<-time.After(3 * sharding.DefaultSettleTime) // the last moves, if there are any
	restart, took := hubWrites(t, hub)-before, time.Since(begin)
	require.LessOrEqual(t, restart, 600)

	t.Logf("%d clusters, %d replicas: %d writes to found the group, and %.1f/s at rest",
		*hubClusters, *hubReplicas, founded, float64(atRest)/hubRest.Seconds())
	t.Logf("the replicas received %.1f kB/s at rest, %d bytes for each renewal and replica",
		float64(received)/1000/hubRest.Seconds(), received/int64(atRest**hubReplicas))
	t.Logf("%d writes in the %.1f s in which a replica with %d clusters restarted, %d of them until it had left",
		restart, took.Seconds(), counts[last], left)
}
