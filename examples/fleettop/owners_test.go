// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/examples/internal/storytest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestOwnersAreShownInMemory(t *testing.T) {
	t.Parallel()
	storytest.TellInMemory(t, "-owners").Order(
		"ok: each cluster has an owner and a standby, and that agrees",
		"REPLICA     STATE   JOINED",
		"slots would move",
		"operator-3",
		"ok: the clusters of operator-1 have no owner, and it says why",
		"silent",
		"none", "operator-1 has it, and has not renewed its Lease for ",
		"ok: the others own them",
		"ok: operator-0 owns all clusters, and operator-2 drains",
		"draining",
		"4 expectations, all met",
	)
}

// TestOwnersOfARealHub reads the Leases of a real API server, as a user that may
// only list them.
func TestOwnersOfARealHub(t *testing.T) {
	t.Parallel() // it mostly waits
	hub := testenv.Start(t, 1)[0]
	reader, err := hub.AddUser(t.Context(), "reader", listLeases)
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, reader.Kubeconfig(), 0o600))
	s := &sharing{Story: story.Story{Printer: story.NewPrinter(&bytes.Buffer{})}, hub: fleet.Of(hub).Hub}
	s.group, err = newGroup(hub.Config(), "default", demoGroup)
	require.NoError(t, err)
	require.NoError(t, s.share(t.Context()))
	defer func() { require.NoError(t, s.stop()) }()

	run := func(more ...string) string {
		var stdout, stderr bytes.Buffer
		args := append([]string{"-owners", "-plain", "-kubeconfig", kubeconfig, "-context", contextOf(t, kubeconfig),
			"-namespace", "default", "-group", demoGroup}, more...)
		require.Zero(t, program().Execute(t.Context(), args, &stdout, &stderr), stderr.String())
		return stdout.String()
	}
	shown := run("-for", "4s")
	require.Equal(t, 2, strings.Count(shown, "REPLICA     STATE"), shown)
	for _, r := range s.replicas {
		require.Contains(t, shown, r.name+"  active")
	}
	require.Contains(t, shown, "as planned")
	forecast := run("-replicas", "2", "-weight", "operator-0=200")
	require.Contains(t, forecast, "slots would move")
	require.Regexp(t, `operator-2 +operator-[01]`, forecast)
	require.NotRegexp(t, `operator-[01] +operator-2`, forecast)
}

func TestOwnersFitTheTerminal(t *testing.T) {
	now := time.Now()
	o := owners{at: now, Group: ownership.Group{
		Trouble: "no replica renews its Lease",
		Replicas: []ownership.Replica{
			{Identity: "a-0", Since: now.Add(-time.Hour), Renewed: now, Owned: 4, StandsBy: 1},
			{Identity: "a-1", Since: now, Renewed: now.Add(-12 * time.Second), State: "silent"},
		},
		Slots: []ownership.Holding{
			{Slot: 0, Owner: "a-0", Standbys: []string{"a-1"}, Since: now.Add(-time.Minute), Weight: 2},
			{Slot: 1, Owner: "a-0", Standbys: []string{"a-1"}, Since: now.Add(-time.Second), Weight: 2},
			{Slot: 2, Reason: "a-1 has it"},
			{Slot: 3, Owner: "a-0", Standbys: []string{"a-1"}, Since: now.Add(-2 * time.Second), Weight: 3},
			{Slot: 4, Owner: "a-0", Since: now, Reason: "a-1 gets it once its caches are filled"},
		},
	}}
	require.Equal(t, []string{
		"no replica renews its Lease",
		"",
		"REPLICA  STATE   JOINED  RENEWED  SLOTS  WEIGHT  STANDBY",
		"a-0      active  1h00m   0s       4      7       1",
		"a-1      silent  0s      12s      0      0       0",
		"",
		"OWNER  STANDBYS  FOR       SLOTS  WEIGHT  WHY                                     NUMBERS",
		"none   none      unknown   1      0       a-1 has it                              2",
		"a-0    none      0s        1      0       a-1 gets it once its caches are filled  4",
		"a-0    a-1       1s-1m00s  3      7       as planned                              0-1,3",
		"",
		"a note",
	}, o.lines(0, 0, []string{"a note"}))

	small := o.lines(20, 5, nil)
	require.Len(t, small, 5)
	require.Equal(t, "... and 6 more lines", small[4])
	o.err = errors.New("no\nanswer")
	require.Equal(t, "the hub does not answer: no answer", o.lines(0, 0, nil)[0])
	require.Equal(t, "0-2,5,7-8", ranges([]int{0, 1, 2, 5, 7, 8}))
}

func TestReplicasJoinAndLeaveAsInAStatefulSet(t *testing.T) {
	of := func(names ...string) (all []ownership.Replica) {
		for _, name := range names {
			all = append(all, ownership.Replica{Identity: name})
		}
		return all
	}
	replicas := of("a-0", "a-1", "a-10", "a-2")
	require.Equal(t, []string{"a-11", "a-12"}, (&whatIf{replicas: 6}).change(replicas).Join)
	require.Equal(t, []string{"a-2", "a-10"}, (&whatIf{replicas: 2}).change(replicas).Leave)
	same := (&whatIf{replicas: 4, standbys: -1}).change(replicas)
	require.Equal(t, sharding.Change{Leave: []string{}}, same)
	require.Equal(t, []string{"new-1"}, (&whatIf{replicas: 3}).change(of("a-x2x5v", "a-b7")).Join)
	require.Equal(t, -1, (&whatIf{}).change(nil).Standbys)
	require.Zero(t, (&whatIf{standbys: -1}).change(nil).Standbys)
}

// contextOf returns the name of the only context of a kubeconfig.
func contextOf(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	config, err := clientcmd.Load(text)
	require.NoError(t, err)
	return config.CurrentContext
}

var listLeases = rbacv1.PolicyRule{
	APIGroups: []string{"coordination.k8s.io"},
	Resources: []string{"leases"},
	Verbs:     []string{"list"},
}
