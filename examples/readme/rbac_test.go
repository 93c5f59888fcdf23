// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

// rules returns the rules of the README: for the hub, and for a remote cluster.
func rules(t *testing.T) (hub, remote []rbacv1.PolicyRule) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	require.Len(t, blocks, 2)
	require.NoError(t, yaml.UnmarshalStrict([]byte(blocks[0][1]), &hub))
	require.NoError(t, yaml.UnmarshalStrict([]byte(blocks[1][1]), &remote))
	return hub, remote
}

// without returns, for each verb of the rules, the rules without that verb.
func without(rules []rbacv1.PolicyRule) map[string][]rbacv1.PolicyRule {
	all := map[string][]rbacv1.PolicyRule{}
	for i, rule := range rules {
		for j, verb := range rule.Verbs {
			less := append([]rbacv1.PolicyRule(nil), rules...)
			less[i].Verbs = append(append([]string(nil), rule.Verbs[:j]...), rule.Verbs[j+1:]...)
			if len(less[i].Verbs) == 0 {
				less = append(append([]rbacv1.PolicyRule(nil), rules[:i]...), rules[i+1:]...)
			}
			all[verb+" "+rule.Resources[0]] = less
		}
	}
	return all
}

// TestTheRulesOfTheReadmeAreEnoughAndMinimal runs the README's program with
// them, and a ClusterCache with one verb less each time.
func TestTheRulesOfTheReadmeAreEnoughAndMinimal(t *testing.T) {
	clusters := testenv.Start(t, 2, testenv.WithNames("hub", "east"))
	hub, east := clusters[0], clusters[1]
	inHub, inRemote := rules(t)
	operator, err := hub.AddUser(t.Context(), "operator", inHub...)
	require.NoError(t, err)
	reader, err := east.AddUser(t.Context(), "reader", inRemote...)
	require.NoError(t, err)
	key := client.ObjectKey{Namespace: "default", Name: "east"}
	require.NoError(t, hub.Client().Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east-kubeconfig",
			Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "east"}},
		Data: map[string][]byte{"value": reader.Kubeconfig()},
	}))
	require.NoError(t, east.Client().Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "colors"}}))

	t.Run("enough", func(t *testing.T) {
		var said lines
		stop := start(t, operator.Config(), &said, setup)
		eventually(t, func() bool { return said.has("Seen", "colors") })
		require.False(t, said.has("forbidden"), said.all)
		stop()
	})
	for missing, less := range without(inHub) {
		t.Run("hub without "+missing, func(t *testing.T) {
			require.NoError(t, operator.Grant(t.Context(), less...))
			eventually(t, func() bool { return hubRefuses(t, operator.Config(), key) })
		})
	}
	require.NoError(t, operator.Grant(t.Context(), inHub...))
	for missing, less := range without(inRemote) {
		t.Run("remote without "+missing, func(t *testing.T) {
			require.NoError(t, reader.Grant(t.Context(), less...))
			var cc *clustercache.ClusterCache
			stop := start(t, operator.Config(), &lines{}, func(mgr ctrl.Manager) (err error) {
				// On a server that streams lists, the right to list is not
				// needed. On older ones it is.
				cc, err = cacheWithWatch(t, mgr, key, strings.HasPrefix(missing, "list"))
				return err
			})
			eventually(t, func() bool { s, err := cc.Cluster(key).Status(); return err == nil && s.Connected })
			eventually(t, func() bool { return remoteRefuses(cc, key) })
			stop()
			require.NoError(t, reader.Grant(t.Context(), inRemote...))
		})
	}
}

// hubRefuses reports whether an operation that a resolver needs is forbidden.
func hubRefuses(t *testing.T, config *rest.Config, key client.ObjectKey) bool {
	t.Helper()
	var said lines
	clusters, err := resolver.InHub(config, resolver.ClusterAPI,
		resolver.HubOptions{Logger: funcr.New(said.add, funcr.Options{})})
	require.NoError(t, err)
	_, resolve := clusters.Resolve(t.Context(), key)
	_, list := clusters.Clusters(t.Context())
	if apierrors.IsForbidden(resolve) || apierrors.IsForbidden(list) {
		return true
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_ = clusters.Notify(ctx, func(client.ObjectKey) {})
	return said.has("forbidden")
}

// remoteRefuses reports whether the cluster cannot be identified, or an
// operation on it is forbidden.
func remoteRefuses(cc *clustercache.ClusterCache, key client.ObjectKey) bool {
	s, err := cc.Cluster(key).Status()
	if err == nil && s.Connected && strings.HasPrefix(s.UID, "presumed-") {
		return true
	}
	w := httptest.NewRecorder()
	cc.DebugHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?cluster="+key.String(), nil))
	return strings.Contains(w.Body.String(), "forbidden")
}

// cacheWithWatch sets up what the program does, and returns the ClusterCache.
func cacheWithWatch(t *testing.T, mgr ctrl.Manager, key client.ObjectKey,
	paged bool) (*clustercache.ClusterCache, error) {
	t.Helper()
	clusters, err := resolver.InHub(mgr.GetConfig(), resolver.ClusterAPI, resolver.HubOptions{})
	require.NoError(t, err)
	cc, err := clustercache.SetupWithManager(mgr, clustercache.Options{
		Resolver: clusters, Discover: true, Informers: informerpool.Options{PagedLists: paged},
	})
	require.NoError(t, err)
	_, err = cc.Cluster(key).Watch(t.Context(), &corev1.ConfigMap{})
	return cc, err
}

// start runs a program's setup in a manager, until the test ends or stop is
// called.
func start(t *testing.T, hub *rest.Config, said *lines, setup func(ctrl.Manager) error) (stop func()) {
	t.Helper()
	mgr, err := ctrl.NewManager(hub, ctrl.Options{
		Logger: funcr.New(said.add, funcr.Options{Verbosity: 1}), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(t, err)
	require.NoError(t, setup(mgr))
	return fleettest.Run(t, mgr)
}

// lines are the log's lines.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(prefix, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, prefix+" "+args)
}

// has reports whether a line contains all parts.
func (l *lines) has(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all, func(line string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
	})
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 50*time.Millisecond)
}
