// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package rolling has the controller of the rollout example. It imports only
// public packages: it is what your own operator would have.
//
//	Rollout, Module ──► Reconcile ──► Declare    one watch of each kind in each cluster
//	       ▲                │
//	       │                ├──► waves: which clusters are served now
//	       │                │
//	       │                └──► apply, then judge what the cache shows
//	       └── status
//
// It never polls: changes of the objects in remote clusters, and of the
// clusters themselves, lead to a request for the Rollout. Only what failed is
// tried again, with the back-off of the workqueue.
package rolling
