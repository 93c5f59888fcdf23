// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestSilenceIsReportedWhereItWasAskedFor: a subscription gets one event for
// each of its own times and each silence, and none for a silence that ended
// before. Other subscriptions get none.
func TestSilenceIsReportedWhereItWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "one")
		clusters := fleettest.NewDirectory()
		clusters.Set(fleettest.Key("one"), api.Config())
		cc := fleettest.Start(t, clustercache.Options{Resolver: clusters})
		log := newSilenceLog(t, cc, 50*time.Second, 5*time.Minute, 50*time.Second)
		others := newSilenceLog(t, cc)
		require.NoError(t, cc.Cluster(fleettest.Key("one")).Engage())
		require.NoError(t, cc.Cluster(fleettest.Key("one")).WaitConnected(t.Context()))

		time.Sleep(10 * time.Minute)
		require.Empty(t, log.take())

		api.Die()
		time.Sleep(20 * time.Second)
		api.Live()
		require.NoError(t, cc.Cluster(fleettest.Key("one")).WaitConnected(t.Context()))
		time.Sleep(10 * time.Minute)
		require.Empty(t, log.take(), "a silence that ended in time")

		for range 2 {
			died := time.Now()
			api.Die()
			time.Sleep(time.Hour)
			received := log.take()
			require.Len(t, received, 2)
			require.Equal(t, 50*time.Second, received[0].SilentFor)
			require.Equal(t, 5*time.Minute, received[1].SilentFor)
			for _, e := range received { // an answer is 10 s old at most when the server dies
				took := e.Time.Sub(died)
				require.LessOrEqual(t, took, e.SilentFor)
				require.Greater(t, took, e.SilentFor-15*time.Second)
			}
			api.Live()
			require.NoError(t, cc.Cluster(fleettest.Key("one")).WaitConnected(t.Context()))
		}
		require.Empty(t, others.take())

		late := newSilenceLog(t, cc, time.Minute)
		api.Die()
		time.Sleep(time.Hour)
		require.Len(t, late.take(), 1)
		late = newSilenceLog(t, cc, time.Minute)
		synctest.Wait()
		require.Len(t, late.take(), 1, "a subscription that begins during the silence")
	})
}

// TestSilenceOfClustersThatNeverAnswered: it begins with the first failure, and
// there is none where nothing was asked.
func TestSilenceOfClustersThatNeverAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "one")
		clusters := fleettest.NewDirectory()
		clusters.Set(fleettest.Key("one"), api.Config())
		cc := fleettest.Start(t, clustercache.Options{Resolver: clusters})
		log := newSilenceLog(t, cc, 2*time.Minute)
		api.Die()
		asked := time.Now()
		require.NoError(t, cc.Cluster(fleettest.Key("one")).Engage())
		require.NoError(t, cc.Cluster(fleettest.Key("unknown")).Engage())
		time.Sleep(time.Hour)
		received := log.take()
		require.Len(t, received, 1)
		require.Equal(t, fleettest.Key("one"), received[0].Cluster)
		require.GreaterOrEqual(t, received[0].Time.Sub(asked), 2*time.Minute)
		require.LessOrEqual(t, received[0].Time.Sub(asked), 2*time.Minute+30*time.Second)
	})
}

// silenceLog collects events of type Silent.
type silenceLog struct {
	mu     sync.Mutex
	events []events.Cluster
}

func newSilenceLog(t *testing.T, cc *clustercache.ClusterCache, silentFor ...time.Duration) *silenceLog {
	t.Helper()
	l := &silenceLog{}
	s, err := cc.SubscribeClusters(func(e events.Cluster) {
		if e.Type == events.Silent {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.events = append(l.events, e)
		}
	}, silentFor...)
	require.NoError(t, err)
	s.Start()
	t.Cleanup(s.Stop)
	return l
}

func (l *silenceLog) take() []events.Cluster {
	l.mu.Lock()
	defer l.mu.Unlock()
	received := l.events
	l.events = nil
	return received
}
