// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package clustercache reads and watches objects in many Kubernetes clusters,
// which come, go, break, move and change their credentials.
//
// # Usage
//
// A [ClusterCache] is made with [New] and run by a controller-runtime manager,
// or by calling Start. A resolver (package resolver) tells it how a cluster is
// reached. From then on a cluster is a key:
//
//	cc, err := clustercache.New(clustercache.Options{Resolver: r})
//	err = mgr.Add(cc)
//
//	w, err := cc.Watch(ctx, cluster, &corev1.Pod{})          // held until w.Release()
//	err = cc.Reader(cluster).List(ctx, pods, client.InNamespace("default"))
//
//	ctrl.NewControllerManagedBy(mgr).
//		WatchesRawSource(clustercache.ObjectSource(cc, clustercache.ObjectFeed{}, clustercache.EnqueueClusterOf)).
//		WatchesRawSource(clustercache.ClusterSource(cc, clustercache.EnqueueCluster))
//
// A cluster becomes known, and is connected to, when it is first asked for: by
// Engage, by Watch, by Declare, or by a read in mode [AutoWatch]; with
// Options.Discover, every cluster that the resolver lists is. Everything can be
// called before Start, and begins with it.
//
// A reconciler that was written for one cluster needs no change to work in all
// of them:
//
//	cc, err := clustercache.SetupWithManager(mgr, clustercache.Options{Resolver: r, Discover: true})
//	err = clustercache.NewControllerManagedBy(mgr, cc).
//		For(&corev1.Namespace{}).
//		Owns(&networkingv1.NetworkPolicy{}).
//		Complete(newReconciler) // func(client.Client) reconcile.Reconciler
//
// docs/migrating.md has the lines for those who come from another cache.
//
// # What a reconciler needs
//
// A reconciler says each time it runs all that its object needs, and never
// stops anything:
//
//	_, err := cc.Declare(ctx, owner,
//		clustercache.Target{Cluster: cluster, Kind: &appsv1.Deployment{}, Options: []client.ListOption{client.InNamespace("web")}},
//		clustercache.Target{Cluster: cluster, Kind: clustercache.Kind(gvk)})
//
// What is new starts, what is needed no more ends after a while, and what stays
// is not touched. An owner that is deleted says so with Drop, or is found gone
// by itself if Options.GC.InUse can tell. Declared and Usage show who uses
// what.
//
// # Events into controllers
//
// [ObjectSource] and [ClusterSource] make sources for any controller, one for
// any number of clusters; they start without waiting, whatever state the
// clusters are in. An [ObjectFeed] says which objects, with
// controller-runtime's predicates if need be, and mapping functions turn them
// into requests: [EnqueueObject], [EnqueueOwner], [EnqueueClusterOf],
// [EnqueueLabelled], or one's own. [Request] is a ready type of request. What
// exists already comes at low priority. A source is a handle, too: it triggers
// one object or all, pauses, takes another mapping function, and is taken out
// of a running controller by Close.
//
// With ObjectSourceOptions.Debounce a burst of events is one request, once they
// pause; MaxDelay bounds how long a steady stream can hold it up. Requests name
// objects and carry no state, so that nobody sees an older one for it.
//
// Events and what ObjectFeed hands to callbacks are shared and read-only.
// Objects that are read belong to the caller.
//
// # Guarantees
//
//   - One LIST and one WATCH reach a cluster for a kind, however many
//     callers want it in whatever form.
//   - Nothing here waits for a cluster but live reads and writes of that very
//     cluster, and methods named Wait: not Watch, not Reader, not Status, not
//     the start of a source.
//   - After a disconnect, a rotation of credentials or a move to another
//     address, informers resume where they were: no list, and no event for what
//     did not change. Holds and handlers stay.
//   - resourceVersions are compared only within an epoch. Another cluster
//     behind the same address, or a history that was rolled back, is a new
//     epoch: what vanished is delivered as deletes, and no answer mixes two.
//   - What an owner declared is watched until the owner lets it go or is found
//     gone, whatever happens at the same time; what nobody uses any more is
//     gone after its grace. An error of the question whether an owner exists
//     ends nothing.
//   - Connected and Disconnected alternate for each cluster, and the last state
//     is always delivered.
//
// Not promised: snapshots across kinds, order across clusters, cached reads
// that see the newest write (see [NotOlderThan]), every intermediate state. A
// history that was rolled back is recognized by a resourceVersion that is
// behind what an informer has seen; one that has grown past that before the
// informer comes back cannot be told from a sound one.
//
// # What a slow or failing cluster does
//
// It is probed every ten seconds unless it shows life, is [PhaseDegraded] after
// one failure and [PhaseDisconnected] after three, 45 s at the latest after it
// fell silent. Its reads then fail at once with [ErrNotConnected] and its
// informers wait, without a request, until it is connected again; what they
// hold stays, and can be read with [CacheOnly] and [MaxStaleness]. Attempts to
// connect back off to at most 30 s, and are made at once when the resolver has
// news; one that is under way goes on if the resolver stands by its answer. A
// resolver without news is asked again every minute. A 401 on any request makes
// the resolver be asked at once. No goroutine is spent on probing: all clusters
// share one queue of timers and a bounded number of workers.
//
// # Debugging
//
// [ClusterCache.Status] tells the phase, the reason, the last error and the
// last sign of life of a cluster; [Watch.Status] the state of an informer. No
// error, log line or status holds a credential or what a remote server wrote,
// beyond the bounded message of an API status.
//
// [ClusterCache.DebugHandler] shows all of that to people. docs/metrics.md
// lists the metrics, with alerts and a board beside it, and docs/runbook.md has
// a section for each phase and reason. [ClusterCache.HealthzCheck] and
// [ClusterCache.ReadyzCheck], which SetupWithManager adds to the manager's,
// tell of this process alone: a cluster that is dead must not take the operator
// of the others with it.
package clustercache
