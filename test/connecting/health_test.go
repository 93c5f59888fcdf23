// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// muteHub is a resolver whose hub does not answer at first.
type muteHub struct {
	*fleettest.Directory

	answers atomic.Bool
}

func (h *muteHub) Clusters(ctx context.Context) ([]client.ObjectKey, error) {
	if !h.answers.Load() {
		return nil, errors.New("hub does not answer")
	}
	return h.Directory.Clusters(ctx)
}

func TestReadyOnceTheResolverHasListedWhateverTheRemotesDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := fleettest.NewAPI(t, "uid-a")
		dead.Die()
		hub := &muteHub{Directory: fleettest.NewDirectory()}
		hub.Set(fleettest.Key("a"), dead.Config())
		o := fleettest.Silent(hub)
		o.Discover = true
		cc, err := clustercache.New(o)
		require.NoError(t, err)
		readyz, healthz := cc.ReadyzCheck(), cc.HealthzCheck()
		require.Error(t, readyz(nil), "before Start")
		require.NoError(t, healthz(nil), "before Start")

		stop := fleettest.Run(t, cc)
		time.Sleep(time.Minute)
		require.ErrorContains(t, readyz(nil), "not listed")
		require.NoError(t, healthz(nil), "a hub that does not answer is no reason to restart")

		hub.answers.Store(true)
		time.Sleep(time.Minute)
		status, err := cc.Cluster(fleettest.Key("a")).Status()
		require.NoError(t, err)
		require.False(t, status.Connected)
		require.NoError(t, readyz(nil), "a dead remote must not fail us")
		hub.answers.Store(false)
		time.Sleep(time.Hour)
		require.NoError(t, readyz(nil), "once is enough")
		require.NoError(t, healthz(nil))

		stop()
		require.ErrorIs(t, readyz(nil), clustercache.ErrClosed)
		require.ErrorIs(t, healthz(nil), clustercache.ErrClosed)
	})
}

func TestReadyWithoutDiscoverOnceStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
		require.NoError(t, err)
		require.ErrorContains(t, cc.ReadyzCheck()(nil), "not started")
		fleettest.Run(t, cc)
		synctest.Wait()
		require.NoError(t, cc.ReadyzCheck()(nil))
	})
}

// TestStuckLoopIsNotHealthy blocks the loop with a logger that never returns,
// as a bug of the loop would.
func TestStuckLoopIsNotHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		stuck, free := make(chan struct{}), make(chan struct{})
		var hold atomic.Bool
		o := fleettest.Silent(d)
		o.Logger = funcr.New(func(_, _ string) {
			if hold.CompareAndSwap(true, false) {
				close(stuck)
				<-free
			}
		}, funcr.Options{})
		o.Informers.Logger = logr.Discard()
		o.Grace = 5 * time.Second
		cc := fleettest.Start(t, o)
		feed := fleettest.Follow(t, cc)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		feed.Wait(fleettest.Key("a"), events.Connected)
		time.Sleep(time.Hour)
		require.NoError(t, cc.HealthzCheck()(nil), "an idle loop is a healthy one")

		// The loop handles the end of the grace, and logs it.
		d.Fail(fleettest.Key("a"), resolver.ErrNoAccess)
		synctest.Wait()
		hold.Store(true)
		<-stuck
		require.NoError(t, cc.HealthzCheck()(nil), "not at once")
		time.Sleep(2 * time.Minute)
		require.ErrorContains(t, cc.HealthzCheck()(nil), "2m0s behind")
		require.NoError(t, cc.ReadyzCheck()(nil))
		close(free)
		synctest.Wait()
		require.NoError(t, cc.HealthzCheck()(nil), "it goes on")
	})
}
