// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/examples/internal/storytest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestTheWholeStoryIsToldAndEndsWell(t *testing.T) {
	t.Parallel()
	c := storytest.Start(t)
	status := c.Wait()
	require.Zero(t, status)
	require.Empty(t, c.Stderr(), "logs clutter the story")
	c.Order(
		"starting three control planes",
		"east  ConfigMap demo/colors arrived", "east is Ready, and its five objects are reconciled",
		"west was asked for one list and one watch of each kind",
		"CLUSTER     PHASE  INFORMERS  OBJECTS  LAST EVENT",
		"fleet/east  Ready  2          5",
		`east  ConfigMap demo/colors changed: {"door":"green"}`, "west  Widget demo/valve is gone",
		"kill -9", "ok: an update in west was reconciled",
		"a read of east: get v1 ConfigMap in cluster fleet/east: cluster not connected",
		"ok: the error is a ClusterError of east, and errors.Is ErrNotConnected",
		"ok: all ", "ok: a read of east that accepts what is an hour old",
		"fleet/east  Disconnected  2", "fleet/west  Ready         2",
		"the connection is reset", "west  ConfigMap demo/meanwhile arrived", "ok: nothing was listed again",
		"starting east's API server again", "ok: east is Ready again",
		"ok: the two new objects were reported, and none of the 5 that had not changed",
		"ok: three more users", "fleet/west  Ready  3", "ok: released, it stays for 2s", "ok: it is gone",
		"0 of them of an object that had not changed", "expectations, all met",
		"the operator has stopped", "the clusters are stopped, and their files removed",
	)
	// The controllers' lines about phases come at any time, between the lines
	// of the story.
	c.Order("east  is Connecting", "east  is Ready", "east  is Degraded (Unreachable)",
		"east  is Disconnected (Unreachable)", "east  is Ready")
}

func TestTheStoryIsToldInMemoryWithoutServers(t *testing.T) {
	t.Parallel()
	c := storytest.TellInMemory(t)
	c.Order(
		"what they do not show: etcd",
		"east  ConfigMap demo/colors arrived", "east is Ready, and its five objects are reconciled",
		"west was asked for one list and one watch of each kind",
		"fleet/east  Ready  2          5",
		`east  ConfigMap demo/colors changed: {"door":"green"}`, "west  Widget demo/valve is gone",
		"as after kill -9", "ok: an update in west was reconciled",
		"a read of east: get v1 ConfigMap in cluster fleet/east: cluster not connected",
		"ok: the error is a ClusterError of east, and errors.Is ErrNotConnected",
		"ok: all ", "ok: a read of east that accepts what is an hour old",
		"fleet/east  Disconnected  2", "fleet/west  Ready         2",
		"the connection is reset", "west  ConfigMap demo/meanwhile arrived", "ok: nothing was listed again",
		"starting east's API server again", "ok: east is Ready again",
		"ok: the two new objects were reported, and none of the 5 that had not changed",
		"ok: three more users", "fleet/west  Ready  3", "ok: released, it stays for 2s", "ok: it is gone",
		"0 of them of an object that had not changed", "21 expectations, all met",
		"the operator has stopped", "the clusters are gone",
	)
}

func TestInterruptEndsTheStoryInMemory(t *testing.T) {
	t.Parallel()
	c := storytest.Start(t, "-embedded")
	c.Tells("as after kill -9")
	c.Interrupt()
	require.Equal(t, story.ExitInterrupted, c.Wait())
	c.Order("interrupted; everything is stopped")
}

func TestInterruptLeavesNothing(t *testing.T) {
	t.Parallel()
	c := storytest.Start(t)
	c.Tells("starting east's API server again") // one cluster is down, and being started
	c.Interrupt()
	require.Equal(t, story.ExitInterrupted, c.Wait())
	c.Order("interrupted; everything is stopped")
}

func TestYourClustersAreReadAndNotChanged(t *testing.T) {
	clusters := testenv.Start(t, 2, testenv.WithNames("first", "second"),
		testenv.WithCRDs(testenv.SimpleCRD("example.com", "Widget")))
	path := withDeadContext(t, stayWith(t, clusters))
	for _, cluster := range clusters {
		require.NoError(t, fleet.Create(t.Context(), cluster.Client(), demoNamespace, widget("pump", 1)))
	}

	c := storytest.Start(t, "-kubeconfig", path, "-context", "first", "-context", "second", "-context", "dead")
	require.Zero(t, c.Wait())
	require.Empty(t, c.Stderr())
	c.Order(
		"ok: first is Ready", "ok: second is Ready", "dead cannot be reached, phase Disconnected",
		"first Widget demo/pump arrived", "ok: the 3 objects of first are reconciled",
		"ok: the 3 objects of second are reconciled",
		"LAST EVENT", "dead     Disconnected  0", "first    Ready         2",
		"cluster dead: cluster not connected", "unknown cluster", "not watched",
		"all are gone", "expectations, all met",
	)
	for _, cluster := range clusters {
		writes, err := cluster.Requests(testenv.UserAgent(userAgent),
			testenv.Verb("create", "update", "patch", "delete", "deletecollection"))
		require.NoError(t, err)
		require.Empty(t, writes)
		reads, err := cluster.Requests(testenv.UserAgent(userAgent), testenv.Verb("watch"))
		require.NoError(t, err)
		require.NotEmpty(t, reads)
	}
}

// stayWith runs the end of the demonstration with -stay on clusters, and
// returns the kubeconfig file that it prints. At the end of the test it checks
// that the file does not outlive the program.
func stayWith(t *testing.T, clusters []*testenv.Cluster) string {
	t.Helper()
	access, err := resolver.Static(nil)
	require.NoError(t, err)
	out, text := io.Pipe()
	j := newJournal(story.NewPrinter(text), true)
	op, err := newOperator(clusters[0].Config(), access, demoSelection(), j.report, logr.Discard())
	require.NoError(t, err)
	s := &localStory{
		demo:       newDemo(j.out, j, op),
		localFleet: &localFleet{Fleet: fleet.Of(clusters...)},
	}
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.stayLocal(ctx) }()
	lines := bufio.NewScanner(out)
	path := ""
	for found := false; !found; {
		require.True(t, lines.Scan(), "no kubeconfig is told of")
		_, path, found = strings.Cut(lines.Text(), "export KUBECONFIG=")
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, out)
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, text.Close())
		<-drained
		require.NoError(t, s.Stop())
		require.NoFileExists(t, path)
		require.NoDirExists(t, filepath.Dir(path))
	})
	return path
}

// withDeadContext returns a copy of a kubeconfig file, which must have a
// current context, with one more context that leads nowhere.
func withDeadContext(t *testing.T, path string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(path)
	require.NoError(t, err)
	require.NotEmpty(t, config.CurrentContext, "the file needs no -context to be used")
	config.Clusters["dead"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.AuthInfos["dead"] = &clientcmdapi.AuthInfo{Token: "none"}
	config.Contexts["dead"] = &clientcmdapi.Context{Cluster: "dead", AuthInfo: "dead"}
	other := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, other))
	return other
}

func TestCommandLine(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"help":             {[]string{"-h"}, 0, "-kubeconfig"},
		"unknown argument": {[]string{"now"}, story.ExitUsage, `unknown argument "now"`},
		"context alone":    {[]string{"-context", "a"}, story.ExitUsage, "need each other"},
		"kubeconfig alone": {[]string{"-kubeconfig", "f"}, story.ExitUsage, "need each other"},
		"context twice": {[]string{"-kubeconfig", "f", "-context", "a", "-context", "a"},
			story.ExitUsage, "given twice"},
		"embedded and stay": {[]string{"-embedded", "-stay"}, story.ExitUsage, "cannot be combined"},
		"embedded and kubeconfig": {[]string{"-embedded", "-kubeconfig", "f", "-context", "a"},
			story.ExitUsage, "cannot be combined"},
		"file does not exist": {[]string{"-kubeconfig", "does-not-exist", "-context", "a"},
			story.ExitFailed, "does-not-exist"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, tc.status, quickstart().Execute(t.Context(), tc.args, &stdout, &stderr))
			require.Contains(t, stderr.String(), tc.says)
		})
	}
}
