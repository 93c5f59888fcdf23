// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package informerpool shares informers: caches of the objects of one resource
// of one cluster that follow the API server. They are taken and given back at
// will, for any kind, typed or not, in any number of clusters.
//
// # Usage
//
// [Pool.Acquire] gives a [Lease] on the informer for a [Key] and starts that
// informer if nobody holds one. The lease reads the cache ([Lease.Get],
// [Lease.List]), and a [Subscription] delivers the changes of any number of
// leases to one [Handler]. [Lease.Release] gives it back; some time after the
// last release the informer stops.
//
// Where objects come from is a [Source]: [FromREST] for API servers reached
// over HTTP, [FromDynamic] for dynamic clients. The pool knows nothing of
// kubeconfigs and reconnects; package clustercache adds them.
//
// # Objects
//
// Cached objects are kept as compressed JSON and decoded when they are read; a
// Pod costs about one KB this way and 50 as a map. [Object] is a read-only
// client.Object: name, labels, owners and resourceVersion are answered without
// decoding. managedFields are kept, so that apply configurations can be
// extracted from what is read, unless Options.DropManagedFields says otherwise.
// Objects are shared: never change what DeepCopyObject or Into did not make.
//
// # Guarantees
//
//   - One LIST and one WATCH reach the server for a key, however many leases
//     are held on it; where the server streams lists (1.34 and later) both are
//     one request. (TestOneRequestHoweverManyLeases)
//   - Acquire, reads and Status never wait for the network, and no lease's end
//     affects another's. (TestAcquireReturnsAtOnceWhileTheServerHangs,
//     TestAnotherLeasesEndChangesNothing)
//   - A handler is told of each object's states in the order of their versions,
//     each at most once; states may be skipped while it is busy, the last one
//     never is. (TestModel)
//   - A broken connection is resumed where it ended: no list, no event for what
//     did not change. (TestBrokenWatchResumesWithoutAList)
//   - When the server forgot the history, or restored an older one, or is
//     another cluster, the cache is made equal again; what vanished is told as
//     deletes, what did not change is not told.
//     (TestGoneResyncsWithoutEventsForUnchanged, TestRollbackStartsANewHistory,
//     TestNewEpochReplacesTheStoreAtOnce)
//   - A stream that carries nothing for the stall time-out is cut and resumed.
//     (TestStalledWatchIsCut)
//   - After [Lease.Close] or [Subscription.Close] returned nil no call of the
//     handler begins. (TestNoCallAfterClose)
//   - [Pool.Close] ends every goroutine at once, whatever the servers do.
//     (TestStopIsPrompt)
//
// Not promised: every intermediate state, and an order between objects of
// different informers.
//
// # A slow or failing cluster
//
// An informer that cannot reach its server keeps what it has, says so in
// [Lease.Status], and tries again with growing, jittered waits up to 30 s. A
// refusal (403, 404) is reported by [Lease.WaitForSync] as the server's own
// error, and the informer heals by itself when it is lifted. Objects are
// delivered as deleted on proof alone: a list of the same history lacks them,
// or discovery does not know the resource any more; a 404 by itself proves
// nothing. How many initial lists run at once is bounded for the whole pool.
//
// # Testing
//
// With client-go's fake dynamic client [FromDynamic] works inside a
// testing/synctest bubble.
package informerpool
