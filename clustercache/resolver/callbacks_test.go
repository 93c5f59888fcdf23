// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

// fault makes a callback fail instead of answer.
type fault struct{ kind atomic.Int32 }

func (f *fault) strike() {
	switch f.kind.Load() {
	case 1:
		panic(resolvertest.CanaryToken)
	case 2:
		runtime.Goexit()
	}
}

// requireCaught fails unless err is that of a callback, contains nothing of the
// callback's input, and does not state that the cluster does not exist.
func requireCaught(t *testing.T, err error) {
	t.Helper()
	_, caught := errors.AsType[*callback.PanicError](err)
	require.True(t, caught, "%v", err)
	require.NotErrorIs(t, err, resolver.ErrClusterNotFound)
	require.NotErrorIs(t, err, resolver.ErrSecretNotFound)
	resolvertest.RequireNoCanary(t, err.Error())
}

// requireOpen fails if an error would make a cluster count as gone that is not
// listed either, such as one whose object cannot be named.
func requireOpen(t *testing.T, err error) {
	t.Helper()
	requireCaught(t, err)
	require.NotErrorIs(t, err, resolver.ErrNoAccess)
}

// TestHazardCallbackOfAResolverEndsItsGoroutine checks that a function of the
// options that panics, or ends its goroutine, is an error of the cluster. It
// ends neither the process nor the watch, and the cluster does not count as
// gone.
func TestHazardCallbackOfAResolverEndsItsGoroutine(t *testing.T) {
	cluster := resolver.Cluster{Namespace: "ns", Name: "a"}
	ready := schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Cluster"}
	for name, options := range map[string]func(*fault) resolver.SecretOptions{
		"ID": func(f *fault) resolver.SecretOptions {
			return resolver.SecretOptions{ID: func(secret *corev1.Secret) (resolver.Cluster, bool) {
				f.strike()
				return resolver.Cluster{Namespace: secret.Namespace, Name: "a"}, true
			}}
		},
		"Decode": func(f *fault) resolver.SecretOptions {
			return resolver.SecretOptions{Decode: func(_ resolver.Cluster,
				secret *corev1.Secret) (resolver.Access, error) {
				f.strike()
				return resolver.Kubeconfig(secret.Data["value"], resolver.KubeconfigOptions{})
			}}
		},
		"ReadyObject.Ready": func(f *fault) resolver.SecretOptions {
			return resolver.SecretOptions{HubOptions: resolver.HubOptions{ReadyObject: &resolver.ReadyObject{
				Kind: ready,
				Ready: func(*unstructured.Unstructured) bool {
					f.strike()
					return true
				},
			}}}
		},
		"ReadyObject.Key": func(f *fault) resolver.SecretOptions {
			return resolver.SecretOptions{HubOptions: resolver.HubOptions{ReadyObject: &resolver.ReadyObject{
				Kind: ready,
				Key: func(cluster resolver.Cluster) resolver.Cluster {
					f.strike()
					return cluster
				},
				Ready: func(*unstructured.Unstructured) bool { return true },
			}}}
		},
		"Ready": func(f *fault) resolver.SecretOptions {
			return resolver.SecretOptions{HubOptions: resolver.HubOptions{Ready: func(context.Context,
				resolver.Cluster) (bool, error) {
				f.strike()
				return true, nil
			}}}
		},
	} {
		for kind, ends := range map[int32]string{1: "panic", 2: "Goexit"} {
			for _, watched := range []bool{true, false} {
				t.Run(name+" by "+ends+map[bool]string{true: ", watched", false: ""}[watched], func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						object := resolvertest.Secret("ns", "a", nil, resolvertest.TokenData("value", "one"))
						readiness := resolvertest.UnstructuredObject("cluster.x-k8s.io/v1beta2",
							"Cluster", "ns", "a", nil)
						hub := resolvertest.NewHub(object, readiness)
						var f fault
						given := options(&f)
						given.Namespace = "ns"
						r, err := resolver.Secrets(hub, given)
						require.NoError(t, err)
						if watched {
							resolvertest.Notify(t, r)
							synctest.Wait()
						}
						require.Equal(t, "one", resolvertest.Token(t, r, cluster))

						f.kind.Store(kind)
						object.Data["value"] = resolvertest.TokenConfig("two")
						require.NoError(t, hub.Update(t.Context(), object))
						readiness.SetLabels(map[string]string{"a": "b"})
						require.NoError(t, hub.Update(t.Context(), readiness))
						synctest.Wait()
						for range 2 {
							_, err = r.Resolve(t.Context(), cluster)
							requireCaught(t, err)
							clusters, err := r.Clusters(t.Context())
							require.NoError(t, err)
							require.NotEmpty(t, clusters)
							if watched {
								require.Equal(t, []resolver.Cluster{cluster}, clusters)
							}
							time.Sleep(time.Minute) // longer than any grace: it stays
						}

						f.kind.Store(0)
						object.Data["value"] = resolvertest.TokenConfig("three")
						require.NoError(t, hub.Update(t.Context(), object))
						readiness.SetLabels(nil)
						require.NoError(t, hub.Update(t.Context(), readiness))
						synctest.Wait()
						require.Equal(t, "three", resolvertest.Token(t, r, cluster), "it goes on")
					})
				})
			}
		}
	}
}

// TestHazardObjectThatCannotBeNamedIsSeen checks that an object on which ID has
// always failed is represented by its own key with the error, and that no
// cluster it may describe is reported as missing.
func TestHazardObjectThatCannotBeNamedIsSeen(t *testing.T) {
	for _, watched := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var f fault
			f.kind.Store(2)
			r, err := resolver.Secrets(resolvertest.NewHub(resolvertest.Secret("ns", "s", nil,
				resolvertest.TokenData("value", "one"))), resolver.SecretOptions{
				HubOptions: resolver.HubOptions{Namespace: "ns"},
				ID: func(*corev1.Secret) (resolver.Cluster, bool) {
					f.strike()
					return resolvertest.Named("a"), true
				},
			})
			require.NoError(t, err)
			if watched {
				resolvertest.Notify(t, r)
				synctest.Wait()
			}
			standIn := resolver.Cluster{Namespace: "ns", Name: "s"}
			clusters, err := r.Clusters(t.Context())
			require.NoError(t, err)
			require.Equal(t, []resolver.Cluster{standIn}, clusters)
			for _, cluster := range []resolver.Cluster{standIn, resolvertest.Named("a")} {
				_, err = r.Resolve(t.Context(), cluster)
				requireOpen(t, err)
			}
		})
	}
}

// TestHazardCallbackOfFilesEndsItsGoroutine checks the same for FileOptions.ID.
func TestHazardCallbackOfFilesEndsItsGoroutine(t *testing.T) {
	for kind, ends := range map[int32]string{1: "panic", 2: "Goexit"} {
		for _, watched := range []bool{true, false} {
			t.Run(ends+map[bool]string{true: ", watched", false: ""}[watched], func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, "config")
				write(t, path, resolvertest.TokenConfig("one"))
				var f fault
				r := files(t, resolver.FileOptions{ID: func(_, context string) (resolver.Cluster, bool) {
					f.strike()
					return resolvertest.Named("its " + context), true
				}}, dir)
				var changes <-chan resolver.Cluster
				if watched {
					changes = watchFiles(t, r)
				}
				isNow := func(wanted func(resolver.Access, error) bool) {
					t.Helper()
					if watched {
						until(t, changes, r, resolvertest.Named("its c"), wanted)
						return
					}
					require.True(t, wanted(r.Resolve(t.Context(), resolvertest.Named("its c"))))
				}
				isNow(hasToken("one"))
				f.kind.Store(kind)
				write(t, path, resolvertest.TokenConfig("two"))
				isNow(isGone)
				_, err := r.Resolve(t.Context(), resolvertest.Named("its c"))
				requireCaught(t, err)
				clusters, err := r.Clusters(t.Context())
				require.NoError(t, err)
				require.Equal(t, []resolver.Cluster{resolvertest.Named("its c")}, clusters, "as it was called before")

				late := files(t, resolver.FileOptions{ID: func(string, string) (resolver.Cluster, bool) {
					f.strike()
					return resolver.Cluster{}, false
				}}, dir)
				_, err = late.Clusters(t.Context())
				requireCaught(t, err)
				_, err = late.Resolve(t.Context(), resolvertest.Named("its c"))
				requireOpen(t, err)
				also := files(t, resolver.FileOptions{ID: func(string, string) (resolver.Cluster, bool) {
					f.strike()
					return resolver.Cluster{}, false
				}}, filepath.Join(dir, "absent"), dir)
				_, err = also.Resolve(t.Context(), resolvertest.Named("its c"))
				requireOpen(t, err)

				f.kind.Store(0)
				write(t, path, resolvertest.TokenConfig("three"))
				isNow(hasToken("three"))
			})
		}
	}
}

// TestHazardContextsWithoutANameAreSeen checks that a context that cannot be
// requested by its name is a cluster with an error, and so is one whose name
// would be the hub's.
func TestHazardContextsWithoutANameAreSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, []byte(`
contexts: [{name: c, context: {cluster: c, user: u}}, {name: '', context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://c.example"}}]
users: [{name: u, user: {token: t}}]
`))
	nameless := resolvertest.Named(`"` + path + `+"`)
	for name, test := range map[string]struct {
		id   func(path, context string) (resolver.Cluster, bool)
		good resolver.Cluster
	}{
		"by default": {nil, resolvertest.Named(path + "+c")},
		"by context": {func(_, context string) (resolver.Cluster, bool) {
			return resolvertest.Named(context), true
		}, resolvertest.Named("c")},
	} {
		t.Run(name, func(t *testing.T) {
			r := files(t, resolver.FileOptions{ID: test.id}, path)
			clusters, err := r.Clusters(t.Context())
			require.NoError(t, err)
			require.ElementsMatch(t, []resolver.Cluster{nameless, test.good}, clusters)
			require.Equal(t, "t", resolvertest.Token(t, r, test.good))
			_, err = r.Resolve(t.Context(), nameless)
			require.Equal(t, "context.name", fieldOf(err), "%v", err)
			_, err = r.Resolve(t.Context(), resolver.Cluster{})
			require.ErrorIs(t, err, resolver.ErrClusterNotFound, "the hub is in no file")
		})
	}
	r := files(t, resolver.FileOptions{ID: func(string, string) (resolver.Cluster, bool) {
		return resolver.Cluster{}, true
	}}, path)
	_, err := r.Resolve(t.Context(), resolver.Cluster{})
	require.ErrorIs(t, err, resolver.ErrClusterNotFound, "the hub is in no file")
	_, err = r.Resolve(t.Context(), resolvertest.Named(`"`+path+`+c"`))
	require.Equal(t, "context.name", fieldOf(err), "%v", err)
}
