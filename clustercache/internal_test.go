// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

type noAccess struct{}

func (noAccess) Resolve(context.Context, client.ObjectKey) (resolver.Access, error) {
	return resolver.Access{}, resolver.ErrNoAccess
}

// TestWantTakenWhileAClusterIsLetGoBringsItBack steps through interleavings
// that a race test hits too rarely: releasing a cluster checks whether it is
// wanted, and taking a want of it checks whether it is alive. Messages are
// handled by the caller that posts them, and no goroutine starts.
func TestWantTakenWhileAClusterIsLetGoBringsItBack(t *testing.T) {
	id := wants.Selection{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}}
	make1 := func(t *testing.T, logged func(string)) *cluster {
		cc, err := New(Options{
			Resolver: noAccess{},
			Logger:   funcr.New(func(_, args string) { logged(args) }, funcr.Options{}),
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, cc.stop(context.Background())) })
		cc.live.Store(true)
		cc.mu.stopped = true
		c, err := cc.clusters.engage(client.ObjectKey{Name: "c"}, false)
		require.NoError(t, err)
		require.Equal(t, phase.Connecting, c.conn.View().Phase)
		return c
	}

	t.Run("before it is looked at again", func(t *testing.T) {
		c := make1(t, func(string) {})
		require.NotNil(t, c.wants.Acquire(id))
		c.conn.Release()
		require.Equal(t, phase.Connecting, c.conn.View().Phase)
	})
	t.Run("after that, by one who saw it alive", func(t *testing.T) {
		var c *cluster
		var phases []string
		c = make1(t, func(args string) {
			phases = append(phases, args)
			if c != nil && strings.Contains(args, `"phase"="Gone"`) {
				require.NotNil(t, c.wants.Acquire(id))
			}
		})
		c.conn.Release()
		require.Contains(t, phases[len(phases)-1], `"was"="Gone"`)
		require.Equal(t, phase.Connecting, c.conn.View().Phase)
	})
	t.Run("when it is gone, and not yet forgotten", func(t *testing.T) {
		var c *cluster
		asked := 0
		c = make1(t, func(args string) {
			if c == nil || !strings.Contains(args, `"was"="Gone"`) {
				return
			}
			if asked++; asked == 1 { // before the want: it is let go again
				c.conn.Release()
			}
		})
		c.conn.Release()
		require.Equal(t, phase.Gone, c.conn.View().Phase)
		_, h, err := c.fleet.acquire(c.key, id, false)
		require.NoError(t, err)
		require.NotNil(t, h)
		require.Equal(t, 2, asked, "one before the want, and one that is sure to see it")
		require.Equal(t, phase.Connecting, c.conn.View().Phase)
	})
	t.Run("when it is forgotten", func(t *testing.T) {
		c := make1(t, func(string) {})
		c.conn.Release() // only clusters that are gone are forgotten
		require.Equal(t, phase.Gone, c.conn.View().Phase)
		c.fleet.forget(c)
		another, h, err := c.fleet.acquire(c.key, id, false)
		require.NoError(t, err)
		require.NotNil(t, h)
		require.NotSame(t, c, another)
	})
}

// TestWhatIsReleasedIsForgotten: no map keeps a declaration that was released.
func TestWhatIsReleasedIsForgotten(t *testing.T) {
	cc, err := New(Options{Resolver: noAccess{}, GC: GC{Grace: -1}})
	require.NoError(t, err)
	defer func() { require.NoError(t, cc.stop(context.Background())) }()
	for i := range 10 {
		cluster := client.ObjectKey{Name: strconv.Itoa(i)}
		_, err := cc.Declare(t.Context(), anOwner,
			Target{Cluster: cluster, Kind: Kind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})})
		require.NoError(t, err)
		_, err = cc.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, cc.declared.count())
	}
	cc.Drop(anOwner)
	_, err = cc.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, cc.declared.count())
	owners, resources := cc.declared.collector.Len()
	require.Zero(t, owners+resources)
}

// TestNewSubscriberIsNotToldOfAForgottenCluster: a cluster that was never
// connected ends without an event of its own.
func TestNewSubscriberIsNotToldOfAForgottenCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, err := New(Options{Resolver: noAccess{}, GC: GC{Grace: -1}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- cc.Start(ctx) }()
		_, err = cc.Declare(t.Context(), anOwner,
			Target{Kind: Kind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})})
		require.NoError(t, err)
		synctest.Wait()
		require.NotEmpty(t, cc.events.last)
		cc.Drop(anOwner)
		synctest.Wait()
		require.Empty(t, cc.Clusters())
		require.Empty(t, cc.events.last)
		cancel()
		require.NoError(t, <-done)
	})
}

// TestHazardInformersSpinWhileTheFleetStops: Stop closes each cluster, and an
// informer that waited for one requested it repeatedly until its own end. A
// thousand unreachable clusters kept all cores busy for seconds.
func TestHazardInformersSpinWhileTheFleetStops(t *testing.T) {
	fleet, err := resolver.Static(nil)
	require.NoError(t, err)
	cc, err := New(Options{Resolver: fleet})
	require.NoError(t, err)
	key := client.ObjectKey{Name: "away"}
	require.NoError(t, cc.Cluster(key).Engage())
	cc.cancel(ErrClosed)
	cc.clusters.find(key).close()
	_, err = cc.clusters.endpoint(context.Background(), key)
	require.ErrorIs(t, err, ErrClosed)
}

// TestSilenceBeginsAnewWithEachAnswer: a degraded cluster may answer, and fall
// silent again, before the timer looks at it.
func TestSilenceBeginsAnewWithEachAnswer(t *testing.T) {
	began := time.Now()
	at := func(minutes float64) time.Time { return began.Add(time.Duration(minutes * float64(time.Minute))) }
	after := []time.Duration{time.Minute, 2 * time.Minute}
	s, v := &silence{}, &connection.View{}
	v.LastSuccess = began

	require.Zero(t, s.advance(v, after, at(0.9)))
	require.Equal(t, time.Minute, s.advance(v, after, at(1)))
	require.Zero(t, s.advance(v, after, at(1.5)), "once for each silence")

	v.LastSuccess = at(1.5)
	require.Zero(t, s.advance(v, after, at(2)))
	require.Equal(t, time.Minute, s.advance(v, after, at(2.5)))
	require.Equal(t, 2*time.Minute, s.advance(v, after, at(9)))
}

// TestSweepNamesWhatASelectorReleased: by cluster, unless another target still
// has it.
func TestSweepNamesWhatASelectorReleased(t *testing.T) {
	cc, err := New(Options{Resolver: noAccess{}})
	require.NoError(t, err)
	defer func() { require.NoError(t, cc.stop(context.Background())) }()
	at := func(cluster string) status.WatchKey {
		return status.WatchKey{
			Cluster: client.ObjectKey{Name: cluster},
			GVK:     schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		}
	}
	_, err = cc.Declare(t.Context(), anOwner, Target{Cluster: at("b").Cluster, Kind: Kind(at("b").GVK)})
	require.NoError(t, err)
	prod := need{WatchKey: at(""), many: true, clusters: "env=prod"}
	released := cc.declared.releasedKeys([]need{prod, {WatchKey: at("c")}, {WatchKey: at("a")}},
		map[need][]status.WatchKey{prod: {at("b"), at("a")}})
	require.Equal(t, []status.WatchKey{at("a"), at("c")}, released)
}

// anOwner is an owner with a name.
var anOwner = Owner{
	GVK:       schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
	ObjectKey: client.ObjectKey{Name: "o"},
}
