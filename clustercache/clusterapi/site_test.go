// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleetcache/fleetcache/clustercache/clusterapi"
	"github.com/fleetcache/fleetcache/clustercache/clusterapi/clusterapitest"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// implementation is one of the two that the behaviors are tested of.
type implementation struct {
	name string
	// namespace limits the Secrets, if it is not empty.
	setup func(t testing.TB, mgr manager.Manager, namespace string, o capi.Options) capi.ClusterCache
}

// Names of controllers are unique in a process unless that is switched off.
var controllerOptions = controller.Options{SkipNameValidation: new(true)}

var implementations = []implementation{{"theirs", setupTheirs}, {"ours", setupOurs}}

// logged returns a context whose logger is the manager's.
func logged(t testing.TB, mgr manager.Manager) context.Context {
	t.Helper()
	return ctrl.LoggerInto(t.Context(), mgr.GetLogger())
}

func setupTheirs(t testing.TB, mgr manager.Manager, _ string, o capi.Options) capi.ClusterCache {
	cc, err := capi.SetupWithManager(logged(t, mgr), mgr, o, controllerOptions)
	require.NoError(t, err)
	tests, ok := cc.(interface {
		SetConnectionCreationRetryInterval(time.Duration)
		Shutdown()
	})
	require.True(t, ok)
	tests.SetConnectionCreationRetryInterval(2 * time.Second)
	t.Cleanup(tests.Shutdown)
	return cc
}

func setupOurs(t testing.TB, mgr manager.Manager, namespace string, o capi.Options) capi.ClusterCache {
	cc, err := clusterapitest.SetupWithManager(logged(t, mgr), mgr, o, controllerOptions, func(s *clusterapi.Settings) {
		s.Secrets.Namespace, s.StartIndexed = namespace, true
		s.Secrets.Grace, s.Fleet.Grace = time.Second, time.Second
	})
	require.NoError(t, err)
	return cc
}

// site is the environment of one behavior: one implementation in a manager of
// its own, which sees one namespace of the hub.
type site struct {
	capi.ClusterCache

	hub, remote *testenv.Cluster
	mgr         manager.Manager
	log         *fleettest.Logbook
	client      client.Client // of the hub
	namespace   string
}

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, clusterv1.AddToScheme(scheme))
	return scheme
}

// newSite sets the implementation up, and does not start the manager.
func newSite(
	t testing.TB, envs []*testenv.Cluster, namespace string, i implementation, o capi.Options, limited bool,
) *site {
	t.Helper()
	scheme := newScheme(t)
	s := &site{hub: envs[0], remote: envs[1], namespace: namespace, log: &fleettest.Logbook{}}
	var err error
	s.client, err = client.New(s.hub.Config(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	for _, c := range envs {
		require.NoError(t, c.Client().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	}
	config, secrets := s.hub.Config(), namespace
	if limited {
		config, secrets = s.limited(t), ""
	}
	s.mgr, err = ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Logger:  s.log.Logger(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	})
	require.NoError(t, err)
	o.SecretClient = s.client
	o.Client.UserAgent = namespace
	s.ClusterCache = i.setup(t, s.mgr, secrets, o)

	return s
}

// limited returns a configuration for the hub with rights in the site's
// namespace alone.
func (s *site) limited(t testing.TB) *rest.Config {
	t.Helper()
	account, err := s.hub.AddServiceAccount(t.Context(), s.namespace, "manager")
	require.NoError(t, err)
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: "manager"}
	require.NoError(t, s.client.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"*"},
		Resources: []string{"*"},
		Verbs:     []string{"*"},
	}}}))
	require.NoError(t, s.client.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: meta.Name},
		},
	}))
	return account.Config()
}

// start runs the manager until the test ends.
func (s *site) start(t testing.TB) {
	t.Helper()
	fleettest.Run(t, s.mgr)
}

func (s *site) key() client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: "east"}
}

// cluster creates the Cluster object, with provisioned infrastructure or
// without.
func (s *site) cluster(t testing.TB, provisioned bool) *clusterv1.Cluster {
	t.Helper()
	return s.clusterOf(t, "east", provisioned)
}

func (s *site) clusterOf(t testing.TB, name string, provisioned bool) *clusterv1.Cluster {
	t.Helper()
	object := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace,
		Name:      name,
		Labels:    map[string]string{"stage": "test"},
	}}
	require.NoError(t, s.client.Create(t.Context(), object))
	if provisioned {
		s.provision(t, object)
	}
	return object
}

func (s *site) provision(t testing.TB, object *clusterv1.Cluster) {
	t.Helper()
	object.Status.Initialization.InfrastructureProvisioned = new(true)
	require.NoError(t, s.client.Status().Update(t.Context(), object))
}

// secret creates or updates the kubeconfig Secret.
func (s *site) secret(t testing.TB, kubeconfig []byte) {
	t.Helper()
	s.secretOf(t, "east", kubeconfig)
}

func (s *site) secretOf(t testing.TB, name string, kubeconfig []byte) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace,
			Name:      name + "-kubeconfig",
			Labels:    map[string]string{clusterv1.ClusterNameLabel: name},
		},
		Data: map[string][]byte{"value": kubeconfig},
		Type: clusterv1.ClusterSecretType,
	}
	if err := s.client.Create(t.Context(), secret); err != nil {
		require.NoError(t, s.client.Update(t.Context(), secret))
	}
}

// within is longer than anything takes that has to happen: Cluster API gives a
// cluster up after 75 s.
const within = 2 * time.Minute

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, within, 20*time.Millisecond, what)
}

func (s *site) connected(t testing.TB) client.Client {
	t.Helper()
	var c client.Client
	eventually(t, "connected", func() bool {
		var err error
		c, err = s.GetClient(t.Context(), s.key())
		return err == nil
	})
	return c
}

func (s *site) state(t testing.TB) capi.HealthCheckingState {
	return s.GetHealthCheckingState(t.Context(), s.key())
}

// requireNotConnected requires the error of every getter.
func (s *site) requireNotConnected(t testing.TB) {
	t.Helper()
	_, err := s.GetClient(t.Context(), s.key())
	require.ErrorIs(t, err, capi.ErrClusterNotConnected)
	_, err = s.GetReader(t.Context(), s.key())
	require.ErrorIs(t, err, capi.ErrClusterNotConnected)
	_, err = s.GetUncachedClient(t.Context(), s.key())
	require.ErrorIs(t, err, capi.ErrClusterNotConnected)
	_, err = s.GetRESTConfig(t.Context(), s.key())
	require.ErrorIs(t, err, capi.ErrClusterNotConnected)
	err = s.Watch(t.Context(), s.key(), capi.NewWatcher(capi.WatcherOptions{Name: "w", Kind: &corev1.Node{}}))
	require.ErrorIs(t, err, capi.ErrClusterNotConnected)
}

// clusterDefinition is Cluster API's kind without its schema.
func clusterDefinition() *apiextensionsv1.CustomResourceDefinition {
	crd := testenv.SimpleCRD(clusterv1.GroupVersion.Group, "Cluster")
	crd.Spec.Versions[0].Name = clusterv1.GroupVersion.Version
	return crd
}
