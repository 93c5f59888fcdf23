// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package fleetcache reads and watches objects of any kind in a thousand
// Kubernetes clusters, from one operator.
//
// Programs import these packages:
//
//   - clustercache is where to begin: a ClusterCache hands out a client.Reader
//     for each cluster, watches that survive reconnects, and subscriptions to
//     events.
//   - clustercache/controller has what controllers of many clusters are made
//     of: a builder, sources of events, and requests that name a cluster.
//   - clustercache/resolver determines how a cluster is reached: by kubeconfig
//     Secrets of the common conventions, Cluster API's Cluster objects, files,
//     and more. clustercache/resolver/inventory follows ClusterProfiles, and
//     clustercache/resolver/settable what the operator's own code sets.
//   - clustercache/multicluster adapts the clusters to controller-runtime's
//     cluster.Cluster, and to multicluster-runtime.
//   - clustercache/clusterapi, a module of its own, has Cluster API's
//     ClusterCache interface, and clustercache/clusterapi/clusterapitest what
//     its test suites need beside that.
//   - clustercache/watchset watches what a list says, which may change at any
//     time.
//   - clustercache/fleet reads the objects of a kind in many clusters at once.
//   - clustercache/events has the events, and selects the objects that have them.
//   - clustercache/status has the snapshots of clusters and watches.
//   - clustercache/conditions makes conditions of the state of clusters and
//     watches, for the status of the operator's own objects.
//   - clustercache/remote has events and finalizers of remote objects.
//   - clustercache/sharding lets the replicas of an operator share the
//     clusters; clustercache/ownership is the interface to it.
//   - clustercache/persist configures what is kept on disk for the next
//     process, and clustercache/persist/bolt keeps it in a file.
//   - clustercache/clustercachetest has fake clusters for tests of operators.
//   - informerpool shares informers between their users. It is usable alone,
//     with any dynamic client.
//   - gc tracks which owners use which resources, and releases unused ones. It
//     is usable alone, too.
//
// Objects handed to event handlers are shared and read-only; objects that were
// read belong to the caller.
//
// docs/GUARANTEES.md lists what is guaranteed, and the test that proves it.
// docs/migrating.md helps to migrate from another cache, docs/runbook.md to
// operate this one, and docs/architecture.md to change it. The examples
// directory has programs to run.
package fleetcache
