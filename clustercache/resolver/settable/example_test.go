// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package settable_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/settable"
)

// The reconciler of an object that describes a cluster sets the cluster's
// access, here from a Secret of the same name.
func Example() {
	clusters := settable.New()
	reconcile := func(ctx context.Context, hub client.Client, request ctrl.Request) error {
		secret := &corev1.Secret{}
		switch err := hub.Get(ctx, request.NamespacedName, secret); {
		case apierrors.IsNotFound(err):
			clusters.Delete(request.NamespacedName)
			return nil
		case err != nil:
			return err
		}

		ref := resolver.ObjectRef{Kind: "Secret", Namespace: secret.Namespace, Name: secret.Name}
		access, err := resolver.Kubeconfig(secret.Data["kubeconfig"], resolver.KubeconfigOptions{}, ref)
		clusters.Set(request.NamespacedName, access, err)
		return nil // an error of the description is one for the object's status, not for a retry
	}
	_ = reconcile
}

// An answer may be an error, which the status of the cluster shows.
func ExampleResolver_Set() {
	clusters := settable.New()
	east := resolver.Cluster{Namespace: "fleet", Name: "east"}
	access, err := resolver.Kubeconfig([]byte("clusters: []"), resolver.KubeconfigOptions{})
	clusters.Set(east, access, err)

	_, err = clusters.Resolve(context.Background(), east)
	fmt.Println(err)
	// Output: cluster fleet/east: invalid kubeconfig: current-context is not set, and there is not exactly one context
}
