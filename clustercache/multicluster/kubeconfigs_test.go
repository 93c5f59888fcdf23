// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// kubeconfigSecret is one as multicluster-runtime's kubeconfig provider reads
// it.
func kubeconfigSecret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default",
			Name:      name,
			Labels:    map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"},
		},
		Data: data,
	}
}

func kubeconfig(content []byte) map[string][]byte { return map[string][]byte{"kubeconfig": content} }

// greeter runs a controller in each cluster that is engaged with it. The
// controller writes the cluster's name into the ConfigMaps that ask for it.
type greeter struct {
	controllers sync.WaitGroup

	mu      sync.Mutex
	engaged map[clusterName][]context.Context
}

func (g *greeter) Engage(ctx context.Context, name clusterName, cl cluster.Cluster) error {
	c, err := controller.NewUnmanaged("greeter-"+string(name), controller.Options{
		SkipNameValidation: new(true),
		Reconciler: reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			o := &corev1.ConfigMap{}
			if err := cl.GetClient().Get(ctx, r.NamespacedName, o); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			if o.Labels["greet"] != string(name) || o.Data["hello"] == string(name) {
				return reconcile.Result{}, nil
			}
			o.Data = map[string]string{"hello": string(name)}
			return reconcile.Result{}, cl.GetClient().Update(ctx, o)
		}),
	})
	if err != nil {
		return err
	}
	err = c.Watch(source.Kind(cl.GetCache(), client.Object(&corev1.ConfigMap{}), &handler.EnqueueRequestForObject{}))
	if err != nil {
		return err
	}
	g.controllers.Go(func() { _ = c.Start(ctx) })
	g.mu.Lock()
	defer g.mu.Unlock()
	g.engaged[name] = append(g.engaged[name], ctx)
	return nil
}

// engagements returns how often each cluster was engaged.
func (g *greeter) engagements() map[clusterName]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[clusterName]int{}
	for name, all := range g.engaged {
		out[name] = len(all)
	}
	return out
}

// asks makes a ConfigMap that a cluster's controller has to greet.
func asks(t *testing.T, c *testenv.Cluster, by, name string) {
	t.Helper()
	require.NoError(t, c.Client().Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Labels: map[string]string{"greet": by},
	}}))
}

func greeted(t *testing.T, c *testenv.Cluster, by, name string) {
	t.Helper()
	eventually(t, name+" is greeted by "+by, func() bool {
		o := &corev1.ConfigMap{}
		err := c.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, o)
		return err == nil && o.Data["hello"] == by
	})
}

// TestRealKubeconfigSecretsAreClusters is what the suite of
// multicluster-runtime's kubeconfig provider asks of one, and more, with the
// default graces. Only the end of a deleted Secret's cluster is later:
// TestADeletedSecretEndsItsClusterAfterTheGraces.
func TestRealKubeconfigSecretsAreClusters(t *testing.T) {
	t.Parallel()
	envs := testenv.Start(t, 3, testenv.WithNames("hub", "one", "two"))
	hub, one, two := envs[0], envs[1], envs[2]
	asks(t, one, "east", "existing")
	require.NoError(t, hub.Client().Create(t.Context(), kubeconfigSecret("east", kubeconfig(one.Kubeconfig()))))
	require.NoError(t, hub.Client().Create(t.Context(), kubeconfigSecret("west", kubeconfig(two.Kubeconfig()))))
	access, err := resolver.InHub(hub.Config(), resolver.MulticlusterRuntime,
		resolver.HubOptions{Namespace: "default"})
	require.NoError(t, err)
	cc, err := clustercache.New(clustercache.Options{Resolver: access, Discover: true})
	require.NoError(t, err)
	p := multicluster.NewProvider[clusterName, aware](multicluster.New(cc, multicluster.Options{}),
		multicluster.ProviderOptions{NotFound: errNotFound})
	require.NoError(t, p.IndexField(t.Context(), &corev1.ConfigMap{}, "greet",
		func(o client.Object) []string { return []string{o.GetLabels()["greet"]} }))
	g := &greeter{engaged: map[clusterName][]context.Context{}}
	t.Cleanup(g.controllers.Wait)
	fleettest.Run(t, cc)
	fleettest.Run(t, manager.RunnableFunc(func(ctx context.Context) error { return p.Start(ctx, g) }))

	greeted(t, one, "east", "existing")
	asks(t, two, "west", "new")
	greeted(t, two, "west", "new")
	changed := &corev1.ConfigMap{}
	require.NoError(t, two.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "new"}, changed))
	changed.Data = nil
	require.NoError(t, two.Client().Update(t.Context(), changed))
	greeted(t, two, "west", "new")
	indexed := func(of clusterName, by string) (names []string) {
		cl, err := p.Get(t.Context(), of)
		require.NoError(t, err)
		list := &corev1.ConfigMapList{}
		require.NoError(t, cl.GetCache().List(t.Context(), list, client.MatchingFields{"greet": by}))
		for _, o := range list.Items {
			names = append(names, o.Name)
		}
		return names
	}
	require.Equal(t, []string{"existing"}, indexed("east", "east"))

	// Neither is a cluster, until it has a kubeconfig.
	require.NoError(t, hub.Client().Create(t.Context(), kubeconfigSecret("empty", kubeconfig(nil))))
	require.NoError(t, hub.Client().Create(t.Context(),
		kubeconfigSecret("other", map[string][]byte{"another-key": []byte("x")})))
	for _, name := range []string{"empty", "other"} {
		eventually(t, name+" cannot be used", func() bool {
			s, err := cc.Cluster(client.ObjectKey{Name: name}).Status()
			return err == nil && s.Reason == status.ReasonBadAccess
		})
		_, err := p.Get(t.Context(), clusterName(name))
		require.ErrorIs(t, err, errNotFound)
	}

	// Another annotation changes nothing, and another server takes the place of
	// the one before, in the same engagement.
	secret := &corev1.Secret{}
	update := func(name string, change func()) {
		require.NoError(t, hub.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, secret))
		change()
		require.NoError(t, hub.Client().Update(t.Context(), secret))
	}
	update("west", func() { secret.Annotations = map[string]string{"place": "coast"} })
	asks(t, two, "west", "annotated")
	greeted(t, two, "west", "annotated")
	update("east", func() { secret.Data = kubeconfig(two.Kubeconfig()) })
	asks(t, two, "east", "moved")
	greeted(t, two, "east", "moved")
	require.Equal(t, []string{"moved"}, indexed("east", "east"))
	require.Equal(t, map[clusterName]int{"east": 1, "west": 1}, g.engagements())
}

// TestADeletedSecretEndsItsClusterAfterTheGraces of the resolver and of the
// ClusterCache, or at once without them.
func TestADeletedSecretEndsItsClusterAfterTheGraces(t *testing.T) {
	for _, tc := range []struct{ hub, cache, after time.Duration }{
		{0, 0, 40 * time.Second},
		{-1, 0, 30 * time.Second},
		{0, -1, 10 * time.Second},
		{-1, -1, 0},
	} {
		t.Run(fmt.Sprintf("graces %v and %v", tc.hub, tc.cache), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				secret := kubeconfigSecret("east", nil)
				hub := fake.NewClientBuilder().WithObjects(secret.DeepCopy()).Build()
				d := newDirectory()
				access, err := resolver.Secrets(hub, resolver.SecretOptions{
					HubOptions: resolver.HubOptions{Namespace: "default", Grace: tc.hub},
					ID:         func(s *corev1.Secret) (resolver.Cluster, bool) { return key(s.Name), true },
					Decode: func(c resolver.Cluster, _ *corev1.Secret) (resolver.Access, error) {
						return d.Resolve(context.Background(), c)
					},
				})
				require.NoError(t, err)
				f := newFleet(t, multicluster.Options{}, func(o *clustercache.Options) {
					o.Resolver, o.Grace = access, tc.cache
				})
				f.d = d
				f.add("east")
				p := newProvider(f, multicluster.ProviderOptions{})
				to, made := calls()
				engage(t, p, to)
				engaged := next(t, made)
				time.Sleep(time.Minute)
				require.NoError(t, engaged.ctx.Err())

				require.NoError(t, hub.Delete(t.Context(), secret))
				deleted := time.Now()
				next(t, engaged.ctx.Done())
				require.InDelta(t, tc.after.Seconds(), time.Since(deleted).Seconds(), 1)
				_, err = p.Get(t.Context(), engaged.name)
				require.ErrorIs(t, err, errNotFound)
			})
		})
	}
}
