// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package controller has what controllers of many clusters are made of: a
// [Builder] with methods and options like those of controller-runtime's, sources
// of events of objects and clusters, the functions that map them to requests,
// and [PerCluster] and [PerClusterHandler], which let a reconciler and an event
// handler of one cluster work in all.
//
//	ClusterCache.Subscribe   .SubscribeClusters   .SubscribeOwners
//	       | events.Object       | events.Cluster    | OwnerEvent
//	  ObjectSource          ClusterSource      DeclarerSource     Trigger, Pause, Stop, ...
//	       |                     |                   |
//	       +----------- mapping function ------------+            EnqueueObject, ...
//	                       |
//	            debounce, if configured                 Debounce, MaxDelay
//	                       |
//	                   workqueue                        one Request per key; FairQueue
//	                       |
//	                   Reconciler                       of PerCluster, or your own
//
// [NewControllerManagedBy] suffices for a controller that reconciles objects of
// remote clusters. Controllers that reconcile objects of the hub add
// [ObjectSource] and [ClusterSource] to controller-runtime's own builder, with
// [EnqueueClusterOf], [EnqueueLabelled] or a function of their own; those that
// declare what they need (ClusterCache.Declare), [DeclarerSource] alone.
//
// # Tests
//
// TestBuilderReconcilesObjectsTheirOwnersAndWhatMappingsSay covers the builder.
// TestPauseKeepsTheCacheAndContinueDeliversTheLastState covers sources.
// TestGuaranteeWayBack (test/declaring) covers [DeclarerSource].
package controller
