// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package migrating_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/examples/migrating"
	"github.com/fleetcache/fleetcache/examples/migrating/mc"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestMain does not expect that controller-runtime's watch of metadata ends: its
// filter waits for ever to pass on an event that came as the cache stopped.
func TestMain(m *testing.M) {
	testenv.Main(m, testenv.VerifyNoLeaks(
		goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop")))
}

// TestMigrating runs each form of docs/migrating.md on a hub and a remote
// cluster.
func TestMigrating(t *testing.T) {
	clusters := testenv.Start(t, 2, testenv.WithNames("hub", "east"))
	hub, east := clusters[0], clusters[1]
	t.Run("one cluster", func(t *testing.T) { testOneCluster(t, hub, east) })
	t.Run("Cluster API", func(t *testing.T) { testClusterAPI(t, hub, east) })
	t.Run("multicluster-runtime", func(t *testing.T) { testMulticlusterRuntime(t, hub, east) })
	t.Run("by hand", func(t *testing.T) { testByHand(t, hub, east) })
	t.Run("dynamic informers", func(t *testing.T) { testDynamicInformers(t, east) })
	t.Run("raw watches", func(t *testing.T) { testRawWatches(t, hub, east) })
	t.Run("restarting", func(t *testing.T) { testRestarting(t, hub, east) })
}

// testOneCluster runs the controller of one cluster and that of all of them,
// one after the other, in the same cluster.
func testOneCluster(t *testing.T, hub, east *testenv.Cluster) {
	clusters, err := resolver.Static(map[client.ObjectKey]*rest.Config{{Name: "east"}: east.Config()})
	require.NoError(t, err)
	for form, run := range map[string]func(*testing.T){
		"before": func(t *testing.T) { runManager(t, east, migrating.OneCluster) },
		"after": func(t *testing.T) {
			runManager(t, hub, func(mgr ctrl.Manager) error { return migrating.EveryCluster(mgr, clusters) })
		},
	} {
		t.Run(form, func(t *testing.T) {
			run(t)
			testRenderer(t, east.Client(), form)
		})
	}
}

// testRenderer checks each part of the controller by what it leaves in a
// namespace.
func testRenderer(t *testing.T, c client.Client, namespace string) {
	ctx := t.Context()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	settings := &corev1.ConfigMap{ObjectMeta: meta("settings"), Data: map[string]string{"data": "1"}}
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "user"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "user", Image: "user"}}},
	}
	user := &appsv1.Deployment{
		ObjectMeta: meta("user"),
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: pod,
		},
	}
	user.Annotations = map[string]string{migrating.SettingsAnnotation: settings.Name}
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, user, settings,
	} {
		require.NoError(t, c.Create(ctx, obj))
	}
	rendered := &corev1.ConfigMap{ObjectMeta: meta("user")}
	has := func(data string) func() bool {
		return func() bool {
			return c.Get(ctx, client.ObjectKeyFromObject(rendered), rendered) == nil && rendered.Data["data"] == data
		}
	}
	eventually(t, has("1")) // by the handler of settings and the index: they came last
	require.NoError(t, c.Delete(ctx, rendered))
	eventually(t, has("1")) // by its owner
	settings.Data["data"] = "2"
	require.NoError(t, c.Update(ctx, settings))
	eventually(t, has("2")) // by the handler of settings
	renders := func(key, want string) func() bool {
		return func() bool { return has("2")() && rendered.Data[key] == want }
	}
	stage := &corev1.Namespace{}
	require.NoError(t, c.Get(ctx, client.ObjectKey{Name: namespace}, stage))
	stage.Labels[migrating.StageLabel] = "test"
	require.NoError(t, c.Update(ctx, stage))
	eventually(t, renders("stage", "test")) // by the metadata of its namespace
	service := &corev1.Service{
		ObjectMeta: meta("user"),
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	require.NoError(t, c.Create(ctx, service))
	eventually(t, renders("address", service.Spec.ClusterIP)) // by the typed handler of services
	eventually(t, func() bool {
		recorded := &eventsv1.EventList{}
		return c.List(ctx, recorded, client.InNamespace(namespace)) == nil && len(recorded.Items) > 0 &&
			recorded.Items[0].Reason == "Rendered"
	})
	require.NoError(t, c.Delete(ctx, user))
	eventually(t, func() bool { // by its finalizer
		return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(user), user))
	})
}

func testClusterAPI(t *testing.T, hub, east *testenv.Cluster) {
	key := client.ObjectKey{Namespace: "default", Name: "east"}
	require.NoError(t, hub.Client().Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name + "-kubeconfig",
			Labels: map[string]string{"cluster.x-k8s.io/cluster-name": key.Name},
		},
		Data: map[string][]byte{"value": east.Kubeconfig()},
	}))
	var cc *clustercache.ClusterCache
	runManager(t, hub, func(mgr ctrl.Manager) (err error) {
		if cc, err = migrating.ClustersOfClusterAPI(mgr, nil); err != nil {
			return err
		}
		return (&migrating.NodeCounter{Hub: mgr.GetClient(), Clusters: cc}).SetupWithManager(mgr)
	})
	nodes := func(n string) func() bool {
		return func() bool {
			count := &corev1.ConfigMap{}
			return hub.Client().Get(t.Context(), key, count) == nil && count.Data["nodes"] == n
		}
	}
	eventually(t, nodes("0"))
	require.NoError(t, east.Client().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}))
	eventually(t, nodes("1"))

	access, err := migrating.AccessTo(cc, key)
	require.NoError(t, err)
	require.Equal(t, status.PhaseReady, access.Status.Phase)
	own, err := client.New(access.Config, client.Options{})
	require.NoError(t, err)
	for _, reader := range []client.Reader{access.Client, access.Live, access.Reader, own} {
		require.NoError(t, reader.Get(t.Context(), client.ObjectKey{Name: "worker"}, &corev1.Node{}))
	}

	require.NoError(t, east.Restart(t.Context()))
	require.NoError(t, east.Client().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "another"}}))
	eventually(t, nodes("2"))
}

// aware engages clusters as multicluster-runtime's manager does.
type aware func(ctx context.Context, name mc.ClusterName, cl cluster.Cluster) error

func (a aware) Engage(ctx context.Context, name mc.ClusterName, cl cluster.Cluster) error {
	return a(ctx, name, cl)
}

func testMulticlusterRuntime(t *testing.T, hub, east *testenv.Cluster) {
	require.NoError(t, hub.Client().Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "east",
			Labels: map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"},
		},
		Data: map[string][]byte{"kubeconfig": east.Kubeconfig()},
	}))
	create(t, east, "engaged")
	cc, provider, err := migrating.NewProvider(hub.Config(), "default")
	require.NoError(t, err)
	runManager(t, hub, func(mgr ctrl.Manager) error { return mgr.Add(cc) })
	type engagement struct {
		name mc.ClusterName
		cl   cluster.Cluster
	}
	engaged := make(chan engagement, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- provider.Start(ctx, aware(func(_ context.Context, name mc.ClusterName, cl cluster.Cluster) error {
			engaged <- engagement{name, cl}
			return nil
		}))
	}()
	first := <-engaged
	require.EqualValues(t, "east", first.name)
	eventually(t, func() bool {
		return first.cl.GetClient().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "engaged"},
			&corev1.ConfigMap{}) == nil
	})
	_, err = provider.Get(t.Context(), "nobody")
	require.ErrorIs(t, err, mc.ErrClusterNotFound)
	cancel()
	require.NoError(t, <-done)
}

func testByHand(t *testing.T, hub, east *testenv.Cluster) {
	for form, setup := range map[string]func(ctrl.Manager, migrating.Seen) error{
		"before": func(mgr ctrl.Manager, seen migrating.Seen) error {
			return migrating.HandMade(mgr, map[string]*rest.Config{"east": east.Config()}, seen)
		},
		"after": func(mgr ctrl.Manager, seen migrating.Seen) error {
			return migrating.Shared(mgr, map[client.ObjectKey]*rest.Config{{Name: "east"}: east.Config()}, seen)
		},
	} {
		t.Run(form, func(t *testing.T) {
			var seen names
			runManager(t, hub, func(mgr ctrl.Manager) error {
				return setup(mgr, func(cluster string, configMap *corev1.ConfigMap) {
					seen.add(cluster + "/" + configMap.Name)
				})
			})
			create(t, east, form)
			eventually(t, func() bool { return seen.has("east/" + form) })
		})
	}
}

func testDynamicInformers(t *testing.T, east *testenv.Cluster) {
	dyn, err := dynamic.NewForConfig(east.Config())
	require.NoError(t, err)
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	var cc *clustercache.ClusterCache
	runManager(t, east, func(mgr ctrl.Manager) error {
		access, err := resolver.Static(map[client.ObjectKey]*rest.Config{{}: east.Config()})
		if err == nil {
			cc, err = clustercache.SetupWithManager(mgr, clustercache.Options{Resolver: access})
		}
		return err
	})
	for form, tell := range map[string]func(context.Context, cache.ResourceEventHandler) error{
		"factory": func(ctx context.Context, h cache.ResourceEventHandler) error {
			return migrating.Factory(ctx, dyn, configMaps, h)
		},
		"pooled": func(ctx context.Context, h cache.ResourceEventHandler) error {
			return migrating.Pooled(ctx, dyn, configMaps, h)
		},
		"watched": func(ctx context.Context, h cache.ResourceEventHandler) error {
			return migrating.Watched(ctx, cc, client.ObjectKey{}, corev1.SchemeGroupVersion.WithKind("ConfigMap"), h)
		},
	} {
		t.Run(form, func(t *testing.T) {
			var seen names
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- tell(ctx, cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
					seen.add(o.(client.Object).GetName())
				}})
			}()
			create(t, east, form)
			eventually(t, func() bool { return seen.has(form) })
			cancel()
			require.NoError(t, <-done)
		})
	}
}

// testRawWatches: a copy in the remote cluster requests its original, before
// and after.
func testRawWatches(t *testing.T, hub, east *testenv.Cluster) {
	for form, setup := range map[string]func(ctrl.Manager, reconcile.Reconciler) error{
		"before": func(mgr ctrl.Manager, r reconcile.Reconciler) error {
			remote, err := client.NewWithWatch(east.Config(), client.Options{})
			if err != nil {
				return err
			}
			events := make(chan event.GenericEvent)
			err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
				migrating.RawWatch(ctx, remote, events)
				return nil
			}))
			return errors.Join(err, migrating.WithRawWatches(mgr, events, r))
		},
		"after": func(mgr ctrl.Manager, r reconcile.Reconciler) error {
			access, err := resolver.Static(map[client.ObjectKey]*rest.Config{{Name: "east"}: east.Config()})
			if err != nil {
				return err
			}
			cc, err := clustercache.SetupWithManager(mgr, clustercache.Options{Resolver: access, Discover: true})
			return errors.Join(err, migrating.WithSource(mgr, cc, r))
		},
	} {
		t.Run(form, func(t *testing.T) {
			var seen names
			runManager(t, hub, func(mgr ctrl.Manager) error {
				return setup(mgr, reconcile.Func(func(_ context.Context, r ctrl.Request) (ctrl.Result, error) {
					seen.add(r.Name)
					return ctrl.Result{}, nil
				}))
			})
			require.NoError(t, east.Client().Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default",
				Name:      "copied-" + form,
				Labels: map[string]string{
					migrating.OriginLabel:          "original-" + form,
					migrating.OriginNamespaceLabel: "default",
				},
			}}))
			eventually(t, func() bool { return seen.has("original-" + form) })
		})
	}
}

// testRestarting: where the operator restarted when a Secret came, the cluster
// is simply there.
func testRestarting(t *testing.T, hub, east *testenv.Cluster) {
	require.NoError(t, hub.Client().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "remotes"}}))
	add := func(name string) client.ObjectKey {
		key := client.ObjectKey{Namespace: "remotes", Name: name}
		require.NoError(t, hub.Client().Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace,
				Name:      key.Name,
				Labels:    map[string]string{"example.com/remote": "true"},
			},
			Data: map[string][]byte{"kubeconfig": east.Kubeconfig()},
		}))
		return key
	}
	add("east")
	restarted := make(chan struct{})
	runManager(t, hub, func(mgr ctrl.Manager) error {
		seen := func(string, *corev1.ConfigMap) {}
		return migrating.Restarting(t.Context(), mgr, "remotes", seen, sync.OnceFunc(func() { close(restarted) }))
	})
	var cc *clustercache.ClusterCache
	runManager(t, hub, func(mgr ctrl.Manager) (err error) {
		cc, err = migrating.Following(mgr, "remotes")
		return err
	})

	key := add("west")
	select {
	case <-restarted:
	case <-time.After(time.Minute):
		require.Fail(t, "the operator does not restart")
	}
	eventually(t, func() bool {
		s, err := cc.Cluster(key).Status()
		return err == nil && s.Phase == status.PhaseReady
	})
}

// names is a set that handlers fill.
type names struct {
	mu  sync.Mutex
	all map[string]bool
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string]bool{}
	}
	n.all[name] = true
}

func (n *names) has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[name]
}

func create(t *testing.T, c *testenv.Cluster, name string) {
	t.Helper()
	require.NoError(t, c.Client().Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}))
}

func runManager(t *testing.T, hub *testenv.Cluster, setup func(ctrl.Manager) error) {
	t.Helper()
	mgr, err := ctrl.NewManager(hub.Config(), ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(t, err)
	require.NoError(t, setup(mgr))
	fleettest.Run(t, mgr)
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 2*time.Minute, 50*time.Millisecond)
}
