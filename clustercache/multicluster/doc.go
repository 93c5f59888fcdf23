// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package multicluster provides the clusters of a clustercache.ClusterCache
// through the interfaces that existing code uses: controller-runtime's
// cluster.Cluster, and the interfaces of sigs.k8s.io/multicluster-runtime,
// which it does not import.
//
// # Usage
//
// A controller that was written for the cluster it runs in becomes one of a
// remote cluster by the last argument of one call. For, Owns and Watches, its
// client, its field indexes and its REST mapper then use the remote cluster:
//
//	cc, err := clustercache.New(clustercache.Options{Resolver: r})
//	err = mgr.Add(cc)
//	clusters := multicluster.New(cc, multicluster.Options{})
//	east, err := clusters.Cluster(client.ObjectKey{Namespace: "fleet", Name: "east"})
//	remote := multicluster.ManagerFor(mgr, east)
//	err = ctrl.NewControllerManagedBy(remote).
//		For(&appsv1.Deployment{}).
//		Owns(&corev1.ConfigMap{}).
//		Complete(&Reconciler{Client: remote.GetClient()})
//
// A controller of the hub that also watches a remote cluster uses a source:
//
//	WatchesRawSource(source.Kind(east.GetCache(), &corev1.Pod{}, handler))
//
// A program that uses multicluster-runtime passes this provider to its manager
// in place of another:
//
//	p := multicluster.NewProvider[mc.ClusterName, mc.Aware](clusters,
//		multicluster.ProviderOptions{NotFound: mc.ErrClusterNotFound})
//	mgr, err := mcmanager.New(config, p, mcmanager.Options{})
//	err = mgr.GetLocalManager().Add(cc)
//
// or keeps its provider, and adds a [Registrar], by which a ClusterCache adopts
// the clusters that the provider engages. [Source] is for controllers of such a
// program that do not need decoded objects. For releases whose cluster names
// are plain strings, the type argument is string.
//
// # Differences from other caches
//
//   - GetInformer returns at once, unless BlockUntilSynced is set, and a handler
//     can be added, whether or not the cluster can be reached or serves the
//     kind.
//   - A handler holds the watch of its kind, and its removal releases it:
//     nothing runs that was not requested. All forms of a kind (typed,
//     unstructured, metadata) share one watch.
//   - WaitForCacheSync does not wait for the remote cluster, and a handler
//     reports that it has synced after Options.SyncTimeout at the latest: a
//     controller starts, and a manager keeps running, without the clusters that
//     are down.
//   - Reads do not wait for a first list either: until it is complete the API
//     server answers. Only a list by an indexed field waits, since no server
//     could answer it. Unstructured objects are read from the cache, too. A
//     cluster that is not connected is a typed error,
//     [clustercache.ErrNotConnected]; one that was removed is
//     [clustercache.ErrUnknownCluster].
//   - A mapping function (handler.MapFunc) whose reads fail while the cluster is
//     not connected loses what it would have requested. Give these reads the
//     options clustercache.CacheOnly and a clustercache.MaxStaleness.
//   - An informer started by reads is removed when it was not read for some
//     minutes; Options.OnlyWatched keeps reads from starting any.
//   - There are no periodic resyncs unless Options.SyncPeriod or the handler
//     requests them.
//   - Objects passed to handlers belong to the handler. Objects contain their
//     kind, typed ones, too.
//   - Lists can select by any field selector of indexed fields and of
//     metadata.name and metadata.namespace, and have a resourceVersion. A list
//     has a continue token only if Limit left something out; if the cache
//     answered, the list cannot be continued with it.
//   - Other reads do not wait, so their error when the context ended is that
//     of the context. Only a wait for a first list ends with a timeout, as
//     reported by apierrors.IsTimeout.
//   - Start may be called again.
//   - Warnings from API servers are not logged. To see them, create a client
//     from TransportConfig with a warning handler.
//
// # What happens when a cluster disappears
//
// The cluster.Cluster, its clients and informers, and the controllers that use
// them all keep running. After a disconnect, a rotation of credentials or a
// move, handlers receive the changes made meanwhile. If another cluster has
// taken the place, or the history was rolled back, they also receive deletes of
// the objects that no longer exist. If the resolver reports that a cluster no
// longer exists, they receive nothing, since its objects were not deleted; a
// [Provider] then ends its engagement, and engages a cluster that is created
// again as a new one.
//
// # Costs
//
// A cluster.Cluster consists of a few clients, which are created without I/O
// when it is first requested. Each handler is a queue that has a goroutine only
// while it has events to deliver, and decodes only the objects it delivers. A
// provider has one goroutine for each engaged cluster.
//
// # Tests
//
// The leading test is TestRealStockControllerOutlivesItsRemote.
// TestHazardUnreachableClusterBlocksTheFleet covers clusters that are down.
package multicluster
