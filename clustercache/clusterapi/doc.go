// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package clusterapi provides a clustercache.ClusterCache through the interface
// of Cluster API's controllers/clustercache, v1.14, so that controllers written
// for that interface need no change.
//
// # Usage
//
// One import of a program changes, that of the package whose SetupWithManager
// it calls:
//
//	clusterCache, err := clusterapi.SetupWithManager(ctx, mgr, clustercache.Options{
//		SecretClient: secretCachingClient,
//		Client:       clustercache.ClientOptions{UserAgent: userAgent},
//	}, controller.Options{})
//
// Here clustercache is Cluster API's package, and so are the options.
// [ClusterCache.Fleet] returns this module's own ClusterCache below, for what
// Cluster API's interface lacks. A program that has one already, with any
// resolver, passes it to [New].
//
// # Differences from Cluster API's own
//
// The README compares them case by case. In short:
//
//   - A changed kubeconfig Secret takes effect when the hub delivers the change.
//     It must have the label cluster.x-k8s.io/cluster-name.
//   - Watches survive reconnects and rotated credentials. Calling Watch again
//     has no effect, and handlers get only what changed.
//   - Connecting waits for no list: a kind that one cluster lacks, or that takes
//     long to list, does not keep the cluster from being connected.
//   - A cluster whose Cluster object is deleted stays connected for a grace of
//     30 s, and one whose Secret is deleted for 40 s.
//   - A source without a reader, and a Watcher that calls back, block nothing.
//   - A sign of life makes a probe unnecessary, and counts as a successful one.
package clusterapi
