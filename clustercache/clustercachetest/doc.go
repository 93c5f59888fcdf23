// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package clustercachetest has fake clusters for the tests of operators that
// use clustercache.
//
// # Usage
//
// A [Fleet] is a number of clusters, each an API server in memory behind a
// network in memory, and a ClusterCache that reads them: the real one, with
// everything in it, so that a test sees what production would.
//
//	fleet := clustercachetest.New(t, clustercachetest.Options{})
//	east := fleet.Add("fleet/east", objects...)
//	reconciler := &Reconciler{Clusters: fleet.ClusterCache()}
//
//	fleet.WaitSynced()                   // what was written is in the caches
//	_, err := reconciler.Reconcile(ctx, request)
//	err = east.Client().Get(ctx, key, obj) // what the reconciler wrote
//
// [Cluster.Client] is the test's own way to a cluster, by which it changes and
// checks what is there. An operator that makes its own ClusterCache takes
// [Fleet.Resolver], or [Fleet.Dial] and the kubeconfigs of
// [Cluster.Kubeconfig].
//
// Everything works inside a bubble of testing/synctest, where a reconnect with
// its back-off takes no time, and outside of one. Nothing is left behind when
// the test ends. A hundred clusters in one test are fine.
//
// # What can go wrong
//
//	Disconnect, Hang, Reset, Connect   the network
//	Rotate, Revoke                     the credentials
//	Fail                               answers, by verb, kind or anything else of a request
//	NewEpoch, Rollback                 another cluster at the address, or another history
//	SetStale                           watches that say nothing
//	Compact                            a history that does not reach back
//	Remove, Fleet.Add                  clusters that go and come
//
// # Three views that break reconcilers
//
// A reconciler acts on what it sees, and sees less than there is. These make it
// see, on purpose, what it will see some day (as Sieve does, OSDI '22):
//
//   - [Cluster.Stale]: caches fall behind what live reads and writes do. It
//     finds who takes the absence of an object in the cache for its absence.
//   - [Cluster.Skip]: states in between are never seen. It finds who counts on
//     every event, as on a deletion that was followed by a creation under the
//     same name.
//   - [Fleet.InterruptBefore] and [Fleet.InterruptAfter]: the reconciler
//     crashes at its n-th write. It finds who does not pick up what it left
//     half done.
//
// # What the fake API servers are, and are not
//
// They serve all built-in kinds, those of the Scheme, and others by [Kind] or
// CustomResourceDefinition, in lists with pages and selectors, watches,
// streamed lists and bookmarks, with resourceVersions, uids, generations,
// finalizers, status subresources, conflicts, and patches of every form,
// server-side apply included. The same tests run against them and against
// kube-apiserver.
//
// There is no admission, no defaulting, no validation of anything but metadata
// and, for built-in kinds, the types of fields. No controllers run: nothing
// collects dependents, and a deleted namespace stays in phase Terminating. The
// versions of a kind differ in their name only.
package clustercachetest
