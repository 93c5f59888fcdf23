// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package hubs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/inventory"
	"github.com/fleetcache/fleetcache/clustercache/resolver/settable"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

func labelsOf(t *testing.T, r resolver.Resolver, cluster resolver.Cluster) map[string]string {
	t.Helper()
	access, err := r.Resolve(t.Context(), cluster)
	require.NoError(t, err)
	return access.Labels()
}

// TestLabelsOfTheObjectsThatDescribeACluster: those of the Secret, and those of
// the ReadyObject, which win. A change of them is reported.
func TestLabelsOfTheObjectsThatDescribeACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := resolvertest.ClusterAPISecret("fleet", "a", "one")
		secret.Labels["env"] = "dev"
		object := resolvertest.UnstructuredObject("cluster.x-k8s.io/v1beta2", "Cluster", "fleet", "a", map[string]any{
			"status": map[string]any{"initialization": map[string]any{"controlPlaneInitialized": true}},
		})
		object.SetLabels(map[string]string{"env": "prod", "region": "eu"})
		hub := resolvertest.NewHub(secret, object)
		r, err := resolver.ClusterAPI(hub, resolver.HubOptions{ReadyObject: resolver.ClusterAPIReady("v1beta2")})
		require.NoError(t, err)
		want := map[string]string{"cluster.x-k8s.io/cluster-name": "a", "env": "prod", "region": "eu"}
		require.Equal(t, want, labelsOf(t, r, clusterA), "by requests")
		changed := resolvertest.Notify(t, r)
		require.Equal(t, []resolver.Cluster{clusterA}, changed.Take())
		require.Equal(t, want, labelsOf(t, r, clusterA), "by the watch")
		before, err := r.Resolve(t.Context(), clusterA)
		require.NoError(t, err)

		object.SetLabels(map[string]string{"region": "us"})
		require.NoError(t, hub.Update(t.Context(), object))
		require.Equal(t, []resolver.Cluster{clusterA}, changed.Take())
		require.Equal(t, map[string]string{"cluster.x-k8s.io/cluster-name": "a", "env": "dev", "region": "us"},
			labelsOf(t, r, clusterA))
		after, err := r.Resolve(t.Context(), clusterA)
		require.NoError(t, err)
		require.Equal(t, before.Revision(), after.Revision(), "labels are no part of the access")
	})
}

// TestHazardHubSelectorOfNothing: the text of a selector that selects nothing
// is empty, which a hub's API server takes for everything: every Secret would
// be one of a cluster.
func TestHazardHubSelectorOfNothing(t *testing.T) {
	hub := resolvertest.NewHub(resolvertest.ClusterAPISecret("fleet", "a", "one"))
	member := schema.GroupVersionKind{Group: "fleet.example", Version: "v1", Kind: "Member"}
	for name, nothing := range map[string]labels.Selector{
		"Nothing": labels.Nothing(), "of nil": client.MatchingLabelsSelector{Selector: labels.Nothing()},
	} {
		options := resolver.HubOptions{Namespace: "fleet", Selector: nothing}
		for convention, of := range map[string]func() (*resolver.HubResolver, error){
			"Secrets": func() (*resolver.HubResolver, error) {
				return resolver.Secrets(hub, resolver.SecretOptions{HubOptions: options})
			},
			"ClusterAPI": func() (*resolver.HubResolver, error) { return resolver.ClusterAPI(hub, options) },
			"ArgoCD": func() (*resolver.HubResolver, error) {
				return resolver.ArgoCD(hub, resolver.ArgoCDOptions{HubOptions: options})
			},
			"Karmada": func() (*resolver.HubResolver, error) { return resolver.Karmada(hub, options) },
			"MulticlusterRuntime": func() (*resolver.HubResolver, error) {
				return resolver.MulticlusterRuntime(hub, options)
			},
			"capi": func() (*resolver.HubResolver, error) {
				return resolver.ClusterAPIClusters(hub, resolver.ClusterAPIOptions{HubOptions: options})
			},
			"inventory": func() (*resolver.HubResolver, error) {
				return inventory.Secrets(hub, inventory.SecretOptions{HubOptions: options, Consumer: "me"})
			},
			"Referenced": func() (*resolver.HubResolver, error) {
				return resolver.Referenced(hub, resolver.ReferenceOptions{
					HubOptions: options, Kind: member, SecretName: "spec.secret",
				})
			},
			"Secrets of Referenced": func() (*resolver.HubResolver, error) {
				return resolver.Referenced(hub, resolver.ReferenceOptions{
					Kind: member, SecretName: "spec.secret", SecretSelector: nothing,
				})
			},
		} {
			_, err := of()
			require.ErrorContains(t, err, "Selector: selects nothing", "%s %s", convention, name)
		}
	}
	require.Zero(t, hub.Requests.Load())
}

// TestSelectReportsOnlyWhatEntersStaysAndLeaves follows a cluster of another
// resolver through its labels.
func TestSelectReportsOnlyWhatEntersStaysAndLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := settable.New()
		s, err := resolver.Select(of, labels.SelectorFromSet(labels.Set{"env": "prod"}))
		require.NoError(t, err)
		set := func(token, env string) {
			access, err := resolver.NewAccess(&rest.Config{Host: "https://c.example", BearerToken: token})
			require.NoError(t, err)
			of.Set(clusterA, access.WithLabels(map[string]string{"env": env}), nil)
		}
		listed := func() []resolver.Cluster {
			all, err := s.Clusters(t.Context())
			require.NoError(t, err)
			return all
		}
		of.Synced()
		set("one", "dev")
		require.Empty(t, listed(), "without Notify")
		changed := resolvertest.Notify(t, s)
		require.Empty(t, changed.Take())
		require.Empty(t, listed())
		_, err = s.Resolve(t.Context(), clusterA)
		require.ErrorIs(t, err, resolver.ErrClusterNotFound)
		require.EqualError(t, err, "cluster fleet/a: cluster not found: its labels do not match env=prod")

		set("two", "dev")
		require.Empty(t, changed.Take(), "it is of no interest")
		of.Set(clusterA, resolver.Access{}, errors.New("quota is used up"))
		require.Empty(t, changed.Take(), "nor is its trouble")
		require.Empty(t, listed())

		set("two", "prod")
		require.Equal(t, []resolver.Cluster{clusterA}, changed.Take())
		require.Equal(t, []resolver.Cluster{clusterA}, listed())
		require.Equal(t, "two", resolvertest.Token(t, s, clusterA))
		set("three", "prod")
		require.Equal(t, []resolver.Cluster{clusterA}, changed.Take())
		of.Set(clusterA, resolver.Access{}, errors.New("quota is used up"))
		require.Equal(t, []resolver.Cluster{clusterA}, changed.Take())
		require.Equal(t, []resolver.Cluster{clusterA}, listed(), "it stays, and shows the reason")

		set("three", "dev")
		require.Equal(t, []resolver.Cluster{clusterA}, changed.Take(), "it leaves")
		require.Empty(t, listed())
		of.Delete(clusterA)
		require.Empty(t, changed.Take())
		of.Set(clusterA, resolver.Access{}, errors.New("quota is used up"))
		require.Equal(t, []resolver.Cluster{clusterA}, changed.Take(), "another cluster, whose labels are unknown")
	})
}

// TestSelectIsWhatItNarrows: it notifies and lists only if the other resolver
// does.
func TestSelectIsWhatItNarrows(t *testing.T) {
	every := labels.Everything()
	none, err := resolver.Select(resolver.Func(nil), every)
	require.NoError(t, err)
	n, all := resolver.AsNotifier(none)
	require.Nil(t, n)
	require.False(t, all)
	_, lists := resolver.AsLister(none)
	require.False(t, lists)
	_, err = none.Clusters(t.Context())
	require.Error(t, err)

	some, err := resolver.Select(resolver.Chain(settable.New(), resolver.Func(nil)), every)
	require.NoError(t, err)
	n, all = resolver.AsNotifier(some)
	require.NotNil(t, n)
	require.False(t, all)
	n, all = resolver.AsNotifier(resolver.Chain(some))
	require.NotNil(t, n)
	require.False(t, all)
	full, err := resolver.Select(settable.New(), every)
	require.NoError(t, err)
	_, all = resolver.AsNotifier(full)
	require.True(t, all)
	_, lists = resolver.AsLister(full)
	require.True(t, lists)

	_, err = resolver.Select(nil, every)
	require.Error(t, err)
	_, err = resolver.Select(full, nil)
	require.Error(t, err)
}

// TestSelectListsByRequestsWhereNothingIsReported: the labels may have changed
// since the last list.
func TestSelectListsByRequestsWhereNothingIsReported(t *testing.T) {
	env := "dev"
	of := listed{resolver.Func(func(context.Context, resolver.Cluster) (resolver.Access, error) {
		access, err := resolver.NewAccess(&rest.Config{Host: "https://c.example"})
		return access.WithLabels(map[string]string{"env": env}), err
	})}
	s, err := resolver.Select(of, labels.SelectorFromSet(labels.Set{"env": "prod"}))
	require.NoError(t, err)
	for _, now := range []string{"dev", "prod", "dev"} {
		env = now
		all, err := s.Clusters(t.Context())
		require.NoError(t, err)
		require.Equal(t, now == "prod", len(all) == 1)
	}
	ctx, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	_, err = s.Clusters(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// TestHazardOneClusterHidesTheOthersOfASelection: the resolver hangs, panics or
// ends its goroutine whenever it is asked about one of the clusters. The others
// are reported and listed.
func TestHazardOneClusterHidesTheOthersOfASelection(t *testing.T) {
	bad, good := resolvertest.Named("a"), resolvertest.Named("b")
	for name, fail := range map[string]func(context.Context){
		"hangs":                  func(ctx context.Context) { <-ctx.Done() },
		"hangs for a day":        func(context.Context) { time.Sleep(24 * time.Hour) },
		"panics":                 func(context.Context) { panic("oops") },
		"ends its own goroutine": func(context.Context) { runtime.Goexit() },
	} {
		for _, watched := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, watched: %v", name, watched), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					of := settable.New()
					for _, cluster := range []resolver.Cluster{bad, good} {
						access, err := resolver.NewAccess(&rest.Config{Host: "https://c.example"})
						require.NoError(t, err)
						of.Set(cluster, access.WithLabels(map[string]string{"env": "prod"}), nil)
					}
					of.Synced()
					s, err := resolver.Select(faulty{of, bad, fail}, labels.SelectorFromSet(labels.Set{"env": "prod"}))
					require.NoError(t, err)
					if watched {
						changed := resolvertest.Notify(t, s)
						time.Sleep(time.Minute)
						require.Equal(t, []resolver.Cluster{bad, good}, changed.Take())
					}
					began := time.Now()
					all, err := s.Clusters(t.Context())
					require.NoError(t, err)
					require.Equal(t, []resolver.Cluster{bad, good}, all)
					require.Less(t, time.Since(began), time.Minute)
					time.Sleep(48 * time.Hour) // what hangs has returned
				})
			})
		}
	}
}

// faulty is a resolver that fails when it is asked about one cluster.
type faulty struct {
	*settable.Resolver
	bad  resolver.Cluster
	fail func(context.Context)
}

func (f faulty) Resolve(ctx context.Context, cluster resolver.Cluster) (resolver.Access, error) {
	if cluster == f.bad {
		f.fail(ctx)
		return resolver.Access{}, ctx.Err()
	}
	return f.Resolver.Resolve(ctx, cluster)
}

// listed lists one cluster.
type listed struct{ resolver.Resolver }

func (listed) Clusters(context.Context) ([]client.ObjectKey, error) {
	return []client.ObjectKey{clusterA}, nil
}

// TestLabelsOfFiles: they come from a function, whose panic is the error of the
// cluster, as is a context that two files have.
func TestLabelsOfFiles(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	require.NoError(t, os.WriteFile(one, resolvertest.TokenConfig("one"), 0o600))
	options := resolver.FileOptions{
		ID: resolver.ByContext,
		Labels: func(path, _ string) map[string]string {
			return map[string]string{"file": filepath.Base(path)}
		},
	}
	r, err := resolver.Files(options, one, two)
	require.NoError(t, err)
	all, err := r.Clusters(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2, "and the missing file")
	cluster := all[slices.IndexFunc(all, func(c resolver.Cluster) bool { return c.Name != two })]
	require.NotContains(t, cluster.Name, dir, "the name is that of the context")
	require.Equal(t, map[string]string{"file": "one"}, labelsOf(t, r, cluster))

	require.NoError(t, os.WriteFile(two, resolvertest.TokenConfig("two"), 0o600))
	_, err = r.Resolve(t.Context(), cluster)
	require.ErrorContains(t, err, "one of several")

	options.Labels = func(string, string) map[string]string { panic(resolvertest.CanaryToken) }
	r, err = resolver.Files(options, one)
	require.NoError(t, err)
	_, err = r.Resolve(t.Context(), cluster)
	require.ErrorContains(t, err, "FileOptions.Labels")
	resolvertest.RequireNoCanary(t, err.Error())
}

// TestLabelsOfAnAccessAreCopies: a caller that changes one changes nothing else.
func TestLabelsOfAnAccessAreCopies(t *testing.T) {
	plain, err := resolver.NewAccess(&rest.Config{Host: "https://c.example"})
	require.NoError(t, err)
	require.NotNil(t, plain.Labels())
	given := map[string]string{"env": "prod"}
	access := plain.WithLabels(given)
	given["env"] = "dev"
	access.Labels()["env"] = "dev"
	require.Equal(t, map[string]string{"env": "prod"}, access.Labels())
	require.Empty(t, plain.Labels())
	require.Equal(t, plain.Revision(), access.Revision())
	require.Zero(t, resolver.Diff(plain, access))
}
