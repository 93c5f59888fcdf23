// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/rollout/api"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

const (
	manifests = "../../deploy/"
	account   = "system:serviceaccount:fleet-system:rollout"
)

var web = client.ObjectKey{Namespace: "fleet", Name: "web"}

// TestTheManifestsSufficeAndGrantNothingElse applies the manifests to a hub and
// a remote cluster, runs two replicas of the operator as its ServiceAccounts,
// and compares what they requested with the rights that they have.
func TestTheManifestsSufficeAndGrantNothingElse(t *testing.T) {
	clusters := testenv.Start(t, 2, testenv.WithNames("hub", "east"))
	hub, east := clusters[0], clusters[1]
	require.NoError(t, hub.InstallCRDs(t.Context(), append(
		definitions(t, api.CRDs), definitions(t, read(t, "testdata/monitoring-crds.yaml"))...)...))
	for _, name := range []string{"operator.yaml", "monitoring.yaml"} {
		create(t, hub, manifests+name)
	}
	create(t, east, manifests+"remote.yaml")
	require.NoError(t, fleet.Register(t.Context(), hub.Client(), client.ObjectKey{Namespace: "fleet", Name: "east"},
		testenv.Kubeconfig(as(t, east))))
	require.NoError(t, east.Client().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apps"}}))
	store(t, hub, "v1")

	var said lines
	stopFirst := start(t, hub, &said)
	ready := func(version string) func() bool {
		return func() bool { return complete(t, hub, east, version) }
	}
	require.Eventually(t, ready("v1"), time.Minute, 50*time.Millisecond, "by the first")
	stopSecond := start(t, hub, &said)
	stopFirst()
	store(t, hub, "v2")
	require.Eventually(t, ready("v2"), time.Minute, 50*time.Millisecond, "by the second")
	stopSecond()
	require.Empty(t, said.with("forbidden"))

	mayOnly(t, hub, rules(t, "operator.yaml"), []string{
		"list secrets", "list modules.rollout.example.com", "list rollouts.rollout.example.com", // on older servers
		"get rollouts.rollout.example.com", // once the Rollout was declared two seconds ago
		"get secrets",                      // of one that the watch has not shown yet
		"patch events",
	})
	mayOnly(t, east, rules(t, "remote.yaml"), []string{"list configmaps", "list deployments.apps"})
}

// TestTheAccountMayNotDoMore asks the API server, as the ServiceAccount.
func TestTheAccountMayNotDoMore(t *testing.T) {
	hub := testenv.Start(t, 1)[0]
	require.NoError(t, hub.InstallCRDs(t.Context(), append(
		definitions(t, api.CRDs), definitions(t, read(t, "testdata/monitoring-crds.yaml"))...)...))
	create(t, hub, manifests+"operator.yaml")
	config := hub.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: account}
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	for _, ask := range []struct {
		verb, group, resource, subresource, namespace string
		allowed                                       bool
	}{
		{"list", "", "secrets", "", "fleet", true},
		{"watch", "", "secrets", "", "fleet", true},
		{"get", "", "secrets", "", "fleet", true},
		{"watch", api.GroupVersion.Group, "modules", "", "fleet", true},
		{"watch", api.GroupVersion.Group, "rollouts", "", "fleet", true},
		{"get", api.GroupVersion.Group, "rollouts", "", "fleet", true},
		{"patch", api.GroupVersion.Group, "rollouts", "status", "fleet", true},
		{"create", "coordination.k8s.io", "leases", "", "fleet-system", true},
		{"create", "", "secrets", "", "fleet", false},
		{"get", "", "secrets", "", "fleet-system", false},
		{"list", "", "secrets", "", "", false},
		{"update", api.GroupVersion.Group, "rollouts", "", "fleet", false},
		{"delete", api.GroupVersion.Group, "rollouts", "", "fleet", false},
		{"update", "coordination.k8s.io", "leases", "", "fleet-system", false}, // of any name
		{"list", "apps", "deployments", "", "fleet", false},
	} {
		review := &authorizationv1.SelfSubjectAccessReview{}
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb:        ask.verb,
			Group:       ask.group,
			Resource:    ask.resource,
			Subresource: ask.subresource,
			Namespace:   ask.namespace,
		}
		require.Eventually(t, func() bool {
			require.NoError(t, c.Create(t.Context(), review))
			return review.Status.Allowed == ask.allowed
		}, time.Minute, 50*time.Millisecond, "%v", ask)
	}
}

func TestTheAlertsAreThoseOfTheDocumentation(t *testing.T) {
	var documented, deployed struct {
		Groups any `json:"groups"`
	}
	require.NoError(t, yaml.Unmarshal(read(t, "../../../docs/alerts.yaml"), &documented))
	for _, object := range objects(t, read(t, manifests+"monitoring.yaml")) {
		if object.GetKind() == "PrometheusRule" {
			deployed.Groups = object.Object["spec"].(map[string]any)["groups"]
		}
	}
	require.NotNil(t, documented.Groups)
	require.Equal(t, documented, deployed)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}

// objects returns the objects of YAML documents.
func objects(t *testing.T, documents []byte) (all []*unstructured.Unstructured) {
	t.Helper()
	for document := range strings.SplitSeq(string(documents), "\n---\n") {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), &u.Object))
		all = append(all, u)
	}
	return all
}

func definitions(t *testing.T, documents []byte) (all []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	for document := range strings.SplitSeq(string(documents), "\n---\n") {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), crd))
		all = append(all, crd)
	}
	return all
}

// create creates the objects of a file; the server refuses unknown fields.
func create(t *testing.T, c *testenv.Cluster, path string) {
	t.Helper()
	for _, object := range objects(t, read(t, path)) {
		require.NoError(t, c.Client().Create(t.Context(), object, client.FieldValidation("Strict")), "%s", object)
	}
}

// as returns a config for the ServiceAccount of the manifests.
func as(t *testing.T, c *testenv.Cluster) *rest.Config {
	t.Helper()
	token := &authenticationv1.TokenRequest{}
	owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-system", Name: "rollout"}}
	require.NoError(t, c.Client().SubResource("token").Create(t.Context(), owner, token))
	config := rest.AnonymousClientConfig(c.Config())
	config.BearerToken = token.Status.Token
	return config
}

// rollout returns a Rollout for east.
func rollout() *api.Rollout {
	return &api.Rollout{
		TypeMeta:   metav1.TypeMeta{APIVersion: api.GroupVersion.String(), Kind: "Rollout"},
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name},
		Spec:       api.RolloutSpec{Module: "web", Waves: []api.Wave{{Name: "all", Clusters: []string{"east"}}}},
	}
}

// store stores the Rollout, and a version of its Module: a ConfigMap and a
// Deployment without replicas.
func store(t *testing.T, hub *testenv.Cluster, version string) {
	t.Helper()
	module := &api.Module{
		TypeMeta:   metav1.TypeMeta{APIVersion: api.GroupVersion.String(), Kind: "Module"},
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name},
		Spec: api.ModuleSpec{Version: version, Manifests: []runtime.RawExtension{
			{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"apps","name":"web"}}`)},
			{Raw: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"apps","name":"web"},
				"spec":{"replicas":0,"selector":{"matchLabels":{"app":"web"}},"template":{
				"metadata":{"labels":{"app":"web"}},
				"spec":{"containers":[{"name":"web","image":"example.com/web"}]}}}}`)},
		}},
	}
	for _, object := range []client.Object{module, rollout()} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		require.NoError(t, err)
		u := &unstructured.Unstructured{Object: content}
		unstructured.RemoveNestedField(u.Object, "status")
		unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
		require.NoError(t, hub.Client().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u),
			client.FieldOwner("test"), client.ForceOwnership))
	}
}

// complete takes the part of the controller of Deployments in east, and reports
// whether a version is Ready there.
func complete(t *testing.T, hub, east *testenv.Cluster, version string) bool {
	t.Helper()
	deployment := &appsv1.Deployment{}
	err := east.Client().Get(t.Context(), client.ObjectKey{Namespace: "apps", Name: "web"}, deployment)
	if err == nil && deployment.Status.ObservedGeneration < deployment.Generation {
		deployment.Status.ObservedGeneration = deployment.Generation
		err = east.Client().Status().Update(t.Context(), deployment)
	}
	if err != nil {
		require.True(t, apierrors.IsNotFound(err) || apierrors.IsConflict(err), err)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(api.GroupVersion.WithKind("Rollout"))
	require.NoError(t, hub.Client().Get(t.Context(), web, u))
	now := &api.Rollout{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, now))
	return now.Status.Phase == api.Complete && now.Status.Version == version
}

// start runs a replica as the ServiceAccount, until the test ends or stop is
// called.
func start(t *testing.T, hub *testenv.Cluster, said *lines) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, as(t, hub), settings{
			namespace:      "fleet",
			leaseNamespace: "fleet-system",
			metrics:        "0",
			health:         "0",
		}, funcr.New(said.add, funcr.Options{}), func(o *ctrl.Options) {
			// Two replicas in one process have controllers of the same name.
			o.Controller.SkipNameValidation = new(true)
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// rules returns the rules of a file, in all namespaces.
func rules(t *testing.T, name string) (all []rbacv1.PolicyRule) {
	t.Helper()
	for _, object := range objects(t, read(t, manifests+name)) {
		if kind := object.GetKind(); kind == "Role" || kind == "ClusterRole" {
			role := &rbacv1.ClusterRole{}
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role))
			all = append(all, role.Rules...)
		}
	}
	require.NotEmpty(t, all)
	return all
}

// mayOnly checks that each right was used, according to the audit log, apart
// from those that are needed only at other times or on other servers.
func mayOnly(t *testing.T, c *testenv.Cluster, granted []rbacv1.PolicyRule, sometimes []string) {
	t.Helper()
	requests, err := c.Requests(testenv.ByUser(account))
	require.NoError(t, err)
	used := sometimes
	for _, r := range requests {
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		used = append(used, right(r.Verb, r.Group, resource))
		if r.Verb == "patch" && r.Subresource == "" { // of an object that did not exist
			used = append(used, right("create", r.Group, resource))
		}
	}
	for _, rule := range granted {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					require.Contains(t, used, right(verb, group, resource), "granted, and not needed")
				}
			}
		}
	}
}

func right(verb, group, resource string) string {
	return strings.TrimSuffix(verb+" "+resource+"."+group, ".")
}

// lines are the lines of a log.
type lines struct {
	mu  sync.Mutex // protects all
	all []string
}

func (l *lines) add(prefix, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, prefix+" "+args)
}

// with returns the lines that have a part.
func (l *lines) with(part string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for _, line := range l.all {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}

	return found
}
