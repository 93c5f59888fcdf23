// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/examples/internal/storytest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) {
	storytest.Program(main)
	testenv.Main(m, testenv.VerifyNoLeaks())
}

func TestTheFleetIsShownInMemoryWithoutServers(t *testing.T) {
	t.Parallel()
	storytest.TellInMemory(t, "-for", "8s").Order(
		"what they do not show: etcd",
		"the API server of west is killed", "west is Disconnected: Unreachable",
		"the API server of west is started again", "west is Ready",
		"ok: west was the first line while its API server was stopped, and said why",
		"ok: west was Ready again", "13 expectations, all met", "the clusters are gone",
	)
}

// fakes returns a fleet with the clusters east and west.
func fakes(t *testing.T) (fleet *clustercachetest.Fleet, east, west *clustercachetest.Cluster) {
	fleet = clustercachetest.New(t, clustercachetest.Options{})
	return fleet, fleet.Add("east", configMap(0), configMap(1)), fleet.Add("west", configMap(0))
}

// watch runs a top with plain lines until the test ends, and returns it with
// what it prints.
func watch(t *testing.T, fleet *clustercachetest.Fleet) (*top, *bytes.Buffer) {
	out := &bytes.Buffer{}
	shown, err := newTop(fleet.Resolver(), defaultKinds(), lines{story.NewPrinter(out)}, clustercache.Options{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- shown.showFor(ctx, 0) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended, "an interrupt is no failure")
	})
	return shown, out
}

// wait lets time pass.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestUnreachableClusterIsFirstAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, _, west := fakes(t)
		shown, out := watch(t, fleet)
		wait(10 * time.Second)
		require.Contains(t, out.String(), "TOTAL 2  2 Ready", out.String())
		require.Equal(t, "east", clusterName(shown.drawn().rows[0].Cluster), "by name")

		west.Disconnect()
		wait(10 * time.Second)
		first := shown.drawn().rows[0]
		require.Equal(t, "west", clusterName(first.Cluster))
		require.Equal(t, status.PhaseDisconnected, first.Phase)
		require.Equal(t, "Unreachable", first.reason())
		require.Contains(t, first.why(), "refused")
		require.Equal(t, 1, first.Objects, "what is cached stays")
		require.GreaterOrEqual(t, first.staleness(), 9*time.Second)
		require.Contains(t, out.String(), "west is Disconnected: Unreachable\n")
		require.Contains(t, out.String(), "\nwest: "+first.why()+"\n")

		west.Connect()
		wait(10 * time.Second)
		require.Equal(t, "east", clusterName(shown.drawn().rows[0].Cluster))
		require.Empty(t, shown.drawn().rows[1].why())
	})
}

func TestEventsPerSecondAreThoseOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, east, _ := fakes(t)
		shown, _ := watch(t, fleet)
		wait(10 * time.Second)
		require.Zero(t, shown.frame().row("east").events, "what exists is no event")

		for i := range 2 * 2 * rateSeconds {
			changed := configMap(i % 2)
			changed.Data = map[string]string{"change": strconv.Itoa(i)}
			require.NoError(t, east.Client().Update(t.Context(), changed))
			wait(time.Second / 2)
		}
		f := shown.frame()
		require.Equal(t, 4*rateSeconds, f.row("east").events)
		require.InDelta(t, 2, f.row("east").rate, 0)
		require.Zero(t, f.row("west").rate)

		wait((rateSeconds + 1) * time.Second)
		require.Zero(t, shown.frame().row("east").rate)
		require.Equal(t, 4*rateSeconds, shown.frame().row("east").events)
	})
}

func TestKindThatMayNotBeWatchedIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, _, west := fakes(t)
		west.Fail(clustercachetest.Status(403), clustercachetest.Resource("pods"))
		shown, _ := watch(t, fleet)
		wait(10 * time.Second)
		first := shown.drawn().rows[0]
		require.Equal(t, "west", clusterName(first.Cluster))
		require.Equal(t, status.PhaseReady, first.Phase)
		require.Equal(t, "Forbidden", first.reason())
		require.Contains(t, first.why(), "pods is forbidden")
		require.Equal(t, "2/3", first.cells()[4])
	})
}

func TestOnlyMetadataIsCachedAndNothingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := configMap(2)
		stored.Labels, stored.Data = map[string]string{"kept": "yes"}, map[string]string{"kept": "no"}
		fleet, east, _ := fakes(t)
		east.Store(stored)
		shown, _ := watch(t, fleet)
		wait(10 * time.Second)
		cached := configMap(2)
		key := client.ObjectKeyFromObject(cached)
		require.NoError(t, shown.clusters.Cluster(east.Key()).Reader().Get(t.Context(), key, cached,
			clustercache.CacheOnly))
		require.Equal(t, stored.Labels, cached.Labels)
		require.Empty(t, cached.Data)
		require.Empty(t, east.Requests(clustercachetest.Write()))
	})
}

func TestShowEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, _, _ := fakes(t)
		var out bytes.Buffer
		shown, err := newTop(fleet.Resolver(), defaultKinds(), lines{story.NewPrinter(&out)}, clustercache.Options{})
		require.NoError(t, err)
		begin := time.Now()
		require.NoError(t, shown.showFor(t.Context(), 20*time.Second))
		require.Less(t, time.Since(begin), 21*time.Second)
		require.GreaterOrEqual(t, time.Since(begin), 20*time.Second)
		// One every 3 s, and one at the start if the first cluster is known by then.
		require.Contains(t, []int{6, 7}, strings.Count(out.String(), "CLUSTER  PHASE"), out.String())
		require.NotContains(t, out.String(), "\x1b")
	})
}

func TestTerminalIsRedrawnAndGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, _, _ := fakes(t)
		var out bytes.Buffer
		show := &terminal{out: story.NewPrinter(&out), size: func() (width, height int) { return 80, 24 }}
		shown, err := newTop(fleet.Resolver(), defaultKinds(), show, clustercache.Options{})
		require.NoError(t, err)
		require.NoError(t, shown.showFor(t.Context(), 10500*time.Millisecond))

		text, found := strings.CutPrefix(out.String(), enterScreen)
		require.True(t, found)
		drawn, rest, found := strings.Cut(text, leaveScreen)
		require.True(t, found)
		// One a second, and one at the start if the first cluster is known by then.
		require.Contains(t, []int{10, 11}, strings.Count(drawn, home))
		for _, frame := range strings.Split(drawn, home)[1:] {
			require.NotContains(t, strings.ReplaceAll(frame, "\r\n", ""), "\n")
			require.True(t, strings.HasSuffix(frame, clearBelow))
		}
		require.Contains(t, drawn, "  east is Ready")
		require.True(t, strings.HasPrefix(rest, "CLUSTER  PHASE"), "the last table stays: %q", rest)
		require.NotContains(t, rest, "\x1b")
	})
}

func TestCommandLine(t *testing.T) {
	own := []string{"-kubeconfig", "does-not-exist", "-context", "a"}
	for name, tc := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"help":                  {[]string{"-h"}, 0, "-for"},
		"negative":              {[]string{"-for", "-1s"}, story.ExitUsage, "negative"},
		"kind without clusters": {[]string{"-kind", "v1/Pod"}, story.ExitUsage, "-kind needs -kubeconfig"},
		"kind without version":  {append(own, "-kind", "Pod"), story.ExitUsage, "group/version/kind"},
		"kind without group":    {append(own, "-kind", "/v1/Pod"), story.ExitUsage, "group/version/kind"},
		"kind given twice":      {append(own, "-kind", "v1/Pod", "-kind", "v1/Pod"), story.ExitUsage, "given twice"},
		"owners of nothing":     {append(own, "-owners"), story.ExitUsage, "-namespace and -group need"},
		"group without owners":  {append(own, "-group", "g"), story.ExitUsage, "-namespace and -group need"},
		"replicas of no group":  {[]string{"-owners", "-replicas", "4"}, story.ExitUsage, "need -owners and -group"},
		"weight of no replica":  {[]string{"-weight", "50"}, story.ExitUsage, "not REPLICA=PERCENT"},
		"kinds of owners":       {append(own, "-owners", "-kind", "v1/Pod"), story.ExitUsage, "-kind needs"},
		"two hubs": {
			append(own, "-context", "b", "-owners", "-namespace", "n", "-group", "g"), story.ExitUsage, "one -context",
		},
		"file alone":   {own[:2], story.ExitUsage, "need each other"},
		"no such file": {append(own, "-kind", "apps/v1/Deployment"), story.ExitFailed, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, tc.status, program().Execute(t.Context(), tc.args, &stdout, &stderr), stderr.String())
			require.Contains(t, stderr.String(), tc.says)
		})
	}
}
