// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/remote"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// realSite returns a ClusterCache that is connected to a real cluster.
func realSite(t *testing.T) (*clustercache.ClusterCache, *testenv.Cluster) {
	t.Helper()
	server := testenv.Start(t, 1)[0]
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), server.Config())
	cc := fleettest.Start(t, fleettest.Quick(d))
	require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
	require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
	return cc, server
}

// TestRealEventsAreAccepted by an API server, which checks what they contain,
// and what may change in a series.
func TestRealEventsAreAccepted(t *testing.T) {
	t.Parallel()
	cc, server := realSite(t)
	r, err := remote.NewRecorder(cc, remote.RecorderOptions{Controller: "example.com/rollout"})
	require.NoError(t, err)
	r.UpdateAtOnce()
	fleettest.Run(t, r)

	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "system:Some Role", UID: "r"}}
	to := r.For(fleettest.Key("a"))
	for i := range 3 {
		to.Eventf(configMap("one"), role, corev1.EventTypeWarning, "Failed", "Deploy", "it is late")
		to.Eventf(role, nil, corev1.EventTypeNormal, "Seen", "Look", "fine")
		require.Eventually(t, func() bool {
			list := &eventsv1.EventList{}
			if err := server.Client().List(t.Context(), list, client.InNamespace("default")); err != nil {
				return false
			}
			found := 0
			for _, e := range list.Items {
				if e.ReportingController == "example.com/rollout" && (i == 0 && e.Series == nil ||
					e.Series != nil && e.Series.Count == int32(i)+1 && !e.Series.LastObservedTime.IsZero()) {
					found++
				}
			}
			return found == 2
		}, time.Minute, 20*time.Millisecond, "occurrence %d", i+1)
	}
}

// TestRealFinalizersAreAddedAndRemoved in each representation, and across a
// conflict.
func TestRealFinalizersAreAddedAndRemoved(t *testing.T) {
	t.Parallel()
	cc, server := realSite(t)
	c, err := cc.Cluster(fleettest.Key("a")).Client()
	require.NoError(t, err)
	stored := configMap("one")
	stored.UID = ""
	require.NoError(t, server.Client().Create(t.Context(), stored))
	now := func() []string {
		require.NoError(t, server.Client().Get(t.Context(), client.ObjectKeyFromObject(stored), stored))
		return stored.Finalizers
	}
	for name, o := range representations(t, stored) {
		changed := stored.DeepCopy()
		changed.Data = map[string]string{"by": name}
		changed.ResourceVersion = ""
		require.NoError(t, server.Client().Update(t.Context(), changed)) // o is outdated
		added, err := remote.AddFinalizer(t.Context(), c, o, ours)
		require.NoError(t, err, name)
		require.True(t, added)
		require.Equal(t, []string{ours}, now())
		removed, err := remote.RemoveFinalizer(t.Context(), c, o, ours)
		require.NoError(t, err, name)
		require.True(t, removed)
		require.Empty(t, now())
		require.Empty(t, o.GetFinalizers())
	}
}
