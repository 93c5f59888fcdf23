// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package multicluster shows the clusters of a clustercache.ClusterCache in the
// forms that existing code takes: controller-runtime's cluster.Cluster, and the
// interfaces of sigs.k8s.io/multicluster-runtime, which it does not import.
//
// # Usage
//
// A controller that was written for the cluster it runs in is made one of a
// remote cluster by the last argument of one call; For, Owns and Watches, its
// client, its field indexes and its REST mapper are the remote's then:
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
// A controller of the hub that watches a remote cluster beside it takes a
// source:
//
//	WatchesRawSource(source.Kind(east.GetCache(), &corev1.Pod{}, handler))
//
// A program of multicluster-runtime gives its manager our provider in the place
// of another:
//
//	p := multicluster.NewProvider[mc.ClusterName, mc.Aware](clusters, multicluster.ProviderOptions{NotFound: mc.ErrClusterNotFound})
//	mgr, err := mcmanager.New(config, p, mcmanager.Options{})
//	err = mgr.GetLocalManager().Add(cc)
//
// or keeps its provider, and adds a [Registrar] that makes a ClusterCache adopt
// what the provider engages. [Source] is for its controllers that do not need
// objects decoded. For releases whose cluster names are plain strings, the type
// argument is string.
//
// # What differs from other caches
//
//   - GetInformer returns at once, and a handler can be added, whether or not
//     the cluster can be reached or serves the kind.
//   - A handler holds the watch of its kind, and its removal lets it go:
//     nothing runs that nobody asked for. All forms of a kind (typed,
//     unstructured, metadata) share one.
//   - WaitForCacheSync does not wait for the remote, and a handler passes as
//     synced after Options.SyncTimeout all the same: a controller starts, and a
//     manager stays up, without the clusters that are down.
//   - Reads do not wait for a first list either: until then the API server
//     answers. Only a list by an indexed field waits, since no server could
//     answer it. Unstructured objects are read from the cache, too. A cluster
//     that is not connected is a typed error, [clustercache.ErrNotConnected];
//     one that was removed is [clustercache.ErrUnknownCluster].
//   - An informer that reads took goes when it was not read for some minutes;
//     Options.OnlyWatched keeps reads from taking any.
//   - There are no periodic resyncs unless Options.SyncPeriod or the handler
//     asks for them.
//   - Objects given to handlers are the handler's own.
//
// # What happens when a cluster goes
//
// Nothing ends: not the cluster.Cluster, its clients and informers, nor a
// controller that uses them. After a disconnect, a rotation of credentials or a
// move, handlers are told of what changed. After another cluster has taken the
// place, or the history was rolled back, they are told of deletes of what is
// gone, too. A cluster that the resolver says does not exist any more is told
// as deletes of everything; a [Provider] then ends its engagement, and engages
// a cluster that is made again as a new one.
//
// # Costs
//
// A cluster.Cluster is some clients that are made when it is first asked for,
// without I/O. Each handler is a queue that has a goroutine only while there is
// something to tell, and decodes what it is told. A provider has one goroutine
// for each engaged cluster.
package multicluster
