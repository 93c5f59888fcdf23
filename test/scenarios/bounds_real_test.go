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
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// changes follows the events of the watches of one kind.
type changes chan clustercache.WatchEvent

func follow(t *testing.T, cc *clustercache.ClusterCache, kind string) changes {
	t.Helper()
	events := make(changes, 1000)
	s, err := cc.SubscribeWatches(func(e clustercache.WatchEvent) {
		if e.Key.GVK.Kind == kind {
			events <- e
		}
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(s.Stop)
	return events
}

// next waits for an event with a reason, and returns when it was delivered.
func (c changes) next(t *testing.T, reason string, within time.Duration) time.Time {
	t.Helper()
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		select {
		case e := <-c:
			if e.Reason == reason && e.Synced == (reason == "") {
				return e.Time
			}
		case <-timeout.C:
			require.FailNow(t, "no event", "reason %q within %s", reason, within)
		}
	}
}

// TestRealWayBackIsBoundedByDefault: with default options, a kind that is
// installed later, a right that is revoked, and one that is granted again are
// noticed in time, though no object changes and the server keeps the watches of
// a revoked right open. The test takes as long as StaleAfter.
func TestRealWayBackIsBoundedByDefault(t *testing.T) {
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
	})
	configMaps, gadgets := follow(t, cc, "ConfigMap"), follow(t, cc, "Gadget")
	gvk := schema.GroupVersionKind{Group: "toys.example", Version: "v1", Kind: "Gadget"}
	_, err = cc.Watch(t.Context(), key("one"), &corev1.ConfigMap{})
	require.NoError(t, err)
	_, err = cc.Watch(t.Context(), key("one"), clustercache.Kind(gvk))
	require.NoError(t, err)
	configMaps.next(t, "", time.Minute)
	gadgets.next(t, "NotServed", time.Minute)

	time.Sleep(3 * time.Second) // the look-up of the kind is over, and the next one is not due
	definition := testenv.SimpleCRD("toys.example", "Gadget")
	require.NoError(t, c.InstallCRDs(t.Context(), definition))
	installed := time.Now()
	took := gadgets.next(t, "", 10*time.Second).Sub(installed)
	t.Logf("a kind that was installed is watched %s after it is served", took)
	require.LessOrEqual(t, took, time.Second)

	time.Sleep(5 * time.Second) // streams that are ended younger are not trusted at once when they are resumed
	require.NoError(t, user.Deny(t.Context()))
	revoked := time.Now()
	bound := cc.Options().StaleAfter + time.Second
	t.Logf("a right that was revoked is noticed after %s and %s",
		configMaps.next(t, "Forbidden", bound).Sub(revoked), gadgets.next(t, "Forbidden", bound).Sub(revoked))
	require.LessOrEqual(t, time.Since(revoked), bound)

	time.Sleep(5 * time.Second)
	require.NoError(t, user.Grant(t.Context(), rules...))
	granted := time.Now()
	took = max(configMaps.next(t, "", 10*time.Second).Sub(granted), gadgets.next(t, "", 10*time.Second).Sub(granted))
	t.Logf("rights that were granted are used after %s", took)
	require.LessOrEqual(t, took, time.Second)
}
