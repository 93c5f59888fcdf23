// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/testenv"
	"github.com/fleetcache/fleetcache/test/conformance"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

func TestRealClustersBehaveAsTheSuiteSays(t *testing.T) {
	t.Parallel()
	bed := newRealBed(t)
	for _, b := range conformance.Behaviours() {
		t.Run(b.Name, func(t *testing.T) {
			bed.t = t
			b.Run(t, bed)
		})
	}
}

// realBed runs behaviors on a real cluster behind a proxy, as a user with
// limited rights.
type realBed struct {
	t       *testing.T
	cluster *testenv.Cluster
	proxy   *testenv.Proxy
	user    *testenv.User
	users   int

	mu    sync.Mutex // protects the fields below
	gone  bool
	tells map[chan struct{}]struct{} // one slot each
}

func newRealBed(t *testing.T) *realBed {
	t.Helper()
	b := &realBed{t: t, cluster: testenv.Start(t, 1)[0], tells: map[chan struct{}]struct{}{}}
	b.proxy = b.cluster.Proxy(t)
	b.addUser()
	return b
}

func (b *realBed) addUser() {
	user, err := b.cluster.AddUser(b.t.Context(), fmt.Sprintf("suite-%d", b.users), rules("")...)
	require.NoError(b.t, err)
	b.users++
	b.mu.Lock()
	defer b.mu.Unlock()
	b.user = user
}

// rules grants everything that the suite does, except access to one resource.
func rules(without string) []rbacv1.PolicyRule {
	out := []rbacv1.PolicyRule{{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}}
	for _, name := range conformance.Resources() {
		plural, group, _ := strings.Cut(name, ".")
		if plural != without {
			out = append(out, rbacv1.PolicyRule{APIGroups: []string{group},
				Resources: []string{plural, plural + "/status"}, Verbs: []string{"*"}})
		}
	}
	return out
}

func (b *realBed) Cluster() conformance.Cluster { return b }
func (b *realBed) Resolver() resolver.Resolver  { return b }
func (b *realBed) Key() client.ObjectKey        { return client.ObjectKey{Namespace: "fleet", Name: "real"} }
func (b *realBed) Admin() client.Client         { return b.cluster.Client() }
func (b *realBed) Disconnect()                  { b.proxy.Refuse() }
func (b *realBed) Connect()                     { require.NoError(b.t, b.proxy.Heal()); b.tell() }
func (b *realBed) Rotate()                      { b.addUser(); b.tell() }

func (b *realBed) Forbid(resource string) {
	require.NoError(b.t, b.user.Grant(b.t.Context(), rules(resource)...))
}

func (b *realBed) Limit(resource, name string) {
	plural, group, _ := strings.Cut(resource, ".")
	limited := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{plural}, ResourceNames: []string{name},
		Verbs: []string{"*"}}
	require.NoError(b.t, b.user.Grant(b.t.Context(), append(rules(resource), limited)...))
}

func (b *realBed) Allow() { require.NoError(b.t, b.user.Grant(b.t.Context(), rules("")...)) }

func (b *realBed) Replace() {
	b.unreachable(func() { require.NoError(b.t, b.cluster.Wipe(b.t.Context())) })
}

// unreachable runs restart, which restarts the servers, while the proxy refuses
// connections. A server that has just started does not know the users' rights
// for a moment, so the proxy lets connections through only once it does.
func (b *realBed) unreachable(restart func()) {
	b.proxy.Refuse()
	restart()
	b.Allow()
	require.NoError(b.t, b.proxy.Heal())
}

func (b *realBed) Snapshot() func() {
	s, err := b.cluster.Snapshot(b.t.Context())
	require.NoError(b.t, err)
	return func() {
		b.unreachable(func() { require.NoError(b.t, b.cluster.Rollback(b.t.Context(), s)) })
	}
}

func (b *realBed) requests(resource string) []testenv.Request {
	out, err := b.cluster.Requests(testenv.Resource(resource), testenv.UserAgent("suite"))
	require.NoError(b.t, err)
	return slices.DeleteFunc(out, func(r testenv.Request) bool { return r.Unstreamed || isQuestion(b.t, r) })
}

// isQuestion reports whether a request only asks for the server's current
// resourceVersion.
func isQuestion(t *testing.T, r testenv.Request) bool {
	u, err := url.Parse(r.URI)
	require.NoError(t, err)
	return strings.Contains(u.Query().Get("fieldSelector"), "fleetcache-history") || u.Query().Get("limit") == "1"
}

func streamed(r testenv.Request) bool { return strings.Contains(r.URI, "sendInitialEvents=true") }

func (b *realBed) Lists(resource string) int {
	return len(slices.DeleteFunc(b.requests(resource),
		func(r testenv.Request) bool { return r.Verb != "list" && (r.Verb != "watch" || !streamed(r)) }))
}

func (b *realBed) Streams() bool {
	streams, err := b.cluster.StreamsLists(b.t.Context())
	require.NoError(b.t, err)
	return streams
}

func (b *realBed) Watches(resource string) int {
	return len(slices.DeleteFunc(b.requests(resource),
		func(r testenv.Request) bool { return r.Verb != "watch" || streamed(r) }))
}

func (b *realBed) Remove() {
	b.mu.Lock()
	b.gone = true
	b.mu.Unlock()
	b.tell()
}

func (b *realBed) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.tells {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Resolve implements clustercache.Resolver.
func (b *realBed) Resolve(_ context.Context, key client.ObjectKey) (resolver.Access, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || key != b.Key() {
		return resolver.Access{}, resolver.ErrClusterNotFound
	}
	return resolver.NewAccess(b.proxy.Redirect(b.user.Config()))
}

// Clusters implements clustercache.Lister.
func (b *realBed) Clusters(context.Context) ([]client.ObjectKey, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil, nil
	}
	return []client.ObjectKey{b.Key()}, nil
}

// Notify implements clustercache.Notifier.
func (b *realBed) Notify(ctx context.Context, changed func(client.ObjectKey)) error {
	news := make(chan struct{}, 1)
	b.mu.Lock()
	b.tells[news] = struct{}{}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.tells, news)
	}()
	for {
		select {
		case <-news:
			changed(b.Key())
		case <-ctx.Done():
			return nil
		}
	}
}
