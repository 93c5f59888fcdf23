// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
)

// TestErrorsAreThoseOfControllerRuntimesCache: code that was written for that
// cache finds what it looks for in ours, beside the cause.
func TestErrorsAreThoseOfControllerRuntimesCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, err := clustercache.New(clustercache.Options{Resolver: newDirectory(), Discover: true})
		require.NoError(t, err)
		cl, err := multicluster.New(cc, multicluster.Options{}).Cluster(key("a"))
		require.NoError(t, err)
		one := client.ObjectKey{Namespace: "default", Name: "one"}
		for what, err := range map[string]error{
			"get":         cl.GetCache().Get(t.Context(), one, &corev1.ConfigMap{}),
			"list":        cl.GetCache().List(t.Context(), &corev1.ConfigMapList{}),
			"client get":  cl.GetClient().Get(t.Context(), one, &corev1.ConfigMap{}),
			"client list": cl.GetClient().List(t.Context(), &corev1.ConfigMapList{}),
		} {
			_, ok := errors.AsType[*cache.ErrCacheNotStarted](err)
			require.True(t, ok, "%s: %v", what, err)
			require.ErrorIs(t, err, clustercache.ErrNotStarted, what)
			require.ErrorIs(t, err, clustercache.ErrConnecting, what)
			require.ErrorContains(t, err,
				"v1 ConfigMap in cluster fleet/a: cluster not connected: cluster cache not started", what)
		}
	})
}

// TestEndedWaitsAreTimeouts: a wait for the first list that the context ends is
// a timeout, as in controller-runtime's cache, and says what ended it.
func TestEndedWaitsAreTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{SyncTimeout: time.Minute})
		f.add("a").Hang()
		c := f.cluster("a").GetCache()
		ended := func(ctx context.Context) map[string]error {
			_, err := c.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(true))
			_, byKind := c.GetInformerForKind(ctx, configMap, cache.BlockUntilSynced(true))
			return map[string]error{"informer": err, "informer for kind": byKind}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		dead, kill := context.WithCancel(t.Context())
		kill()
		for ctx, because := range map[context.Context]error{short: context.DeadlineExceeded, dead: context.Canceled} {
			for what, err := range ended(ctx) {
				require.True(t, apierrors.IsTimeout(err), "%s: %v", what, err)
				require.ErrorIs(t, err, because, what)
				require.ErrorContains(t, err, "v1 ConfigMap in cluster fleet/a: ", what)
			}
		}
	})
}

// TestHazardHandlerThatIsNil: it is refused where it is given, and does not
// panic with each event.
func TestHazardHandlerThatIsNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		f.add("a")
		i := informer(t, f.cluster("a"), &corev1.ConfigMap{})
		r, err := i.AddEventHandler(nil)
		require.EqualError(t, err, "handle events v1 ConfigMap in cluster fleet/a: handler is nil")
		require.Nil(t, r)
		_, ok := errors.AsType[*clustercache.ClusterError](err)
		require.True(t, ok)
		w, err := f.cc.Cluster(key("a")).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		defer w.Release()
		registration, err := w.AddEventHandler(nil)
		require.EqualError(t, err, "handle events v1 ConfigMap in cluster fleet/a: handler is nil")
		require.Nil(t, registration)
	})
}
