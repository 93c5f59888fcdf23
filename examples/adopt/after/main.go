// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Isolate keeps every namespace with the label isolate=true closed to the
// network: it creates a NetworkPolicy there that admits nothing, and restores
// it when it is changed or deleted.
//
// It works in all clusters that Cluster API knows.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

func main() {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err == nil {
		err = setup(mgr)
	}
	if err == nil {
		err = mgr.Start(ctrl.SetupSignalHandler())
	}
	if err != nil {
		ctrl.Log.Error(err, "Stopped")
		os.Exit(1)
	}
}

func setup(mgr ctrl.Manager) error {
	clusters, err := resolver.InHub(mgr.GetConfig(), resolver.ClusterAPI, resolver.HubOptions{})
	if err != nil {
		return err
	}
	cc, err := clustercache.SetupWithManager(mgr, clustercache.Options{Resolver: clusters, Discover: true})
	if err != nil {
		return err
	}
	return controller.NewControllerManagedBy(mgr, cc).Named("isolate").
		For(&corev1.Namespace{}).
		Owns(&networkingv1.NetworkPolicy{}).
		Complete(newReconciler)
}

// policyName is the name of the policy in each isolated namespace.
const policyName = "isolate"

type reconciler struct{ client client.Client }

func newReconciler(c client.Client) reconcile.Reconciler { return &reconciler{client: c} }

// Reconcile creates, restores or deletes the policy of one namespace.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := &corev1.Namespace{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: request.Name}, namespace); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: policyName}}
	if namespace.Labels["isolate"] != "true" {
		if err := r.client.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		return reconcile.Result{}, client.IgnoreNotFound(r.client.Delete(ctx, policy))
	}
	done, err := controllerutil.CreateOrUpdate(ctx, r.client, policy, func() error {
		policy.Spec = networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		}
		return controllerutil.SetControllerReference(namespace, policy, r.client.Scheme())
	})
	if err == nil && done != controllerutil.OperationResultNone {
		ctrl.LoggerFrom(ctx).Info("Isolated", "policy", done)
	}
	return reconcile.Result{}, err
}
