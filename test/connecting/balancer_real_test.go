// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestRealMemberBehindABalancerIsNotTheCluster: what one of two API servers of
// a cluster does, to which the only connection leads, while new connections lead
// to the other one, is not the end of the cluster: it stays connected, reads and
// watches move on, and no object is listed again by an informer that was synced.
func TestRealMemberBehindABalancerIsNotTheCluster(t *testing.T) {
	t.Parallel()
	rejects := "it rejects credentials"
	for name, second := range map[string]struct {
		args   string
		leaves func(member *testenv.APIServer) error
	}{
		rejects: {
			args:   "--api-audiences=https://others.example.com",
			leaves: func(*testenv.APIServer) error { return nil },
		},
		"it drains": {
			args:   "--shutdown-delay-duration=12s",
			leaves: func(member *testenv.APIServer) error { return member.StopAPIServer(t.Context()) },
		},
		"it is killed": {leaves: (*testenv.APIServer).Kill},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testenv.Start(t, 1)[0]
			account, err := c.AddServiceAccount(t.Context(), "default", "reader", readThreeKinds...)
			require.NoError(t, err)
			var options []testenv.ServerOption
			if second.args != "" {
				options = append(options, testenv.Args(second.args))
			}
			member, err := c.AddReplica(t.Context(), options...)
			require.NoError(t, err)
			// A server's history of a kind may begin with the first request for it.
			for _, server := range []*testenv.APIServer{c.APIServer, member} {
				direct, err := client.New(server.Config(), client.Options{})
				require.NoError(t, err)
				require.NoError(t, direct.List(t.Context(), &corev1.ConfigMapList{}))
			}
			fleettest.Create(t, c, "one")

			balancer := c.Proxy(t)
			if name != rejects {
				balancer.SetBackend(member.Addr())
			}
			d := fleettest.NewDirectory()
			d.Set(fleettest.Key("a"), balancer.Redirect(account.Config()))
			cc := fleettest.Start(t, fleettest.Brisk(d))
			clusters := fleettest.Follow(t, cc)
			objects := fleettest.FollowObjects(t, cc, events.Selection{})
			require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
			objects.WaitAll("one")
			clusters.Wait(fleettest.Key("a"), events.Connected)
			lists, _ := counted(t, c, "configmaps")

			if name == rejects { // one connection leads to it
				made := balancer.Stats().Accepted
				balancer.SetBackend(member.Addr())
				balancer.ResetAll()
				sent := balancer.Stats().ToServer
				require.NoError(t, balancer.WaitAccepted(t.Context(), made+1))
				require.Eventually(t, func() bool { return balancer.Stats().ToServer > sent },
					fleettest.Patience, time.Millisecond)
				balancer.SetBackend(c.Addr()) // before the connection that a verdict needs
				require.Eventually(t, func() bool {
					rejected, err := member.Requests(testenv.Rejected())
					return err == nil && len(rejected) > 0
				}, fleettest.Patience, 10*time.Millisecond)
			}
			balancer.SetBackend(c.Addr())
			require.NoError(t, second.leaves(member))
			fleettest.Create(t, c, "two")
			objects.WaitAll("two")
			deadline := time.Now().Add(5 * time.Second)
			for time.Now().Before(deadline) {
				require.NoError(t, fleettest.Get(t, cc, clustercache.LiveOnly))
				require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly))
				<-time.After(10 * time.Millisecond)
			}

			requireNeverDisconnected(t, clusters)
			s := fleettest.Status(t, cc)
			require.Equal(t, status.PhaseReady, s.Phase)
			require.NoError(t, s.LastError)
			require.Equal(t, 1, s.Connects)
			require.Zero(t, s.HistoryResets)
			again, _ := counted(t, c, "configmaps")
			require.Equal(t, lists, again)
		})
	}
}
