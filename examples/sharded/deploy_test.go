// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	kinds := map[string]bool{}
	for _, o := range append(apply(t, hub, "hub.yaml"), apply(t, remote, "remote.yaml")...) {
		kinds[o.GetKind()] = true
	}
	require.Subset(t, kinds, map[string]bool{"StatefulSet": true, "PodDisruptionBudget": true, "Role": true})
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

	stampAsDeployed(t, hub, inHub, remote, inRemote)
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

// stampAsDeployed runs a replica until it has stamped a widget, and has it end.
func stampAsDeployed(
	t *testing.T, hub *testenv.Cluster, inHub *testenv.ServiceAccount, remote *testenv.Cluster,
	inRemote *testenv.ServiceAccount,
) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, remote.Client().Create(ctx, newNamespace(widgetNamespace)))
	require.NoError(t, remote.Client().Create(ctx, newWidget("door")))
	key := client.ObjectKey{Namespace: hubNamespace, Name: remote.Name()}
	require.NoError(t, fleet.Register(ctx, hub.Client(), key, inRemote.Kubeconfig()))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, inHub.Kubeconfig(), 0o600))
	t.Setenv(asProgram, "1")
	p, err := startProcess(identity{"stamper-0", hubNamespace}, path, func(report) {})
	require.NoError(t, err)
	defer p.kill()

	w := &world{Fleet: fleet.Of(hub, remote)}
	eventually(t, func() bool { return stampedBy(ctx, w, "stamper-0") == nil }, "stamped")
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
