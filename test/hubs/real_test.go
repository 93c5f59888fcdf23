// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package hubs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

const agent = "resolver-under-test"

var (
	kustomization = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
	realA         = resolver.Cluster{Namespace: "default", Name: "a"}
)

// hubClient returns a client whose requests can be distinguished from others.
func hubClient(t *testing.T, hub *testenv.Cluster) client.WithWatch {
	t.Helper()
	config := hub.Config()
	config.UserAgent = agent
	out, err := client.NewWithWatch(config, client.Options{})
	require.NoError(t, err)
	return out
}

func kubeconfig(token string) []byte {
	return fmt.Appendf(nil, `
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://c.example"}}]
users: [{name: u, user: {token: %s}}]
`, token)
}

func secret(name, token string, labels map[string]string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
		Data:       map[string][]byte{"value": kubeconfig(token)},
	}
}

func capiSecret(cluster, token string) *corev1.Secret {
	return secret(cluster+"-kubeconfig", token, map[string]string{"cluster.x-k8s.io/cluster-name": cluster})
}

// watcher runs Notify until the test ends.
type watcher struct {
	*resolver.HubResolver
	changes chan resolver.Cluster
}

func watch(t *testing.T, r *resolver.HubResolver) watcher {
	t.Helper()
	w := watcher{r, make(chan resolver.Cluster)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- r.Notify(ctx, func(cluster resolver.Cluster) {
			select {
			case w.changes <- cluster:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return w
}

// until waits until a cluster has a token, or none if token is empty, checking
// only when a change was reported.
func (w watcher) until(t *testing.T, cluster resolver.Cluster, token string) {
	t.Helper()
	for {
		access, err := w.Resolve(t.Context(), cluster)
		if token == "" && err != nil || err == nil && access.Config().BearerToken == token {
			return
		}
		select {
		case <-w.changes:
		case <-t.Context().Done():
			require.FailNow(t, "no report")
		}
	}
}

// lists returns the lists of Secrets that did more than read the version.
func lists(t *testing.T, hub *testenv.Cluster) int {
	t.Helper()
	requests, err := hub.Requests(testenv.Verb("list"), testenv.Resource("secrets"), testenv.UserAgent(agent))
	require.NoError(t, err)
	n := 0
	for _, r := range requests {
		require.Contains(t, r.URI, "Selector=", "never all Secrets")
		if !strings.Contains(r.URI+"&", "limit=1&") {
			n++
		}
	}
	return n
}

func TestRealHubIsFollowedThroughRestartsAndRollbacks(t *testing.T) {
	t.Parallel()
	hub := testenv.Start(t, 1)[0]
	ctx := t.Context()
	r, err := resolver.ClusterAPI(hubClient(t, hub), resolver.HubOptions{Grace: -1})
	require.NoError(t, err)
	require.NoError(t, hub.Client().Create(ctx, secret("unrelated", "x", nil)))
	w := watch(t, r)
	one := capiSecret("a", "one")
	require.NoError(t, hub.Client().Create(ctx, one))
	w.until(t, realA, "one")
	one.Data["value"] = kubeconfig("two")
	require.NoError(t, hub.Client().Update(ctx, one))
	w.until(t, realA, "two")

	snapshot, err := hub.Snapshot(ctx)
	require.NoError(t, err)
	one.Data["value"] = kubeconfig("three")
	require.NoError(t, hub.Client().Update(ctx, one))
	require.NoError(t, hub.Client().Create(ctx, capiSecret("b", "b")))
	w.until(t, realA, "three")
	w.until(t, resolver.Cluster{Namespace: "default", Name: "b"}, "b")
	require.Equal(t, 1, lists(t, hub))

	require.NoError(t, hub.StopAPIServer(ctx))
	_, err = w.Resolve(ctx, realA)
	require.NoError(t, err, "the last answer stays while the hub is down")
	require.NoError(t, hub.StartAPIServer(ctx))
	require.NoError(t, hub.Client().Get(ctx, client.ObjectKeyFromObject(one), one))
	one.Data["value"] = kubeconfig("four")
	require.NoError(t, hub.Client().Update(ctx, one))
	w.until(t, realA, "four")
	require.LessOrEqual(t, lists(t, hub), 2, "a restart costs one list at most")

	require.NoError(t, hub.Rollback(ctx, snapshot))
	w.until(t, realA, "two")
	w.until(t, resolver.Cluster{Namespace: "default", Name: "b"}, "")
	clusters, err := w.Clusters(ctx)
	require.NoError(t, err)
	require.Equal(t, []resolver.Cluster{realA}, clusters)
}

func TestRealHubServesSelectionsByNameAndType(t *testing.T) {
	t.Parallel()
	hub := testenv.Start(t, 1, testenv.WithCRDs(testenv.SimpleCRD(kustomization.Group, kustomization.Kind)))[0]
	ctx := t.Context()
	object := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"kubeConfig": map[string]any{"secretRef": map[string]any{"name": "plain"}}}}}
	object.SetGroupVersionKind(kustomization)
	object.SetNamespace("default")
	object.SetName("a")
	require.NoError(t, hub.Client().Create(ctx, object))
	require.NoError(t, hub.Client().Create(ctx, secret("other", "x", nil)))
	flux, err := resolver.Flux(hubClient(t, hub),
		resolver.FluxOptions{Kind: kustomization, HubOptions: resolver.HubOptions{Grace: -1}})
	require.NoError(t, err)
	w := watch(t, flux)
	w.until(t, realA, "")
	plain := secret("plain", "one", nil)
	require.NoError(t, hub.Client().Create(ctx, plain))
	w.until(t, realA, "one")
	plain.Data["value"] = kubeconfig("two")
	require.NoError(t, hub.Client().Update(ctx, plain))
	w.until(t, realA, "two")

	typed, err := resolver.Secrets(hubClient(t, hub), resolver.SecretOptions{Type: "example.com/kubeconfig"})
	require.NoError(t, err)
	byType := watch(t, typed)
	mine := secret("typed", "three", nil)
	mine.Type = "example.com/kubeconfig"
	require.NoError(t, hub.Client().Create(ctx, mine))
	byType.until(t, resolver.Cluster{Namespace: "default", Name: "typed"}, "three")
	clusters, err := typed.Clusters(ctx)
	require.NoError(t, err)
	require.Len(t, clusters, 1)
	lists(t, hub)
}

// TestRealHubServesReferencesToOneWhoMayReadNamedSecretsOnly: rights by name
// suffice, and the trouble of one cluster, whose Secret may not be read, is no
// other's.
func TestRealHubServesReferencesToOneWhoMayReadNamedSecretsOnly(t *testing.T) {
	t.Parallel()
	member := schema.GroupVersionKind{Group: "fleet.test", Version: "v1", Kind: "Member"}
	hub := testenv.Start(t, 1, testenv.WithCRDs(testenv.SimpleCRD(member.Group, member.Kind)))[0]
	ctx := t.Context()
	read := []string{"get", "list", "watch"}
	user, err := hub.AddUser(ctx, "reader",
		rbacv1.PolicyRule{Verbs: read, APIGroups: []string{member.Group}, Resources: []string{"members"}},
		rbacv1.PolicyRule{
			Verbs:         read,
			APIGroups:     []string{""},
			Resources:     []string{"secrets"},
			ResourceNames: []string{"one", "two"},
		})
	require.NoError(t, err)
	config := user.Config()
	config.UserAgent = agent
	reader, err := client.NewWithWatch(config, client.Options{})
	require.NoError(t, err)
	require.True(t, apierrors.IsForbidden(reader.List(ctx, &corev1.SecretList{})))

	put := func(name, names string) {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(member)
		object.SetNamespace("default")
		object.SetName(name)
		_, err := controllerutil.CreateOrUpdate(ctx, hub.Client(), object, func() error {
			object.SetLabels(map[string]string{"names": names})
			return unstructured.SetNestedField(object.Object, names, "spec", "secret")
		})
		require.NoError(t, err)
	}
	put("a", "one")
	put("b", "secret-of-others")
	require.NoError(t, hub.Client().Create(ctx, secret("secret-of-others", "x", nil)))
	r, err := resolver.Referenced(reader, resolver.ReferenceOptions{
		Kind:       member,
		SecretName: "spec.secret",
		HubOptions: resolver.HubOptions{Grace: -1},
	})
	require.NoError(t, err)
	w := watch(t, r)
	w.until(t, realA, "")
	require.NoError(t, hub.Client().Create(ctx, secret("one", "t1", nil)))
	w.until(t, realA, "t1")
	require.NoError(t, hub.Client().Create(ctx, secret("two", "t2", nil)))
	put("a", "two")
	w.until(t, realA, "t2")
	access, err := w.Resolve(ctx, realA)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"names": "two"}, access.Labels())
	_, err = w.Resolve(ctx, resolver.Cluster{Namespace: "default", Name: "b"})
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	require.NoError(t, hub.StopAPIServer(ctx))
	_, err = w.Resolve(ctx, realA)
	require.NoError(t, err, "the last answer stays while the hub is down")
	require.NoError(t, hub.StartAPIServer(ctx))
	put("a", "one")
	w.until(t, realA, "t1")
}
