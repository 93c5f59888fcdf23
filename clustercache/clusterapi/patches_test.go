// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache/clusterapi/clusterapitest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// refusing is a server that ends each connection, and counts them.
type refusing struct {
	address string
	dials   atomic.Int64
}

func newRefusing(t *testing.T) *refusing {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &refusing{address: listener.Addr().String()}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.dials.Add(1)
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return r
}

// patches changes a Cluster object 20 times in four seconds, as Cluster API's
// controllers do.
func (s *site) patches(t *testing.T, object *clusterv1.Cluster) {
	t.Helper()
	for n := range 20 {
		before := object.DeepCopy()
		object.Annotations = map[string]string{"patched": strconv.Itoa(n)}
		require.NoError(t, s.client.Patch(t.Context(), object, client.MergeFrom(before)))
		<-time.After(200 * time.Millisecond)
	}
}

// behaviorPatches: Cluster API tries every 2 s here, and this package with a
// back-off that begins with half a second.
func behaviorPatches(t *testing.T, s *site) {
	server := newRefusing(t)
	s.secret(t, testenv.Kubeconfig(&rest.Config{Host: "https://" + server.address, BearerToken: "t"}))
	s.failing(t)
	require.Less(t, server.dials.Load(), int64(16))
}

func behaviorPatchesWithoutSecret(t *testing.T, s *site) { s.failing(t) }

// behaviorPatchesNotReady: nothing is tried before the cluster is ready.
func behaviorPatchesNotReady(t *testing.T, s *site) {
	object := s.cluster(t, false)
	waits := s.listen(t, "waits", capi.WatchForProbeFailure(time.Hour))
	s.start(t)
	require.Never(t, func() bool { return s.state(t).ConsecutiveFailures > 0 }, 3*time.Second, 100*time.Millisecond)
	lines := s.log.Count()
	require.Positive(t, lines, "the manager logs what starts")
	s.patches(t, object)
	require.Equal(t, lines, s.log.Count())
	require.Zero(t, waits.requests.Load())
	require.Zero(t, s.state(t))
}

// behaviorProvisionedWithoutSecret: until the cluster is ready to be connected,
// nothing fails.
func behaviorProvisionedWithoutSecret(t *testing.T, s *site) {
	object := s.cluster(t, false)
	none, waits := s.listen(t, "none"), s.listen(t, "waits", capi.WatchForProbeFailure(time.Hour))
	s.start(t)
	require.Never(t, func() bool { return waits.requests.Load() > 0 }, 3*time.Second, 100*time.Millisecond)
	require.Zero(t, s.state(t))

	provisioned := time.Now()
	s.provision(t, object)
	eventually(t, "a failure", func() bool { return s.state(t).ConsecutiveFailures > 0 })
	require.True(t, s.state(t).LastProbeTime.After(provisioned))
	waits.wait(t, 1)
	eventually(t, "another failure", func() bool { return s.state(t).ConsecutiveFailures > 1 })
	require.Equal(t, int64(1), waits.requests.Load())
	require.Zero(t, none.requests.Load())
}

// failing patches the Cluster object of a cluster that cannot be connected, and
// requires that only the first failure is an event, for those who wait for it.
func (s *site) failing(t *testing.T) {
	t.Helper()
	object := s.cluster(t, true)
	none, waits := s.listen(t, "none"), s.listen(t, "waits", capi.WatchForProbeFailure(time.Hour))
	s.start(t)
	eventually(t, "a failure", func() bool { return s.state(t).ConsecutiveFailures > 0 })
	waits.wait(t, 1)
	s.patches(t, object)
	require.Equal(t, int64(1), waits.requests.Load())
	require.Zero(t, none.requests.Load())
	s.requireNotConnected(t)
}

func stripOptions() capi.Options {
	return capi.Options{Cache: capi.CacheOptions{DefaultTransform: cache.TransformStripManagedFields()}}
}

func behaviorStrip(t *testing.T, s *site) {
	s.secret(t, s.remote.Kubeconfig())
	s.cluster(t, true)
	s.start(t)
	c := s.connected(t)
	var namespace corev1.Namespace
	eventually(t, "they are stripped", func() bool {
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: s.namespace}, &namespace))
		return namespace.ManagedFields == nil
	})
	live, err := s.GetUncachedClient(t.Context(), s.key())
	require.NoError(t, err)
	require.NoError(t, live.Get(t.Context(), client.ObjectKey{Name: s.namespace}, &namespace))
	require.NotEmpty(t, namespace.ManagedFields)
}

// behaviorSuites is how Cluster API's own suites use its ClusterCache.
func behaviorSuites(t *testing.T, s *site) {
	s.start(t)
	suite, ok := s.ClusterCache.(interface {
		reconcile.Reconciler
		SetConnectionCreationRetryInterval(interval time.Duration)
		Shutdown()
	})
	require.True(t, ok)
	suite.SetConnectionCreationRetryInterval(2 * time.Second)
	request := reconcile.Request{NamespacedName: s.key()}
	require.True(t, s.mgr.GetCache().WaitForCacheSync(t.Context()))
	_, err := suite.Reconcile(t.Context(), request)
	require.NoError(t, err, "there is no such cluster")

	s.secret(t, s.remote.Kubeconfig())
	object := s.cluster(t, true)
	eventually(t, "the manager's cache has it", func() bool {
		return s.mgr.GetClient().Get(t.Context(), s.key(), object) == nil &&
			object.Status.Initialization.InfrastructureProvisioned != nil
	})
	_, err = suite.Reconcile(t.Context(), request)
	require.NoError(t, err)
	s.connected(t)
	suite.Shutdown()
}

func behaviorOneNamespace(t *testing.T, s *site) {
	s.secret(t, []byte("none"))
	s.cluster(t, true)
	s.start(t)
	eventually(t, "a failure", func() bool { return s.state(t).ConsecutiveFailures > 0 })
	s.secret(t, s.remote.Kubeconfig())
	s.connected(t)
	if _, ours := s.ClusterCache.(*clusterapitest.ClusterCache); !ours {
		return // it uses the old address as long as that answers
	}
	moved := s.remote.Proxy(t)
	s.secret(t, moved.Kubeconfig())
	eventually(t, "the new address is used", func() bool {
		config, err := s.GetRESTConfig(t.Context(), s.key())
		return err == nil && config.Host == moved.Config().Host
	})
}
