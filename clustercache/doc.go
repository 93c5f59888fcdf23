// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package clustercache reads and watches objects in many Kubernetes clusters:
// clusters that are added and removed, fail, move and rotate their credentials.
//
// # Usage
//
// [New] makes a [ClusterCache], which a controller-runtime manager runs, or a
// call of Start:
//
//	cc, err := clustercache.New(clustercache.Options{Resolver: r})
//	err = mgr.Add(cc)
//
//	east := cc.Cluster(client.ObjectKey{Namespace: "fleet", Name: "east"})
//	w, err := east.Watch(ctx, &corev1.Pod{}) // held until w.Release()
//	err = east.Reader().List(ctx, pods, client.InNamespace("default"))
//
//	ctrl.NewControllerManagedBy(mgr).
//		WatchesRawSource(controller.ObjectSource(cc, events.Selection{}, controller.EnqueueClusterOf)).
//		WatchesRawSource(controller.ClusterSource(cc, controller.EnqueueCluster))
//
// A reconciler that was written for one cluster works in all of them without a
// change:
//
//	cc, err := clustercache.SetupWithManager(mgr, clustercache.Options{Resolver: r, Discover: true})
//	err = controller.NewControllerManagedBy(mgr, cc).
//		For(&corev1.Namespace{}).
//		Owns(&networkingv1.NetworkPolicy{}).
//		Complete(newReconciler) // func(client.Client) reconcile.Reconciler
//
// On every run a reconciler declares everything its object needs; it never has
// to stop anything:
//
//	_, err := cc.Declare(ctx, owner,
//		clustercache.Target{Cluster: cluster, Kind: &appsv1.Deployment{},
//			Options: []client.ListOption{client.InNamespace("web")}},
//		clustercache.Target{Cluster: cluster, Kind: clustercache.Kind(gvk)})
//
// # Concepts
//
//   - A resolver (package resolver) provides the address and credentials of
//     each cluster, and may list the clusters.
//   - A [Cluster] is a handle by a key. The cluster becomes known, and is
//     connected, by Engage, Watch, Declare, or a read in mode [AutoWatch]; with
//     Options.Discover, every cluster that the resolver lists is.
//   - A [Watch] is a reference to the informer of a kind, or a selection of it.
//     All users of it share one LIST and one WATCH, typed or not.
//   - A Reader reads from the informers and, by default, from the API server
//     where none covers the read ([ReadMode]).
//   - An [Owner] declares the [Target]s that it needs. What no owner needs ends
//     after a grace.
//   - An [events.Selection] selects the objects whose events a subscription, or
//     a source of package controller, delivers: the latest state of each, not
//     every one.
//   - The phase of a cluster, in its [status.Cluster], and the reason of an
//     error ([ReasonOf]) say what is wrong.
//
// # Guarantees
//
// Only live reads and writes of a cluster, methods named Wait, and reads with
// Options.ReadYourWrites wait for that cluster. Snapshots cost no I/O. Watches
// and handlers stay while a cluster is disconnected, moved or given new
// credentials, and informers resume where they stopped. Another cluster behind
// the same address, or a history that was rolled back, starts a new epoch, and
// no answer mixes two. Events, and objects that predicates and mapping functions
// receive, are shared and read-only; objects returned by reads belong to the
// caller. No error, log line or status holds a credential.
//
// Not promised: snapshots across kinds, order across clusters, cached reads that
// see the newest write (see [NotOlderThan]), every intermediate state.
//
// # Where to read on
//
// docs/watching.md and docs/reading.md compare the calls, docs/GUARANTEES.md
// has each promise with its tests, and docs/runbook.md what to do about each
// phase and reason.
//
// # Tests
//
// The leading test is TestSeeds (test/simulation), which runs all of it against
// servers that fail. Others are in test, by theme; docs/GUARANTEES.md names one
// for each promise. TestGuaranteeIsolationByNumber covers clusters that hang.
package clustercache
