// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardFirstUseLooksBroken: until its first attempt to connect has ended,
// a cluster is "not yet connected", which errors.Is distinguishes from
// "broken"; both are ErrNotConnected.
func TestHazardFirstUseLooksBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "one")
		api.FailWith(-1, "/readyz")
		clusters := fleettest.NewDirectory()
		clusters.Set(fleettest.Key("one"), api.Config())
		cc, err := clustercache.New(clustercache.Options{Resolver: clusters})
		require.NoError(t, err)
		get := func() error {
			return cc.Cluster(fleettest.Key("one")).Reader().Get(t.Context(),
				client.ObjectKey{Namespace: "default", Name: "a"},
				&corev1.ConfigMap{})
		}
		create := func() error {
			c, err := cc.Cluster(fleettest.Key("one")).Client()
			require.NoError(t, err)
			return c.Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}})
		}

		require.NoError(t, cc.Cluster(fleettest.Key("one")).Engage()) // before Start
		for _, use := range []func() error{get, create} {
			require.ErrorIs(t, use(), clustercache.ErrConnecting)
			require.ErrorIs(t, use(), clustercache.ErrNotConnected)
		}
		fleettest.Run(t, cc)
		synctest.Wait()
		for _, use := range []func() error{get, create} {
			require.ErrorIs(t, use(), clustercache.ErrConnecting)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, cc.Cluster(fleettest.Key("one")).WaitConnected(short), clustercache.ErrConnecting)

		time.Sleep(10 * time.Second) // the first attempt has failed
		synctest.Wait()
		for _, use := range []func() error{get, create} {
			require.ErrorIs(t, use(), clustercache.ErrNotConnected)
			require.NotErrorIs(t, use(), clustercache.ErrConnecting)
		}

		api.Heal()
		require.NoError(t, cc.Cluster(fleettest.Key("one")).WaitConnected(t.Context()))
		api.Die()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ErrorIs(t, get(), clustercache.ErrNotConnected)
		require.NotErrorIs(t, get(), clustercache.ErrConnecting)
	})
}

// TestHazardSilenceIsNotSaid: a cluster's failures are counted, its status
// holds the times of its probes, and one event is emitted when it has been
// silent for the configured time.
func TestHazardSilenceIsNotSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "one")
		clusters := fleettest.NewDirectory()
		clusters.Set(fleettest.Key("one"), api.Config())
		cc := fleettest.Start(t, clustercache.Options{Resolver: clusters, SilentAfter: 2 * time.Minute})
		received := fleettest.Follow(t, cc)
		require.NoError(t, cc.Cluster(fleettest.Key("one")).Engage())
		received.Wait(fleettest.Key("one"), events.Connected)

		time.Sleep(10 * time.Minute)
		s, err := cc.Cluster(fleettest.Key("one")).Status()
		require.NoError(t, err)
		require.Zero(t, s.Failures)
		require.Less(t, time.Since(s.LastProbeSuccess), 20*time.Second)
		require.Less(t, time.Since(s.LastProbe), 20*time.Second)

		dead := time.Now()
		api.Die()
		time.Sleep(100 * time.Second)
		received.Wait(fleettest.Key("one"), events.Silent)
		silence := time.Since(dead)
		require.Greater(t, silence, 110*time.Second)
		require.LessOrEqual(t, silence, 120*time.Second)
		s, err = cc.Cluster(fleettest.Key("one")).Status()
		require.NoError(t, err)
		require.GreaterOrEqual(t, s.Failures, 3)
		require.GreaterOrEqual(t, time.Since(s.LastProbeSuccess), 2*time.Minute)
		require.Less(t, time.Since(s.LastProbe), time.Minute)

		time.Sleep(time.Hour)
		api.Live()
		require.NoError(t, cc.Cluster(fleettest.Key("one")).WaitConnected(t.Context()))
		s, err = cc.Cluster(fleettest.Key("one")).Status()
		require.NoError(t, err)
		require.Zero(t, s.Failures)
		api.Die()
		time.Sleep(100 * time.Second)
		received.Wait(fleettest.Key("one"), events.Silent)
		drained := 0
		for len(received.Events) > 0 {
			if e := <-received.Events; e.Type == events.Silent {
				drained++
			}
		}
		require.Zero(t, drained)
	})
}

// TestHazardReleasedLooksLikeVanished: a cluster that is no longer needed is
// Gone with a reason of its own.
func TestHazardReleasedLooksLikeVanished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "one")
		clusters := fleettest.NewDirectory()
		clusters.Set(fleettest.Key("one"), api.Config())
		cc := fleettest.Start(t, clustercache.Options{Resolver: clusters})
		received := fleettest.Follow(t, cc)
		require.NoError(t, cc.Cluster(fleettest.Key("one")).Engage())
		received.Wait(fleettest.Key("one"), events.Connected)
		cc.Cluster(fleettest.Key("one")).Disengage()
		gone := received.Wait(fleettest.Key("one"), events.Removed)
		require.Equal(t, status.PhaseGone, gone.Phase)
		require.Equal(t, status.ReasonReleased, gone.Reason)
		synctest.Wait()
		_, err := cc.Cluster(fleettest.Key("one")).Status()
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)

		require.NoError(t, cc.Cluster(fleettest.Key("one")).Engage())
		e := received.Wait(fleettest.Key("one"), events.Connected)
		require.Empty(t, e.Reason)
	})
}
