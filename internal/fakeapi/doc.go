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
// Tests that need something else than a faithful server have their own, each
// for one reason: internal/stillapi costs nothing, internal/fleettest fails and
// counts by verb and path, internal/pooltest is a log of versions without HTTP,
// that of internal/restmap serves discovery documents no real server would, and
// that of internal/transport/h2 speaks in single frames.
package fakeapi
