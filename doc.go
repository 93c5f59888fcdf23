// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package fleetcache reads and watches objects of any kind in a thousand
// Kubernetes clusters, from one operator.
//
// The module has these packages:
//
//   - clustercache is where to begin: a ClusterCache hands out a client.Reader
//     for each cluster, watches that survive reconnects, and sources of events
//     for controllers.
//   - clustercache/resolver says how a cluster is reached: kubeconfig Secrets
//     of every common convention, files, and more.
//   - clustercache/multicluster shows the clusters as controller-runtime's
//     cluster.Cluster, and to multicluster-runtime.
//   - clustercache/clustercachetest has fake clusters for tests of operators.
//   - informerpool shares informers between their users. It is usable alone,
//     with any dynamic client.
//   - gc keeps account of who uses what, and releases what nobody uses. It is
//     usable alone, too.
//
// Objects handed to event handlers are shared and read-only; objects that were
// read belong to the caller.
//
// docs/GUARANTEES.md lists what is promised, and the test that proves it;
// docs/migrating.md is for those who come from another cache, docs/runbook.md
// for those who operate this one, docs/architecture.md for those who change it.
// The examples directory has programs to run.
package fleetcache
