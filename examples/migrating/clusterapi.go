// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package migrating

import (
	"context"
	"errors"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// ClustersOfClusterAPI makes the cache that replaces Cluster API's.
func ClustersOfClusterAPI(mgr ctrl.Manager, ready *resolver.ReadyObject) (*clustercache.ClusterCache, error) {
	clusters, err := resolver.InHub(mgr.GetConfig(), resolver.ClusterAPI, resolver.HubOptions{ReadyObject: ready})
	if err != nil {
		return nil, err
	}
	return clustercache.SetupWithManager(mgr, clustercache.Options{Resolver: clusters, Discover: true})
}

// ClusterAPIReady returns the argument of ClustersOfClusterAPI for hubs where
// Cluster API runs.
func ClusterAPIReady() *resolver.ReadyObject { return resolver.ClusterAPIReady("v1beta2") }

// NodeCounter stores the number of a cluster's nodes in a ConfigMap of the hub,
// under the cluster's name. Its requests name a cluster, as those of Cluster
// API's controllers do.
type NodeCounter struct {
	Hub      client.Client
	Clusters *clustercache.ClusterCache
}

// SetupWithManager adds the controller.
func (r *NodeCounter) SetupWithManager(mgr ctrl.Manager) error {
	nodes := events.Selection{Kinds: []client.Object{&corev1.Node{}}, Watch: true}
	return ctrl.NewControllerManagedBy(mgr).Named("nodecounter").
		WatchesRawSource(controller.ClusterSource(r.Clusters, controller.EnqueueCluster)).
		WatchesRawSource(controller.ObjectSource(r.Clusters, nodes, controller.EnqueueClusterOf)).
		Complete(r)
}

// Reconcile counts the nodes of the cluster.
func (r *NodeCounter) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	err := r.Clusters.Cluster(request.NamespacedName).Reader().List(ctx, nodes)
	if errors.Is(err, clustercache.ErrNotConnected) || errors.Is(err, clustercache.ErrUnknownCluster) {
		return reconcile.Result{}, nil // no requeue: the ClusterSource sends a request once it is connected
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	count := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name}}
	_, err = controllerutil.CreateOrUpdate(ctx, r.Hub, count, func() error {
		count.Data = map[string]string{"nodes": strconv.Itoa(len(nodes.Items))}
		return nil
	})
	return reconcile.Result{}, err
}

// Access holds the results of the getters of Cluster API's cache.
type Access struct {
	Client, Live client.Client
	Reader       client.Reader
	Config       *rest.Config
	Status       status.Cluster
}

// AccessTo calls all getters for a cluster.
func AccessTo(cc *clustercache.ClusterCache, cluster client.ObjectKey) (a Access, err error) {
	if a.Client, err = cc.Cluster(cluster).Client(); err != nil {
		return a, err
	}
	if a.Live, err = cc.Cluster(cluster).LiveClient(); err != nil {
		return a, err
	}
	a.Reader = cc.Cluster(cluster).Reader()
	if a.Config, err = cc.Cluster(cluster).TransportConfig(); err != nil {
		return a, err
	}
	a.Status, err = cc.Cluster(cluster).Status()
	return a, err
}
