// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package clustercache reads and watches objects in many Kubernetes clusters:
// clusters that are added and removed, fail, move and rotate their credentials.
//
// # Usage
//
// [New] makes a [ClusterCache]; a controller-runtime manager runs it, or a call
// of Start. A resolver (package resolver) provides the address and credentials
// of each cluster. From then on a [Cluster] is a handle by a key:
//
//	cc, err := clustercache.New(clustercache.Options{Resolver: r})
//	err = mgr.Add(cc)
//
//	east := cc.Cluster(client.ObjectKey{Namespace: "fleet", Name: "east"})
//	w, err := east.Watch(ctx, &corev1.Pod{}) // held until w.Release()
//	err = east.Reader().List(ctx, pods, client.InNamespace("default"))
//
//	ctrl.NewControllerManagedBy(mgr).
//		WatchesRawSource(controller.ObjectSource(cc, clustercache.ObjectSelection{}, controller.EnqueueClusterOf)).
//		WatchesRawSource(controller.ClusterSource(cc, controller.EnqueueCluster))
//
// A cluster becomes known, and is connected, on its first use: by Engage,
// Watch, Declare, or a read in mode [AutoWatch]. With Options.Discover, every
// cluster that the resolver lists becomes known. All methods can be called
// before Start; their work begins with it.
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
// docs/migrating.md shows the lines to change when migrating from another
// cache.
//
// # What a reconciler needs
//
// On every run a reconciler declares everything its object needs; it never has
// to stop anything:
//
//	_, err := cc.Declare(ctx, owner,
//		clustercache.Target{Cluster: cluster, Kind: &appsv1.Deployment{},
//			Options: []client.ListOption{client.InNamespace("web")}},
//		clustercache.Target{Cluster: cluster, Kind: clustercache.Kind(gvk)})
//
// New targets start, targets that are no longer needed end after a while, and
// all others are left alone. When an owner is deleted, call Drop; an owner that
// disappears without Drop is found if Options.GC.InUse is set, as it is by
// SetupWithManager. Declared and Usage report which owners use which watches.
//
// # Events into controllers
//
//	API server        API server        API server
//	    | list, watch     |                 |
//	informer          informer          informer   one per cluster, kind and
//	    |                 |                 |      selection: packed objects
//	    +------------+----+-----------------+
//	                 |
//	           Subscription                        at most one pending event per
//	                 |                             object, with its latest state
//	     ObjectSelection.Predicates                in its Representation
//	                 |
//	   - - - - - - - | - - - - - - - package controller: ObjectSource - - -
//	                 |
//	         mapping function                      EnqueueObject, EnqueueOwner, ...
//	                 |
//	      debounce, if configured                  until a burst pauses
//	                 |
//	            workqueue                          one request per key
//	                 |
//	         Reconcile(request)
//
// A [Subscription] delivers the events of any number of clusters to one
// function: [ClusterCache.Subscribe] those of objects,
// [ClusterCache.SubscribeClusters] those of clusters. An [ObjectSelection]
// selects the objects, optionally with controller-runtime's predicates. A
// subscription starts without waiting, whatever state the clusters are in.
//
// Package clustercache/controller makes sources for controllers of them,
// ObjectSource and ClusterSource. A mapping function turns events into
// requests: EnqueueObject, EnqueueOwner, EnqueueClusterOf, EnqueueLabelled, or
// your own. Request is a ready-made request type. Objects that exist when the
// source starts are queued at low priority. A source is also a handle: it can
// trigger one object or all of them, pause, replace its mapping function, and
// leave a running controller by Close.
//
// With Debounce in a source's options, a burst of events becomes one request,
// queued when the burst pauses; MaxDelay bounds the delay under a steady
// stream. Only keys are delayed: a request carries no state, and the reconciler
// always reads current state.
//
// Events, and objects that an ObjectSelection passes to callbacks, are shared
// and read-only. Objects returned by reads belong to the caller.
//
// # Guarantees
//
//   - One LIST and one WATCH reach a cluster for a kind and a selection of it,
//     however many callers use them, typed or not.
//   - Only live reads and writes of a cluster, methods named Wait, and reads
//     that Options.ReadYourWrites makes wait for a write, wait for that cluster.
//     Watch, Reader, Status and the start of a source never do.
//   - After a disconnect, a rotation of credentials or a move to another
//     address, informers resume where they stopped, if the server still has
//     that history: without a list, and without events for unchanged objects.
//     Watches and handlers stay.
//   - resourceVersions are compared only within an epoch. Another cluster
//     behind the same address, or a history that was rolled back, starts a new
//     epoch: objects that vanished are delivered as deletes, and no answer
//     mixes two epochs.
//   - What an owner declared is watched until the owner drops it or is found
//     gone, whatever happens concurrently. A watch that no owner uses is
//     released after its grace. If the query whether an owner exists fails,
//     nothing is released.
//   - Connected and Disconnected alternate for each cluster, and the last state
//     is always delivered.
//
// Not promised: snapshots across kinds, order across clusters, cached reads
// that see the newest write (see [NotOlderThan]), every intermediate state. A
// rolled-back history is recognized by a resourceVersion lower than one that an
// informer has seen. If the history grows past that version before the informer
// reconnects, the next audit finds it (Informers.AuditInterval).
//
// # What a slow or failing cluster does
//
// A cluster is probed every ten seconds unless it shows other signs of life. It
// becomes [PhaseDegraded] after one failed probe and [PhaseDisconnected] after
// three: no later than 45 s after its last response, and within two seconds
// where a watch breaks and the server refuses connections. An API server that
// answers which checks of its own health fail, such as that of etcd, is alive:
// its cluster stays degraded, and what works goes on. One API server of several
// behind an address that drains, fails or rejects credentials is not the
// cluster either: before a verdict, a new connection is tried.
//
// Reads of a disconnected cluster fail at once with [ErrNotConnected], and its
// informers send no requests until it is connected again. Cached objects stay,
// and can be read with [CacheOnly] and [MaxStaleness].
//
// Attempts to connect back off to at most 30 s. A change reported by the
// resolver has it queried at once, and other access is tried at once. Access
// that has just failed keeps its pause, however often it is reported, and an
// attempt that is already running continues if the resolver confirms its
// answer. A resolver that does not report changes is queried again every
// minute, and at once after any 401. Probing takes no goroutine per cluster:
// all clusters share one queue of timers and a bounded number of workers.
//
// # Debugging
//
// [Cluster.Status] reports a cluster's phase, reason, last error and last
// sign of life; [Watch.Status] reports the state of an informer. No error, log
// line or status holds a credential, or text from a remote server beyond the
// bounded message of an API status, and the names of failing checks.
//
// [ClusterCache.DebugHandler] shows all of that on a web page. docs/metrics.md
// lists the metrics; alerts and a dashboard are in the same folder.
// docs/runbook.md has a section for each phase and reason.
// [ClusterCache.HealthzCheck] and [ClusterCache.ReadyzCheck], which
// SetupWithManager adds to the manager's checks, cover this process alone: a
// dead cluster must not take down the operator of all the others.
package clustercache
