// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
)

type noAccess struct{}

func (noAccess) Resolve(context.Context, client.ObjectKey) (Access, error) {
	return Access{}, ErrNoAccess
}

// TestWantTakenWhileAClusterIsLetGoBringsItBack steps through interleavings
// that a race test hits too rarely: releasing a cluster checks whether it is
// wanted, and taking a want of it checks whether it is alive. Nothing runs:
// posted messages stay in the mailbox.
func TestWantTakenWhileAClusterIsLetGoBringsItBack(t *testing.T) {
	id := watchset.Selection{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}}
	removed := message{Event: phase.Event{Kind: phase.Removed}}
	posted := func(c *cluster) (kinds []phase.Kind) {
		for _, m := range c.mailbox {
			kinds = append(kinds, m.Kind)
		}
		c.mailbox = nil
		return kinds
	}
	make1 := func(t *testing.T, logged func(string)) *cluster {
		cc, err := New(Options{Resolver: noAccess{}, Logger: funcr.New(func(_, args string) { logged(args) }, funcr.Options{})})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, cc.stop(context.Background())) })
		c, err := cc.engage(client.ObjectKey{Name: "c"}, false)
		require.NoError(t, err)
		require.Equal(t, []phase.Kind{phase.Asked}, posted(c))
		return c
	}

	t.Run("before it is looked at again", func(t *testing.T) {
		c := make1(t, func(string) {})
		require.NotNil(t, c.wants.Acquire(id))
		c.handle(removed)
		require.NotEqual(t, phase.Gone, c.state.Phase)
	})
	t.Run("after that, by one who saw it alive", func(t *testing.T) {
		var c *cluster
		c = make1(t, func(args string) {
			if c != nil && strings.Contains(args, "Gone") {
				require.NotNil(t, c.wants.Acquire(id))
			}
		})
		c.handle(removed)
		require.Equal(t, phase.Gone, c.state.Phase)
		require.Equal(t, []phase.Kind{phase.Asked}, posted(c))
	})
	t.Run("when it is gone, and not yet forgotten", func(t *testing.T) {
		c := make1(t, func(string) {})
		c.state.Phase = phase.Gone
		c.publish(c.state)
		_, h, err := c.cc.acquire(c.key, id, false)
		require.NoError(t, err)
		require.NotNil(t, h)
		require.Equal(t, []phase.Kind{phase.Asked, phase.Asked}, posted(c), "one before the hold, and one that is sure to see it")
	})
	t.Run("when it is forgotten", func(t *testing.T) {
		c := make1(t, func(string) {})
		c.state.Phase = phase.Gone // only clusters that are gone are forgotten
		c.publish(c.state)
		c.cc.forget(c)
		another, h, err := c.cc.acquire(c.key, id, false)
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
	owner := Owner{ObjectKey: client.ObjectKey{Name: "o"}}
	for i := range 10 {
		cluster := client.ObjectKey{Name: strconv.Itoa(i)}
		_, err := cc.Declare(t.Context(), owner, Target{Cluster: cluster, Kind: Kind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})})
		require.NoError(t, err)
		_, err = cc.Sweep(t.Context())
		require.NoError(t, err)
		require.Len(t, cc.declared.watches, 1)
	}
	cc.Drop(owner)
	_, err = cc.Sweep(t.Context())
	require.NoError(t, err)
	require.Empty(t, cc.declared.watches)
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
		owner := Owner{ObjectKey: client.ObjectKey{Name: "o"}}
		_, err = cc.Declare(t.Context(), owner, Target{Kind: Kind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})})
		require.NoError(t, err)
		synctest.Wait()
		require.NotEmpty(t, cc.events.last)
		cc.Drop(owner)
		synctest.Wait()
		require.Empty(t, cc.Clusters())
		require.Empty(t, cc.events.last)
		cancel()
		require.NoError(t, <-done)
	})
}
