// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package clustercachetest provides fake clusters for the tests of operators
// that use clustercache.
//
// # Usage
//
// A [Fleet] is a number of clusters, each an in-memory API server behind an
// in-memory network, and a ClusterCache that reads them: the real one,
// complete, so that a test sees what production would.
//
//	fleet := clustercachetest.New(t, clustercachetest.Options{})
//	east := fleet.Add("fleet/east", objects...)
//	reconciler := &Reconciler{Clusters: fleet.ClusterCache()}
//
//	fleet.WaitSynced()                   // what was written is in the caches
//	_, err := reconciler.Reconcile(ctx, request)
//	err = east.Client().Get(ctx, key, obj) // what the reconciler wrote
//
// [Cluster.Client] is the test's own access to a cluster, with which it changes
// and checks objects. An operator that makes its own ClusterCache uses
// [Fleet.Resolver], or [Fleet.Dial] and the kubeconfigs of
// [Cluster.Kubeconfig].
//
// Everything works inside a bubble of testing/synctest, where a reconnect with
// its back-off takes no time, and outside. Nothing is left behind when
// the test ends. A hundred clusters in one test are fine.
//
// # Failures
//
//	Disconnect, Hang, Reset, Connect   the network
//	Rotate, Revoke                     the credentials
//	Fail                               answers, by verb, kind or any other property of a request
//	NewEpoch, Rollback                 another cluster at the address, or another history
//	SetStale                           silent watches
//	Compact                            a truncated history
//	Remove, Fleet.Add                  clusters that disappear and appear
//
// # Three views that break reconcilers
//
// A reconciler acts on what it sees, which is less than what exists. The
// following expose it, on purpose, to conditions it will meet in production (as
// Sieve does, OSDI '22):
//
//   - [Cluster.Stale]: caches fall behind live reads and writes. It finds
//     reconcilers that conclude from an object's absence in the cache that it
//     does not exist.
//   - [Cluster.Skip]: intermediate states are never seen. It finds reconcilers
//     that rely on every event, such as a deletion that was followed by a
//     creation under the same name.
//   - [Fleet.InterruptBefore] and [Fleet.InterruptAfter]: the reconciler
//     crashes at its n-th write. It finds reconcilers that do not resume the
//     work they left half done.
//
// # Limits of the fake API servers
//
// They serve all built-in kinds, those of the Scheme, and others by [Kind] or
// CustomResourceDefinition, in lists with pages and selectors, watches,
// streamed lists and bookmarks, with resourceVersions, uids, generations,
// finalizers, status subresources, conflicts, and patches of every form,
// including server-side apply. The same tests run against them and against
// kube-apiserver.
//
// There is no admission and no defaulting; only metadata and, for built-in
// kinds, the types of fields are validated. No controllers run: dependents are
// not garbage-collected, and a deleted namespace stays in phase Terminating.
// The versions of a kind differ only in their name.
//
// # Tests
//
// TestFakesBehaveAsTheSuiteSays runs test/conformance, which real servers pass
// as well.
package clustercachetest
