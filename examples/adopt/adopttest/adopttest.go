// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package adopttest checks that both forms of the example behave the same, in
// one cluster or in many.
package adopttest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// Run runs a program's setup in a manager until the test ends.
func Run(t *testing.T, hub *rest.Config, setup func(ctrl.Manager) error) {
	t.Helper()
	mgr, err := ctrl.NewManager(hub, ctrl.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)}, // a test may run more than once in a process
	})
	require.NoError(t, err)
	require.NoError(t, setup(mgr))
	fleettest.Run(t, mgr)
}

// Isolates checks that a namespace of the given name in a cluster is isolated
// exactly while its label requires it.
func Isolates(t *testing.T, c client.Client, name string) {
	t.Helper()
	ctx := t.Context()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{"isolate": "true"},
	}}
	require.NoError(t, c.Create(ctx, namespace))
	policy := wait(t, c, name, func(p *networkingv1.NetworkPolicy) bool { return len(p.Spec.PolicyTypes) == 2 })
	require.Equal(t, name, policy.OwnerReferences[0].Name)

	patch := client.MergeFrom(policy.DeepCopy())
	policy.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	require.NoError(t, c.Patch(ctx, policy, patch))
	policy = wait(t, c, name, func(p *networkingv1.NetworkPolicy) bool { return len(p.Spec.PolicyTypes) == 2 })

	require.NoError(t, c.Delete(ctx, policy))
	wait(t, c, name, func(p *networkingv1.NetworkPolicy) bool { return p.UID != policy.UID })

	bare := client.MergeFrom(namespace.DeepCopy())
	delete(namespace.Labels, "isolate")
	require.NoError(t, c.Patch(ctx, namespace, bare))
	eventually(t, func() bool {
		key := client.ObjectKey{Namespace: name, Name: "isolate"}
		return apierrors.IsNotFound(c.Get(ctx, key, &networkingv1.NetworkPolicy{}))
	})
}

// wait waits until the namespace has a policy that satisfies good.
func wait(
	t *testing.T, c client.Client, namespace string, good func(*networkingv1.NetworkPolicy) bool,
) *networkingv1.NetworkPolicy {
	t.Helper()
	policy := &networkingv1.NetworkPolicy{}
	eventually(t, func() bool {
		*policy = networkingv1.NetworkPolicy{}
		key := client.ObjectKey{Namespace: namespace, Name: "isolate"}
		return c.Get(t.Context(), key, policy) == nil && good(policy)
	})
	return policy
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 2*time.Minute, 50*time.Millisecond)
}
