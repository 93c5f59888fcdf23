// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package informerpool shares informers. An informer is a cache of one resource
// of one cluster that follows the API server. Informers are acquired and
// released on demand, for any kind, typed or not, in any number of clusters.
//
// # Usage
//
// [Pool.Acquire] returns a [Lease] on the informer for a [Key], and starts that
// informer if it is not running. The lease reads the cache ([Lease.Get],
// [Lease.List]), and a [Subscription] delivers the changes of any number of
// leases to one [Handler]. [Lease.Release] gives the lease up. Some time after
// its last lease was released, the informer stops.
//
// A [Source] opens the lists and watches: [FromREST] for API servers reached
// over HTTP, [FromDynamic] for dynamic clients. The pool has no notion of
// kubeconfigs or reconnects; package clustercache adds them.
//
// # From the wire to a handler
//
//	API server
//	    │  one LIST and one WATCH, or one streamed list
//	    ▼
//	Source         opens the request, returns its body
//	    │  JSON
//	    ▼
//	reflector      checks kind, identity, version and size; applies Transforms;
//	    │          resumes, or lists again
//	    │  packed object
//	    ▼
//	store ───────► Lease.Get, Lease.List, Lease.All
//	    │  change: the state before and the state after
//	    ▼
//	listener       passes on what the lease and Subscription.Add select
//	    │
//	    ▼
//	Subscription   merges changes: at most one pending change per object
//	    │  Event, one at a time
//	    ▼
//	Handler        in clustercache: predicates; then mapping and debounce of an
//	    │          ObjectSource of clustercache/controller
//	    │  request
//	    ▼
//	workqueue      of a controller
//
// One reflector writes the store of one informer. Each lease in a subscription
// has a listener of its own.
//
// # Objects
//
// Cached objects are kept as compressed JSON and decoded when they are read:
// among a thousand alike, a Pod takes less than 1 KB, and 50 KB as a map. [Object] is a read-only
// client.Object: its name, labels, owners and resourceVersion are available
// without decoding. managedFields are kept, so that apply configurations can be
// extracted from cached objects, unless Options.DropManagedFields is set.
// Objects are shared: modify only copies made by DeepCopyObject or Into.
//
// # Guarantees
//
//   - One LIST and one WATCH reach the server for a key, however many leases
//     are held on it; where the server streams lists (1.34 and later) both are
//     one request. (TestOneRequestHoweverManyLeases) For a resource that a
//     CustomResourceDefinition may define there is one more, a list of that
//     definition alone (see [Discoverer]).
//   - Acquire, reads and Status never wait for the network, and the end of one
//     lease does not affect another.
//     (TestAcquireReturnsAtOnceWhileTheServerHangs,
//     TestAnotherLeasesEndChangesNothing)
//   - A handler receives the states of each object in the order of their
//     versions, each at most once. States may be skipped while it is busy; the
//     last one never is. (TestModel)
//   - A broken connection is resumed where it ended, without a list and without
//     events for unchanged objects. (TestBrokenWatchResumesWithoutAList) The
//     server is asked first how far its history reaches, once for all resources
//     of one storage. (TestOneQuestionForAllKinds)
//   - When the server forgot the history, or restored an older one, or is
//     another cluster, the cache is made equal to the server again: objects
//     that vanished are delivered as deletes, and unchanged objects are not
//     delivered. (TestGoneResyncsWithoutEventsForUnchanged,
//     TestRollbackStartsANewHistory, TestNewEpochReplacesTheStoreAtOnce)
//   - A stream that carries nothing for the stall time-out is cut and resumed.
//     (TestStalledWatchIsCut)
//   - After [Lease.Close] or [Subscription.Close] returned nil no call of the
//     handler begins. (TestNoCallAfterClose)
//   - [Pool.Close] ends every goroutine at once, whatever the servers do; for
//     callbacks that run it waits as long as its context permits.
//     (TestStopIsPrompt)
//
// Not guaranteed: every intermediate state, and an order between objects of
// different informers.
//
// # A slow or failing cluster
//
// An informer that cannot reach its server keeps its objects, reports the error
// in [Lease.Status], and tries again with growing, jittered waits of up to
// 30 s. [Lease.WaitForSync] returns a refusal (403, 404) as the server's own
// error; the informer recovers by itself once the refusal is lifted. Objects
// are delivered as deleted only on proof: a list of the same history lacks
// them, or discovery no longer knows the resource, and the
// CustomResourceDefinition is gone that defined it (see [Discoverer]). A 404
// alone proves nothing.
// The number of initial lists that run at once is bounded for the whole pool.
//
// # Testing
//
// With client-go's fake dynamic client, [FromDynamic] works inside a
// testing/synctest bubble.
//
// # Tests
//
// The leading test is TestModel (test/pool), which compares informers with a
// model of their server; that package has all others, by theme.
// TestHazardOneReadShowsOneHistory covers servers that go back,
// TestHazardServerDropsEvents those that lose events,
// TestForeignAndBrokenObjectsAreRefused those that cannot be believed.
// TestBudgetHoldsAgainstFloods (test/pool/limits) covers memory.
// TestOnRealClusters runs what only real servers can prove.
package informerpool
