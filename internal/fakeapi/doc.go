// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package fakeapi is an in-memory Kubernetes API server for tests. A [Server]
// is an http.Handler that serves the built-in kinds, and others that are
// registered or defined by a CustomResourceDefinition, as kube-apiserver does.
//
//	request ── Options.Authenticate ── Options.Intercept ── route
//	                                       │                  │
//	                                     Fault      ┌─────────┼─────────┐
//	                                               list     watch     write
//	                                                │         │         │
//	                                              table: objects, log of changes
//
// It supports one history of resourceVersions, lists in pages that show one
// moment, watches that resume, streamed lists, bookmarks, compaction,
// selectors, optimistic locking, finalizers, generations, status subresources,
// all types of patches, and aggregated discovery with ETags. It uses no timers
// except those of watches, no network and no goroutines of its own, so it works
// in a bubble of testing/synctest.
//
// It has no admission except what is named here, no defaulting, no validation
// of anything but metadata, and no controllers: dependents are not garbage
// collected, and a deleted namespace stays in phase Terminating, as in any
// control plane without kube-controller-manager.
//
// internal/fleettest.API is a Server on an in-memory network that fails on
// demand and counts by verb and path, clustercachetest.Cluster one with
// certificates and tokens, and examples/internal/fleet has some for programs.
// Four servers of tests are not built from this one:
//
//   - internal/stillapi keeps nothing per object, because fleets of a thousand
//     clusters are measured with it.
//   - internal/pooltest is no HTTP server, but an informerpool.Source: its tests
//     choose the bytes of frames and the version of each change, and several
//     hundred of their assertions name such versions.
//   - internal/restmap's serves discovery documents that no set of kinds leads
//     to, such as stale groups and wrong ETags.
//   - internal/transport/h2's peer speaks in single frames.
package fakeapi
