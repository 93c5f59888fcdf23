// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// apply applies a file of examples/deploy/sharded to a cluster, and returns its
// objects as they are stored.
func apply(t *testing.T, c *testenv.Cluster, file string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../deploy/sharded", file))
	require.NoError(t, err)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var all []*unstructured.Unstructured
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		require.NoError(t, c.Client().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o),
			client.FieldOwner("deploy")))
		stored := &unstructured.Unstructured{}
		stored.SetGroupVersionKind(o.GroupVersionKind())
		require.NoError(t, c.Client().Get(t.Context(), client.ObjectKeyFromObject(o), stored))
		all = append(all, stored)
	}
}

// right is a verb on a resource.
type right struct{ group, resource, subresource, verb, namespace, name string }

// may reports whether the user of a config has a right, as the API server sees
// it.
func may(t *testing.T, config *rest.Config, r right) bool {
	t.Helper()
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	review := &authorizationv1.SelfSubjectAccessReview{}
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace:   r.namespace,
		Verb:        r.verb,
		Group:       r.group,
		Resource:    r.resource,
		Subresource: r.subresource,
		Name:        r.name,
	}
	require.NoError(t, c.Create(t.Context(), review))
	return review.Status.Allowed
}

func verbs(r right, verbs ...string) []right {
	var all []right
	for _, verb := range verbs {
		r.verb = verb
		all = append(all, r)
	}
	return all
}

// TestDeploymentGrantsWhatAReplicaNeeds applies the files to real API servers,
// asks them for each right, and runs a replica with the tokens of the
// ServiceAccounts.
func TestDeploymentGrantsWhatAReplicaNeeds(t *testing.T) {
	clusters := testenv.Start(t, 2, testenv.WithNames("hub", "berlin"),
		testenv.WithCRDs(testenv.SimpleCRD(widgetKind.Group, widgetKind.Kind)))
	hub, remote := clusters[0], clusters[1]
	set, budget := &appsv1.StatefulSet{}, &policyv1.PodDisruptionBudget{}
	for _, o := range append(apply(t, hub, "hub.yaml"), apply(t, remote, "remote.yaml")...) {
		convert := runtime.DefaultUnstructuredConverter.FromUnstructured
		switch o.GetKind() {
		case "StatefulSet":
			require.NoError(t, convert(o.Object, set))
		case "PodDisruptionBudget":
			require.NoError(t, convert(o.Object, budget))
		}
	}
	checkUpdates(t, set, budget)
	inHub, err := hub.AddServiceAccount(t.Context(), hubNamespace, "stamper")
	require.NoError(t, err)
	inRemote, err := remote.AddServiceAccount(t.Context(), "fleetcache", "stamper")
	require.NoError(t, err)

	lease := right{group: "coordination.k8s.io", resource: "leases", namespace: hubNamespace}
	secret := right{resource: "secrets", namespace: hubNamespace}
	for _, r := range append(verbs(lease, "list", "watch", "create", "update", "patch", "delete"),
		verbs(secret, "get", "list", "watch")...) {
		eventually(t, func() bool { return may(t, inHub.Config(), r) }, r)
	}
	lease.namespace, secret.namespace = "default", "default"
	for _, r := range append(verbs(lease, "list", "create", "delete"), verbs(secret, "get", "list")...) {
		require.False(t, may(t, inHub.Config(), r), "%+v", r)
	}
	secret.namespace = hubNamespace
	for _, r := range verbs(secret, "create", "update", "patch", "delete") {
		require.False(t, may(t, inHub.Config(), r), "%+v", r)
	}
	checkRemoteRights(t, inRemote.Config())

	stampAsDeployed(t, set, hub, inHub, remote, inRemote)
}

// checkUpdates requires that a rolling update, and a drain of nodes, go on once
// the last replica is ready, and that the budget counts the Pods of the set.
func checkUpdates(t *testing.T, set *appsv1.StatefulSet, budget *policyv1.PodDisruptionBudget) {
	t.Helper()
	require.Equal(t, appsv1.RollingUpdateStatefulSetStrategyType, set.Spec.UpdateStrategy.Type)
	require.Positive(t, set.Spec.MinReadySeconds)
	require.EqualValues(t, 1, set.Spec.Template.Spec.Containers[0].ReadinessProbe.FailureThreshold)
	require.Equal(t, intstr.FromInt32(1), *budget.Spec.MaxUnavailable)
	require.Nil(t, budget.Spec.UnhealthyPodEvictionPolicy)
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	require.NoError(t, err)
	require.True(t, selector.Matches(labels.Set(set.Spec.Template.Labels)))
}

// probe returns the answer to a probe of a Pod, whose port is at address.
func probe(t *testing.T, p *corev1.Probe, address string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+p.HTTPGet.Path+"?verbose", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil { // it does not listen yet
		return 0, err.Error()
	}
	defer func() { require.NoError(t, response.Body.Close()) }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

// serving returns the arguments of a container with an address of this machine
// in place of its port for probes, and that address.
func serving(t *testing.T, c corev1.Container) (args []string, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address = listener.Addr().String()
	require.NoError(t, listener.Close())
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		require.Equal(t, c.Ports[0].Name, p.HTTPGet.Port.StrVal)
	}
	port := fmt.Sprintf("-probes=:%d", c.Ports[0].ContainerPort)
	require.Contains(t, c.Args, port)
	for _, arg := range c.Args {
		args = append(args, strings.Replace(arg, port, "-probes="+address, 1))
	}
	return args, address
}

func eventually(t *testing.T, condition func() bool, what any) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 100*time.Millisecond, "%+v", what)
}

func checkRemoteRights(t *testing.T, config *rest.Config) {
	t.Helper()
	widgets := right{group: widgetKind.Group, resource: "widgets"}
	status := right{group: widgetKind.Group, resource: "widgets", subresource: "status"}
	identity := right{resource: "namespaces", name: "kube-system"}
	definition := right{group: "apiextensions.k8s.io", resource: "customresourcedefinitions"}
	definition.name = "widgets." + widgetKind.Group
	for _, r := range slices.Concat(verbs(widgets, "list", "watch"), verbs(status, "update"),
		verbs(identity, "get"), verbs(definition, "list")) {
		eventually(t, func() bool { return may(t, config, r) }, r)
	}
	identity.name, definition.name = "default", ""
	for _, r := range slices.Concat(verbs(widgets, "get", "create", "update", "patch", "delete"),
		verbs(status, "patch"), verbs(identity, "get"), verbs(definition, "list")) {
		require.False(t, may(t, config, r), "%+v", r)
	}
}

// stampAsDeployed runs a replica until it has stamped a widget and is ready, and
// has it end.
func stampAsDeployed(
	t *testing.T, set *appsv1.StatefulSet, hub *testenv.Cluster, inHub *testenv.ServiceAccount, remote *testenv.Cluster,
	inRemote *testenv.ServiceAccount,
) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, fleet.Create(ctx, remote.Client(), widgetNamespace, newWidget("door")))
	key := client.ObjectKey{Namespace: hubNamespace, Name: remote.Name()}
	require.NoError(t, fleet.Register(ctx, hub.Client(), key, inRemote.Kubeconfig()))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, inHub.Kubeconfig(), 0o600))
	t.Setenv(asProgram, "1")
	container := set.Spec.Template.Spec.Containers[0]
	args, address := serving(t, container)
	p, err := startProcess(identity{"stamper-0", hubNamespace}, path, func(report) {}, args...)
	require.NoError(t, err)
	defer p.kill()

	w := &world{Fleet: fleet.Of(hub, remote)}
	eventually(t, func() bool { return stampedBy(ctx, w, "stamper-0") == nil }, "stamped")
	var body string
	eventually(t, func() bool {
		var status int
		status, body = probe(t, container.ReadinessProbe, address)
		return status == http.StatusOK
	}, "ready")
	require.Contains(t, body, "[+]fleetcache-sharding ok")
	status, body := probe(t, container.LivenessProbe, address)
	require.Equal(t, http.StatusOK, status, body)
	require.NoError(t, p.signal(syscall.SIGTERM))
	require.NoError(t, p.wait())

	// It has left: its own Lease is gone, and those of the slots are free.
	var leases coordinationv1.LeaseList
	require.NoError(t, hub.Client().List(ctx, &leases, client.InNamespace(hubNamespace)))
	require.Len(t, leases.Items, 1+slots)
	for _, l := range leases.Items {
		if l.Spec.HolderIdentity != nil {
			require.Empty(t, *l.Spec.HolderIdentity, l.Name)
		}
	}
}

// stampedBy returns an error unless every widget that exists has its stamp, by
// the replica.
func stampedBy(ctx context.Context, w *world, replica string) error {
	if err := w.stamped(ctx); err != nil {
		return err
	}
	door := newWidget("door")
	if err := w.Remotes[0].Client().Get(ctx, client.ObjectKeyFromObject(door), door); err != nil {
		return err
	}
	if s, err := stampOf(door); err != nil || s.By != replica {
		return fmt.Errorf("the stamp is %+v: %w", s, err)
	}
	return nil
}
