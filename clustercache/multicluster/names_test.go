// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// hostileKeys are keys whose names could be mistaken for those of others.
func hostileKeys() []client.ObjectKey {
	parts := []string{
		"", "a", "b", "a/b", "/", "//", "/a", "a/", "//a", "//a/b", "////a/b", "a/b/c", "/etc/kube/config+ctx", "/:a/b",
		"/:a%2Fb/c", "/:%61/b", "//:a/b",
		"arn:aws:eks:eu-west-1:123456789012:cluster/prod", "provider#fleet/east", "%2F", "a%2Fb", ":", "/:", "/:a",
		"A_b.c-9", "é/b", "a b/c", "\xff/b",
	}
	var keys []client.ObjectKey
	for _, namespace := range parts {
		for _, name := range parts {
			keys = append(keys, client.ObjectKey{Namespace: namespace, Name: name})
		}
	}
	return keys[1:] // without the zero key
}

// TestHazardEveryKeyHasANameOfItsOwn checks that every engaged cluster can be
// found, whatever slashes its key has, and that no two clusters share a name.
func TestHazardEveryKeyHasANameOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		api := serve(f.servers, "uid")
		for _, k := range hostileKeys() {
			f.d.set(k, api.Config())
		}
		p := newProvider(f, multicluster.ProviderOptions{})
		to, made := calls()
		engage(t, p, to)
		seen := map[clusterName]bool{}
		for range hostileKeys() {
			c := next(t, made)
			require.False(t, seen[c.name], "%q", c.name)
			seen[c.name] = true
			cl, err := p.Get(t.Context(), c.name)
			require.NoError(t, err, "%q", c.name)
			require.Same(t, c.cl, cl, "%q", c.name)
		}
		for _, plain := range []clusterName{"a", "a/b", "/etc/kube/config+ctx",
			"arn:aws:eks:eu-west-1:123456789012:cluster/prod", "provider#fleet/east", "a/b/c"} {
			require.True(t, seen[plain], "%q", plain)
		}
	})
}

// TestHazardRegistrarAdoptsEveryName guards against an error, after which
// multicluster-runtime would engage the cluster with no Aware at all.
func TestHazardRegistrarAdoptsEveryName(t *testing.T) {
	r := multicluster.NewRegistrar[clusterName](multicluster.Names{})
	names := map[clusterName]bool{}
	for _, k := range hostileKeys() {
		names[clusterName(k.Name)] = true
		names[clusterName(k.Namespace+"/"+k.Name)] = true
	}
	delete(names, "")
	for name := range names {
		require.NoError(t, r.Engage(t.Context(), name, &foreign{config: &rest.Config{Host: "https://a.test"}}), "%q",
			name)
	}
	keys, err := r.Clusters(t.Context())
	require.NoError(t, err)
	require.Len(t, keys, len(names), "no name takes another's place")
	require.NotContains(t, keys, client.ObjectKey{})
}

// lines is a logger that keeps its entries.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text = append(l.text, prefix+" "+args)
	}, funcr.Options{})
}

func (l *lines) with(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.text {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// TestHazardNamesThatLeadElsewhereAreLogged covers user functions that are not
// the inverse of each other.
func TestHazardNamesThatLeadElsewhereAreLogged(t *testing.T) {
	bare := multicluster.Names{
		Name: func(k client.ObjectKey) string { return k.Name },
		Key:  func(name string) (client.ObjectKey, bool) { return client.ObjectKey{Name: name}, name != "nobody" },
	}
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		f := newFleet(t, multicluster.Options{Logger: log.logger()})
		f.add("a")
		to, made := calls()
		engage(t, newProvider(f, multicluster.ProviderOptions{Names: bare}), to)
		time.Sleep(time.Hour)
		require.Empty(t, made, "nobody could find it")
		require.Equal(t, 1,
			log.with(`"error"="cluster \"fleet/a\" is called \"a\", which Names.Key takes for cluster \"a\""`))
	})

	log := &lines{}
	ctx := ctrllog.IntoContext(t.Context(), log.logger())
	reversed := bare
	reversed.Name = func(k client.ObjectKey) string { return k.Name + "!" }
	r := multicluster.NewRegistrar[clusterName](reversed)
	for _, name := range []clusterName{"a", "nobody", ""} {
		require.NoError(t, r.Engage(ctx, name, &foreign{config: &rest.Config{Host: "https://a.test"}}))
	}
	require.Equal(t, 3, log.with("Cluster is not adopted"))
	require.Equal(t, 1, log.with(`the name \"a\" leads to cluster \"a\", which Names.Name calls \"a!\"`))
	keys, err := r.Clusters(t.Context())
	require.NoError(t, err)
	require.Empty(t, keys)
}

// TestHazardUnusableAccessIsNotEngaged checks that a cluster whose Secret is
// unusable or refused by policy is not engaged until the Secret was repaired.
// After that, losing the access does not end the engagement.
func TestHazardUnusableAccessIsNotEngaged(t *testing.T) {
	for name, cause := range map[string]error{
		"missing":    resolver.ErrSecretNotFound,
		"not ready":  resolver.ErrNotReady,
		"broken":     &resolver.KubeconfigError{Reason: "is empty"},
		"no key":     fmt.Errorf("%w: kubeconfig", resolver.ErrKeyMissing),
		"refused":    &resolver.RefusedError{Field: "user.exec", Reason: "is not allowed"},
		"not listed": resolver.ErrClusterNotFound,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDirectory()
				broken := true
				r := resolver.Func(func(_ context.Context, k client.ObjectKey) (resolver.Access, error) {
					d.mu.Lock()
					defer d.mu.Unlock()
					if broken {
						return resolver.Access{}, cause
					}
					return resolver.NewAccess(d.configs[k])
				})
				cc, err := clustercache.New(clustercache.Options{Resolver: notifying{r, d}})
				require.NoError(t, err)
				fleettest.Run(t, cc)
				f := &fleet{Clusters: multicluster.New(cc, multicluster.Options{}), t: t, cc: cc, d: d}
				p := newProvider(f, multicluster.ProviderOptions{})
				to, made := calls()
				engage(t, p, to)
				require.NoError(t, cc.Cluster(key("a")).Engage())
				time.Sleep(time.Hour)
				require.Empty(t, made)
				_, err = p.Get(t.Context(), "fleet/a")
				require.ErrorIs(t, err, errNotFound)
				if name != "not listed" {
					require.ErrorIs(t, err, cause)
				}

				servers := clustercachetest.New(t, clustercachetest.Options{})
				d.mu.Lock()
				broken = false
				d.mu.Unlock()
				d.set(key("a"), serve(servers, "uid-a").Config())
				c := next(t, made)
				got, err := p.Get(t.Context(), "fleet/a")
				require.NoError(t, err)
				require.Same(t, c.cl, got)

				if name == "not listed" {
					return
				}
				d.mu.Lock()
				broken = true
				d.mu.Unlock()
				d.news <- key("a")
				time.Sleep(time.Hour)
				_, err = p.Get(t.Context(), "fleet/a")
				require.NoError(t, err, "it was usable, and may be again")
				require.NoError(t, c.ctx.Err())
			})
		})
	}
}

// TestHazardEarlyGetMakesAnUnusableClusterFound: Get was called before the
// resolver had answered. Once it is known that the kubeconfig is empty the
// cluster is not found, and it is not engaged, until it is described.
func TestHazardEarlyGetMakesAnUnusableClusterFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirectory()
		empty := error(&resolver.KubeconfigError{Reason: "is empty"})
		r := resolver.Func(func(ctx context.Context, k client.ObjectKey) (resolver.Access, error) {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			if empty != nil {
				return resolver.Access{}, empty
			}
			return resolver.NewAccess(d.configs[k])
		})
		cc, err := clustercache.New(clustercache.Options{Resolver: notifying{r, d}})
		require.NoError(t, err)
		fleettest.Run(t, cc)
		f := &fleet{Clusters: multicluster.New(cc, multicluster.Options{}), t: t, cc: cc, d: d}
		p := newProvider(f, multicluster.ProviderOptions{})
		to, made := calls()
		engage(t, p, to)
		require.NoError(t, cc.Cluster(key("a")).Engage())
		_, err = p.Get(t.Context(), "fleet/a")
		require.NoError(t, err, "nothing is known of it yet")
		time.Sleep(time.Minute)
		_, err = p.Get(t.Context(), "fleet/a")
		require.ErrorIs(t, err, errNotFound)
		require.ErrorIs(t, err, empty)
		require.Empty(t, made)

		// A server that cannot be reached is found, until the access is empty again.
		servers := clustercachetest.New(t, clustercachetest.Options{})
		server := serve(servers, "uid-a")
		server.Disconnect()
		d.mu.Lock()
		empty = nil
		d.mu.Unlock()
		d.set(key("a"), server.Config())
		time.Sleep(time.Minute)
		_, err = p.Get(t.Context(), "fleet/a")
		require.NoError(t, err)
		d.mu.Lock()
		empty = &resolver.KubeconfigError{Reason: "is empty"}
		d.mu.Unlock()
		d.news <- key("a")
		time.Sleep(time.Minute)
		_, err = p.Get(t.Context(), "fleet/a")
		require.ErrorIs(t, err, errNotFound)
		require.Empty(t, made)

		d.mu.Lock()
		empty = nil
		d.mu.Unlock()
		server.Connect()
		d.news <- key("a")
		c := next(t, made)
		got, err := p.Get(t.Context(), "fleet/a")
		require.NoError(t, err)
		require.Same(t, c.cl, got)
	})
}

// notifying is a Resolver that reports the changes of a directory.
type notifying struct {
	resolver.Resolver

	d *directory
}

func (n notifying) Notify(ctx context.Context, changed func(client.ObjectKey)) error {
	return n.d.Notify(ctx, changed)
}
