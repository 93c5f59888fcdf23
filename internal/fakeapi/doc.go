// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package fakeapi is a Kubernetes API server in memory, for tests: a [Server]
// is an http.Handler that serves the built-in kinds, and others that are
// registered or defined by a CustomResourceDefinition, as kube-apiserver does.
//
// It has one history of resourceVersions, lists in pages that show one moment,
// watches that resume, streamed lists, bookmarks, compaction, selectors,
// optimistic locking, finalizers, generations, status subresources, patches of
// all forms, and aggregated discovery with ETags. It uses no timers but those
// of watches, no network and no goroutines of its own, so that it works in a
// bubble of testing/synctest.
//
// It has no admission but what is named here, no defaults, no validation of
// anything but metadata, and no controllers: nothing collects dependents, and a
// deleted namespace stays in phase Terminating, as in any control plane without
// kube-controller-manager.
package fakeapi
