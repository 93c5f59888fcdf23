// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: "fleet", Name: name} }

// options returns options with which a dead cluster is detected within ten
// seconds, and unused informers stop after a second. The user agent is specific
// to the test, so that its requests can be identified.
func options(t *testing.T, remotes map[string]*rest.Config) clustercache.Options {
	t.Helper()
	configs := map[client.ObjectKey]*rest.Config{}
	for name, config := range remotes {
		configs[key(name)] = config
	}
	r, err := resolver.Static(configs)
	require.NoError(t, err)
	return clustercache.Options{
		Resolver: r, Discover: true, UserAgent: userAgent(t), MetricsRegisterer: prometheus.NewRegistry(),
		ProbeInterval: 2 * time.Second, ProbeTimeout: 2 * time.Second,
		RetryInterval: 2 * time.Second, MaxBackoff: 2 * time.Second,
		Informers: informerpool.Options{Linger: time.Second, MaxBackoff: 2 * time.Second},
	}
}

func userAgent(t *testing.T) string {
	t.Helper()
	return "fleetcache " + t.Name() + ";" // the semicolon keeps 1 from matching 10
}

// run runs a ClusterCache until the test ends or the returned function is
// called.
func run(t *testing.T, o clustercache.Options) (cc *clustercache.ClusterCache, stop func()) {
	t.Helper()
	cc, err := clustercache.New(o)
	require.NoError(t, err)
	return cc, fleettest.Run(t, cc)
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 20*time.Millisecond, what)
}

var namespaces atomic.Int64

// namespace creates a namespace for the test in clusters.
func namespace(t *testing.T, clusters ...*testenv.Cluster) string {
	t.Helper()
	name := fmt.Sprint("test-", namespaces.Add(1))
	for _, c := range clusters {
		require.NoError(t, c.Client().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	return name
}

// configMap returns an object with a value.
func configMap(namespace, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data: map[string]string{"value": value}}
}

func create(t *testing.T, c *testenv.Cluster, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		require.NoError(t, c.Client().Create(t.Context(), o))
	}
}

func update(t *testing.T, c *testenv.Cluster, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		o.SetResourceVersion("")
		require.NoError(t, c.Client().Update(t.Context(), o))
	}
}

// listed returns how many times the test's ClusterCache listed a resource, and
// how many times it watched it. A streamed list is a watch that begins with the
// existing objects. Requests for a version are neither.
func listed(t *testing.T, c *testenv.Cluster, resource string) (lists, watches int) {
	t.Helper()
	requests, err := c.Requests(testenv.Resource(resource), testenv.UserAgent(userAgent(t)))
	require.NoError(t, err)
	for _, r := range requests {
		switch {
		case isVersionQuestion(r):
		case r.Verb == "list", r.Verb == "watch" && isStreamedList(r):
			lists++
		case r.Verb == "watch":
			watches++
		}
	}
	return lists, watches
}

// isVersionQuestion reports whether a request is neither a list nor a watch,
// but asks for a version, whether lists are streamed, or whether the user may
// watch.
func isVersionQuestion(r testenv.Request) bool {
	u, err := url.Parse(r.URI)
	if err != nil {
		return false
	}
	right := r.Verb == "watch" && !u.Query().Has("allowWatchBookmarks")
	return right || r.Unstreamed || u.Query().Get("fieldSelector") != "" || u.Query().Get("limit") == "1"
}

func isStreamedList(r testenv.Request) bool {
	u, err := url.Parse(r.URI)
	return err == nil && u.Query().Get("sendInitialEvents") == "true"
}
