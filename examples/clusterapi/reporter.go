// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// NodeReporter stores the number of nodes of each Cluster in a ConfigMap of the
// hub, under the Cluster's name. It is written as Cluster API's controllers
// are, and is the same before and after.
type NodeReporter struct {
	Hub          client.Client
	ClusterCache clustercache.ClusterCache

	watcher clustercache.SourceWatcher[ctrl.Request]
}

// SetupWithManager adds the controller.
func (r *NodeReporter) SetupWithManager(mgr ctrl.Manager, name string) error {
	c, err := ctrl.NewControllerManagedBy(mgr).Named(name).
		For(&clusterv1.Cluster{}).
		WatchesRawSource(r.ClusterCache.GetClusterSource(name, func(_ context.Context, o client.Object) []ctrl.Request {
			return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
		})).
		Build(r)
	r.watcher = c
	return err
}

// Reconcile counts the nodes of a Cluster.
func (r *NodeReporter) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	remote, err := r.ClusterCache.GetClient(ctx, request.NamespacedName)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return ctrl.Result{}, nil // the cluster source sends a request once it is connected
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	err = r.ClusterCache.Watch(ctx, request.NamespacedName, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:    "nodereporter-nodes",
		Watcher: r.watcher,
		Kind:    &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
			return []ctrl.Request{request}
		}),
	}))
	if err != nil {
		return ctrl.Result{}, err
	}

	nodes := &corev1.NodeList{}
	if err := remote.List(ctx, nodes); err != nil {
		return ctrl.Result{}, err
	}
	report := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name}}
	_, err = controllerutil.CreateOrUpdate(ctx, r.Hub, report, func() error {
		report.Data = map[string]string{"nodes": strconv.Itoa(len(nodes.Items))}
		return nil
	})
	return ctrl.Result{}, err
}
