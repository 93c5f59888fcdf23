// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package settable resolves the clusters that the operator's own code has set.
//
// It is for operators that have a reconciler of their own for what describes a
// cluster, such as a custom resource with a status: the reconciler finds out
// how the cluster is reached, writes into the status what is wrong, and sets
// the result.
//
//	access, err := resolver.Kubeconfig(secret.Data["kubeconfig"], resolver.KubeconfigOptions{})
//	clusters.Set(request.NamespacedName, access, err)
//
// # Which clusters there are
//
// Which clusters do not exist is known once [Resolver.Synced] or
// [Resolver.Replace] was called: until then, a cluster that was not set is not
// ready yet, and only one that was deleted counts as gone. With
// Options.Discover, a ClusterCache reports itself as ready from then on, and
// not before. It connects a cluster as soon as it is set; with
// Options.Sharding, or if it forgot the cluster less than ten minutes ago, it
// first reads the list, which waits for Synced or Replace. An operator that
// discovers clusters calls Replace once at its start, with everything that it
// lists, and Set and Delete from its reconciler.
//
// Replicas that wait to be the leader run no reconcilers that need leader
// election. For their caches to be warm, the reconciler that sets clusters has
// to run on every replica (NeedLeaderElection: false).
//
// # Tests
//
// The leading test is TestRandomCallsMatchAModel.
package settable
