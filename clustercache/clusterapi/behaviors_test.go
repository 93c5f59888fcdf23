// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// behavior is a public behavior of Cluster API's ClusterCache. The numbers are
// those of test/clusterapi.
type behavior struct {
	cases   string
	promise string
	options func() capi.Options // nil: none
	run     func(t *testing.T, s *site)
	// limited: the manager has rights in its namespace alone.
	limited bool
}

func behaviors() []behavior {
	return []behavior{
		{
			cases: "20", promise: "a cluster without infrastructure is not connected, and is once it is provisioned",
			run: behaviorProvisioned,
		},
		{
			cases: "1, 2, 4, 16, 22", promise: "without a Secret failures are counted, and the Secret wipes them",
			run: behaviorSecret,
		},
		{
			cases: "3, 38", promise: "a cluster that was never reachable counts failures by time",
			run: behaviorUnreachable,
		},
		{cases: "23", promise: "patches of the Cluster object bring no attempt and no event", run: behaviorPatches},
		{
			cases: "22, 34", promise: "patches of a Cluster object without a Secret bring no event",
			run: behaviorPatchesWithoutSecret,
		},
		{
			cases: "20", promise: "patches of a Cluster object that is not ready bring no log line",
			run: behaviorPatchesNotReady,
		},
		{
			cases: "20, 22, 33", promise: "a Secret that is missing once the cluster is provisioned is an event",
			run: behaviorProvisionedWithoutSecret,
		},
		{cases: "5, 6, 7", promise: "cached and uncached reads, writes and the REST config work", run: behaviorReads},
		{cases: "17, 18, 37", promise: "a watch is added once by its name", run: behaviorWatch},
		{
			cases: "27, 29, 32", promise: "sources get connects and disconnects, with the Cluster object",
			run: behaviorSources,
		},
		{
			cases: "33, 34", promise: "only the source that waits for a failure of this length gets it, and once",
			run: behaviorSilence,
		},
		{
			cases: "19", promise: "transforms change what is cached and not what is read live",
			options: transformOptions, run: behaviorTransforms,
		},
		{cases: "19", promise: "managed fields alone are stripped", options: stripOptions, run: behaviorStrip},
		{
			cases: "6", promise: "a kind is read within the limits of the options",
			options: limitOptions, run: behaviorLimits,
		},
		{
			cases: "5, 6", promise: "cached objects are found by an index of the options",
			options: indexOptions, run: behaviorIndex,
		},
		{
			cases: "5, 6", promise: "reads right after the connect are answered by the list of one informer",
			options: indexOptions, run: behaviorReadsAfterConnect,
		},
		{
			cases: "21, 40", promise: "a cluster that the filter leaves out is not connected",
			options: filterOptions, run: behaviorFilter,
		},
		{
			cases: "21", promise: "a cluster without the label of the watch filter is not connected",
			options: labelOptions, run: behaviorFilter,
		},
		{
			cases: "1, 4", promise: "a manager with rights in one namespace follows its Secrets",
			run: behaviorOneNamespace, limited: true,
		},
		{cases: "6", promise: "suites have the methods that they assert", run: behaviorSuites},
		{cases: "8, 28", promise: "a deleted Cluster object ends the connection and its state", run: behaviorDeleted},
	}
}

// TestBehaviorsOfClusterAPI runs the same functions on Cluster API's own
// ClusterCache and on this one.
func TestBehaviorsOfClusterAPI(t *testing.T) {
	t.Parallel()
	envs := testenv.Start(t, 2, testenv.WithNames("hub", "remote"), testenv.WithCRDs(clusterDefinition()))
	for n, b := range behaviors() {
		for _, i := range implementations {
			t.Run(fmt.Sprintf("%s: %s/%s", b.cases, b.promise, i.name), func(t *testing.T) {
				t.Parallel()
				var o capi.Options
				if b.options != nil {
					o = b.options()
				}
				s := newSite(t, envs, fmt.Sprintf("%s-%d", i.name, n), i, o, b.limited)
				b.run(t, s)
			})
		}
	}
}

func behaviorProvisioned(t *testing.T, s *site) {
	s.secret(t, s.remote.Kubeconfig())
	object := s.cluster(t, false)
	s.start(t)
	require.Never(t, func() bool {
		_, err := s.GetClient(t.Context(), s.key())
		return err == nil
	}, 3*time.Second, 100*time.Millisecond)
	require.Zero(t, s.state(t))

	s.provision(t, object)
	s.connected(t)
}

func behaviorSecret(t *testing.T, s *site) {
	s.cluster(t, true)
	s.start(t)
	eventually(t, "a failure", func() bool { return s.state(t).ConsecutiveFailures > 0 })
	require.Zero(t, s.state(t).LastProbeSuccessTime)
	require.NotZero(t, s.state(t).LastProbeTime)
	s.requireNotConnected(t)
	eventually(t, "another", func() bool { return s.state(t).ConsecutiveFailures > 1 })

	s.secret(t, s.remote.Kubeconfig())
	s.connected(t)
	state := s.state(t)
	require.Zero(t, state.ConsecutiveFailures)
	require.NotZero(t, state.LastProbeSuccessTime)
	require.False(t, state.LastProbeTime.Before(state.LastProbeSuccessTime))
}

func behaviorUnreachable(t *testing.T, s *site) {
	proxy := s.remote.Proxy(t)
	proxy.Refuse()
	s.secret(t, proxy.Kubeconfig())
	s.cluster(t, true)
	s.start(t)
	eventually(t, "a failure", func() bool { return s.state(t).ConsecutiveFailures > 0 })
	first := time.Now()
	eventually(t, "five failures", func() bool { return s.state(t).ConsecutiveFailures > 4 })
	require.Greater(t, time.Since(first), 7*time.Second, "they are counted every two seconds at most")
	require.Zero(t, s.state(t).LastProbeSuccessTime)
	require.NotZero(t, s.state(t).LastProbeTime)
	s.requireNotConnected(t)

	require.NoError(t, proxy.Heal())
	s.connected(t)
	require.Zero(t, s.state(t).ConsecutiveFailures)
}

func behaviorReads(t *testing.T, s *site) {
	s.secret(t, s.remote.Kubeconfig())
	s.cluster(t, true)
	s.start(t)
	c := s.connected(t)
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: s.namespace}, &corev1.Namespace{}))
	require.NoError(t, c.List(t.Context(), &corev1.NodeList{}))
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "written"}}
	require.NoError(t, c.Create(t.Context(), config))

	reader, err := s.GetReader(t.Context(), s.key())
	require.NoError(t, err)
	eventually(t, "read what was written", func() bool {
		return reader.Get(t.Context(), client.ObjectKeyFromObject(config), &corev1.ConfigMap{}) == nil
	})
	live, err := s.GetUncachedClient(t.Context(), s.key())
	require.NoError(t, err)
	require.NoError(t, live.Delete(t.Context(), config))
	require.Error(t, live.Get(t.Context(), client.ObjectKeyFromObject(config), &corev1.ConfigMap{}))

	rest, err := s.GetRESTConfig(t.Context(), s.key())
	require.NoError(t, err)
	require.Equal(t, s.remote.Config().Host, rest.Host)
	require.Equal(t, s.namespace, rest.UserAgent)
	require.Equal(t, 10*time.Second, rest.Timeout)
	require.InDelta(t, 20, rest.QPS, 0)
	require.Equal(t, 30, rest.Burst)
	direct, err := client.New(rest, client.Options{})
	require.NoError(t, err)
	require.NoError(t, direct.Get(t.Context(), client.ObjectKey{Name: s.namespace}, &corev1.Namespace{}))
}

func transformOptions() capi.Options {
	return capi.Options{Cache: capi.CacheOptions{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Transform: func(in any) (any, error) {
				if config, ok := in.(*corev1.ConfigMap); ok {
					config.Data = map[string]string{"kept": config.Data["kept"]}
				}
				return in, nil
			},
		}},
	}}
}

func behaviorTransforms(t *testing.T, s *site) {
	s.secret(t, s.remote.Kubeconfig())
	s.cluster(t, true)
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "large"},
		Data:       map[string]string{"kept": "yes", "dropped": "yes"},
	}
	require.NoError(t, s.remote.Client().Create(t.Context(), config))
	s.start(t)
	c := s.connected(t)
	var namespace corev1.Namespace
	eventually(t, "the cached ones are changed", func() bool {
		var cached corev1.ConfigMap
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: s.namespace}, &namespace))
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(config), &cached))
		return namespace.ManagedFields == nil && len(cached.Data) == 1 && cached.Data["kept"] == "yes" &&
			cached.ManagedFields != nil // a kind's own transform replaces the default
	})
	live, err := s.GetUncachedClient(t.Context(), s.key())
	require.NoError(t, err)
	require.NoError(t, live.Get(t.Context(), client.ObjectKey{Name: s.namespace}, &namespace))
	require.NotEmpty(t, namespace.ManagedFields)
	require.NoError(t, live.Get(t.Context(), client.ObjectKeyFromObject(config), config))
	require.Len(t, config.Data, 2)
}

// limitOptions limit Secrets as Cluster API's own KubeadmControlPlane limits
// Pods.
func limitOptions() capi.Options {
	return capi.Options{Cache: capi.CacheOptions{ByObject: map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{
			metav1.NamespaceSystem: {LabelSelector: labels.SelectorFromSet(labels.Set{"tier": "control-plane"})},
		}},
	}}}
}

func behaviorLimits(t *testing.T, s *site) {
	secret := func(namespace, name, tier string) {
		require.NoError(t, s.remote.Client().Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      s.namespace + name,
			Labels:    map[string]string{"tier": tier, "run": s.namespace},
		}}))
	}
	secret(metav1.NamespaceSystem, "in", "control-plane")
	secret(metav1.NamespaceSystem, "out", "worker")
	secret(s.namespace, "elsewhere", "control-plane")
	s.secret(t, s.remote.Kubeconfig())
	s.cluster(t, true)
	s.start(t)
	c := s.connected(t)

	for _, opts := range [][]client.ListOption{
		{client.MatchingLabels{"run": s.namespace}},
		{client.MatchingLabels{"run": s.namespace}, client.InNamespace(metav1.NamespaceSystem)},
	} {
		var found corev1.SecretList
		require.NoError(t, c.List(t.Context(), &found, opts...))
		require.Len(t, found.Items, 1)
		require.Equal(t, s.namespace+"in", found.Items[0].Name)
	}
	in := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: s.namespace + "in"}
	require.NoError(t, c.Get(t.Context(), in, &corev1.Secret{}))
	out := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: s.namespace + "out"}
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), out, &corev1.Secret{})))
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: s.namespace}, &corev1.Namespace{}), "no limit")
}

func indexOptions() capi.Options {
	return capi.Options{Cache: capi.CacheOptions{Indexes: []capi.CacheOptionsIndex{capi.NodeProviderIDIndex}}}
}

func behaviorIndex(t *testing.T, s *site) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec:       corev1.NodeSpec{ProviderID: "aws:///" + s.namespace},
	}
	require.NoError(t, s.remote.Client().Create(t.Context(), node))
	s.secret(t, s.remote.Kubeconfig())
	s.cluster(t, true)
	s.start(t)
	c := s.connected(t)
	var nodes corev1.NodeList
	require.NoError(t, c.List(t.Context(), &nodes,
		client.MatchingFields{capi.NodeProviderIDIndex.Field: node.Spec.ProviderID}))
	require.Len(t, nodes.Items, 1)
	require.Equal(t, s.namespace, nodes.Items[0].Name)
}

// behaviorReadsAfterConnect reads as the controllers of 200 Machines do, which
// begin with the event of the connect.
func behaviorReadsAfterConnect(t *testing.T, s *site) {
	s.secret(t, s.remote.Kubeconfig())
	s.cluster(t, true)
	s.start(t)
	var c client.Client
	require.Eventually(t, func() bool {
		var err error
		c, err = s.GetClient(t.Context(), s.key())
		return err == nil
	}, within, time.Millisecond)
	for n := range 200 {
		require.NoError(t, c.List(t.Context(), &corev1.NodeList{},
			client.MatchingFields{capi.NodeProviderIDIndex.Field: fmt.Sprint("aws:///", n)}))
	}
	for n := range 200 {
		err := c.Get(t.Context(), client.ObjectKey{Name: fmt.Sprint("none-", n)}, &corev1.Node{})
		require.True(t, apierrors.IsNotFound(err))
	}
	requests, err := s.remote.Requests(testenv.UserAgent(s.namespace), testenv.Resource("nodes"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(requests), 2, "a list and a watch: %v", requests)
}

func filterOptions() capi.Options {
	return capi.Options{ClusterFilter: func(object *clusterv1.Cluster) bool { return object.Labels["wanted"] == "yes" }}
}

func labelOptions() capi.Options { return capi.Options{WatchFilterValue: "ours"} }

func behaviorFilter(t *testing.T, s *site) {
	s.secret(t, s.remote.Kubeconfig())
	object := s.cluster(t, true)
	s.start(t)
	require.Never(t, func() bool {
		_, err := s.GetClient(t.Context(), s.key())
		return err == nil
	}, 3*time.Second, 100*time.Millisecond)
	require.Zero(t, s.state(t))
	sent, err := s.remote.Requests(testenv.UserAgent(s.namespace))
	require.NoError(t, err)
	require.Empty(t, sent)

	object.Labels["wanted"], object.Labels[clusterv1.WatchLabel] = "yes", "ours"
	require.NoError(t, s.client.Update(t.Context(), object))
	s.connected(t)
}

func behaviorDeleted(t *testing.T, s *site) {
	s.secret(t, s.remote.Kubeconfig())
	object := s.cluster(t, true)
	s.start(t)
	s.connected(t)
	require.NoError(t, s.client.Delete(context.Background(), object))
	eventually(t, "not connected", func() bool {
		_, err := s.GetClient(t.Context(), s.key())
		return err != nil
	})
	s.requireNotConnected(t)
	eventually(t, "no state", func() bool { return s.state(t) == capi.HealthCheckingState{} })
}
