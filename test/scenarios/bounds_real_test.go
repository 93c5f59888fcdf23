// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// changes follows the events of the watches of one kind.
type changes chan events.Watch

func follow(t *testing.T, cc *clustercache.ClusterCache, kind string) changes {
	t.Helper()
	received := make(changes, 1000)
	s, err := cc.SubscribeWatches(func(e events.Watch) {
		if e.Key.GVK.Kind == kind {
			received <- e
		}
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(s.Stop)
	return received
}

// next waits for an event with a reason. How soon it comes is for tests in
// virtual time.
func (c changes) next(t *testing.T, reason string) {
	t.Helper()
	timeout := time.NewTimer(2 * time.Minute)
	defer timeout.Stop()
	for {
		select {
		case e := <-c:
			if e.Reason == reason && e.Synced == (reason == "") {
				return
			}
		case <-timeout.C:
			require.FailNow(t, "no event", "reason %q", reason)
		}
	}
}

// TestRealWayBackNeedsNoChangeOfAnObject: a kind that is installed later, a
// right that is revoked, and one that is granted again are noticed, though no
// object changes, the server keeps the watches of a revoked right open, and no
// kind is looked up at intervals. TestKindIsServedWithinASecond,
// TestRevokedRightIsNoticedWithinStaleAfterAndASecond and
// TestGrantedRightIsUsedWithinASecond prove how soon, with default options.
func TestRealWayBackNeedsNoChangeOfAnObject(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	read := []string{"get", "list", "watch"}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: read},
		{APIGroups: []string{"toys.example"}, Resources: []string{"gadgets"}, Verbs: read},
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: read},
		{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: read},
	}
	user, err := c.AddUser(t.Context(), "bounded", rules...)
	require.NoError(t, err)
	access, err := resolver.Static(map[resolver.Cluster]*rest.Config{key("one"): user.Config()})
	require.NoError(t, err)
	cc, _ := run(t, clustercache.Options{
		Resolver:          access,
		UserAgent:         userAgent(t),
		MetricsRegisterer: prometheus.NewRegistry(),
		RetryInterval:     time.Hour, // no kind is looked up without a cause
		Informers:         informerpool.Options{PermissionInterval: 5 * time.Second},
	})
	configMaps, gadgets := follow(t, cc, "ConfigMap"), follow(t, cc, "Gadget")
	gvk := schema.GroupVersionKind{Group: "toys.example", Version: "v1", Kind: "Gadget"}
	_, err = cc.Cluster(key("one")).Watch(t.Context(), &corev1.ConfigMap{})
	require.NoError(t, err)
	_, err = cc.Cluster(key("one")).Watch(t.Context(), clustercache.Kind(gvk))
	require.NoError(t, err)
	configMaps.next(t, "")
	gadgets.next(t, "NotServed")

	definition := testenv.SimpleCRD("toys.example", "Gadget")
	require.NoError(t, c.InstallCRDs(t.Context(), definition))
	gadgets.next(t, "")

	require.NoError(t, user.Deny(t.Context()))
	configMaps.next(t, "Forbidden")
	gadgets.next(t, "Forbidden")

	require.NoError(t, user.Grant(t.Context(), rules...))
	configMaps.next(t, "")
	gadgets.next(t, "")
}
