// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// recorder is a Notify consumer.
type recorder struct {
	mu  sync.Mutex
	got []resolver.Cluster // protected by mu
}

func (r *recorder) changed(cluster resolver.Cluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, cluster)
}

// take waits until everything is at rest and returns the reports since the last take.
func (r *recorder) take() []resolver.Cluster {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.got
	r.got = nil
	return out
}

// notify runs Notify until the test ends.
func notify(t *testing.T, n resolver.Notifier) *recorder {
	t.Helper()
	r := &recorder{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Notify(ctx, r.changed) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return r
}

func capiSecret(namespace, cluster, token string) *corev1.Secret {
	return secret(namespace, cluster+"-kubeconfig", map[string]string{"cluster.x-k8s.io/cluster-name": cluster},
		map[string]string{"value": string(tokenConfig(token))})
}

func TestHubChangeIsDeliveredAtOnceAndIdenticalContentIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		hub := fake.NewClientBuilder().WithObjects(capiSecret("fleet", "a", "one")).Build()
		r, err := resolver.ClusterAPI(hub, resolver.HubOptions{})
		require.NoError(t, err)
		news := notify(t, r)
		a := resolver.Cluster{Namespace: "fleet", Name: "a"}
		require.Equal(t, []resolver.Cluster{a}, news.take(), "the first list reports what is known")
		before, err := r.Resolve(ctx, a)
		require.NoError(t, err)
		require.Equal(t, "one", before.Config().BearerToken)

		start := time.Now()
		update := capiSecret("fleet", "a", "two")
		require.NoError(t, hub.Update(ctx, update))
		require.Equal(t, []resolver.Cluster{a}, news.take())
		require.Zero(t, time.Since(start), "no time may pass")
		after, err := r.Resolve(ctx, a)
		require.NoError(t, err)
		require.Equal(t, "two", after.Config().BearerToken)
		require.Equal(t, resolver.ChangedToken, resolver.Diff(before, after))

		update.Annotations = map[string]string{"touched": "yes"}
		update.Data["value"] = append(update.Data["value"], "# a comment\n"...)
		require.NoError(t, hub.Update(ctx, update))
		require.Empty(t, news.take(), "identical content is a no-op")

		require.NoError(t, hub.Create(ctx, capiSecret("fleet", "b", "one")))
		require.Equal(t, []resolver.Cluster{{Namespace: "fleet", Name: "b"}}, news.take())
	})
}

func TestHubDeleteAndRecreateWithinGraceIsNoDisappearance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		hub := fake.NewClientBuilder().WithObjects(capiSecret("fleet", "a", "one")).Build()
		r, err := resolver.ClusterAPI(hub, resolver.HubOptions{})
		require.NoError(t, err)
		news := notify(t, r)
		a := resolver.Cluster{Namespace: "fleet", Name: "a"}
		news.take()

		require.NoError(t, hub.Delete(ctx, capiSecret("fleet", "a", "")))
		time.Sleep(9 * time.Second)
		require.Empty(t, news.take())
		access, err := r.Resolve(ctx, a)
		require.NoError(t, err)
		require.Equal(t, "one", access.Config().BearerToken)
		require.NoError(t, hub.Create(ctx, capiSecret("fleet", "a", "one")))
		time.Sleep(time.Minute)
		require.Empty(t, news.take())

		require.NoError(t, hub.Delete(ctx, capiSecret("fleet", "a", "")))
		time.Sleep(11 * time.Second)
		require.Equal(t, []resolver.Cluster{a}, news.take())
		_, err = r.Resolve(ctx, a)
		require.ErrorIs(t, err, resolver.ErrSecretNotFound)
		require.ErrorIs(t, err, resolver.ErrNoAccess)
		require.EqualError(t, err, "cluster fleet/a: Secret fleet/a-kubeconfig: secret not found")
		clusters, err := r.Clusters(ctx)
		require.NoError(t, err)
		require.Empty(t, clusters)
	})
}
